package capability

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tendril/fault"
	"tendril/run"
)

func TestDecode(t *testing.T) {
	const text = `{"substrate": {"path_b64": "L3P/"}, "base": "main", "argv": ["sh", "-c", "echo \ud83c\udf31 \\ud83c"],
		"env": ["A=b"], "provider": null, "require_clean": true, "terminal": {"rows": 24, "cols": 80},
		"limits": {"cpus": 1.5, "memory": "4GiB", "disk": 1048576, "pids": 64, "wall": "1h", "idle": null}}`
	var got GrowInput
	if err := Decode([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := GrowInput{RequireClean: true, Work: Work{
		Substrate: run.Substrate{Path: "/s\xff"}, Base: "main", Argv: []string{"sh", "-c", `echo 🌱 \ud83c`},
		Env: []string{"A=b"}, Terminal: &Size{24, 80},
		Limits: Limits{CPUs: new(1.5), Memory: new(Bytes(4 << 30)), Disk: new(Bytes(1 << 20)), Pids: new(64), Wall: new(Duration(time.Hour))},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

// TestDecodeTakesWhatIsPrinted: what a client of ours encodes is decoded to the
// same.
func TestDecodeTakesWhatIsPrinted(t *testing.T) {
	for _, want := range []any{
		&GrowInput{Work: Work{Substrate: run.Substrate{Name: "handbook"}, Argv: []string{"a"}, Limits: Limits{Memory: new(Bytes(5)), Wall: new(Duration(5))}}},
		&RunInput{anID}, &ListInput{After: anID, Substrate: &run.Substrate{Path: "/a"}}, &WatchInput{anID, 3},
		&AcceptInput{Run: anID, Into: "main"}, &TerrariumListInput{}, &ProbeInput{Provider: "runsc"},
	} {
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := Decode(data, got); err != nil {
			t.Errorf("%s: %v", data, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// TestDecodeTakesTheLeastInput: what asks for nothing in particular is sent as it is.
func TestDecodeTakesTheLeastInput(t *testing.T) {
	for _, d := range All() {
		input := reflect.New(d.Input).Elem()
		if id := input.FieldByName("Run"); id.IsValid() {
			id.Set(reflect.ValueOf(anID))
		}
		data, err := json.Marshal(input.Interface())
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(d.Input)
		if err := Decode(data, got.Interface()); err != nil {
			t.Errorf("%s: %s: %v", d.Name, data, err)
		} else if diff := cmp.Diff(input.Interface(), got.Elem().Interface()); diff != "" {
			t.Errorf("%s: %s: %s", d.Name, data, diff)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, test := range []struct{ text, want, hint string }{
		{``, "the input ends too early", ""},
		{`{`, "the input ends too early", ""},
		{`{"argv": [`, "argv: the input ends too early", ""},
		{`null`, "not an object", ""},
		{`[]`, "not an object", ""},
		{`{} {}`, "something follows the input's value", ""},
		{`{}x`, "something follows the input's value", ""},
		{`{"argv": 'a'}`, "argv: the input is not JSON: invalid character '\\'' looking for beginning of value", ""},
		{`{"agrv": []}`, `unknown key "agrv"`, `did you mean "argv"?`},
		{`{"ARGV": []}`, `unknown key "ARGV"`, `did you mean "argv"?`},
		{`{"arg\u0076": [], "argv": []}`, `the key "argv" comes twice`, ""},
		{`{"argv": [], "argv": []}`, `the key "argv" comes twice`, ""},
		{`{"limits": {"pids": 1, "pids": 2}}`, `the key "limits.pids" comes twice`, ""},
		{`{"substrate": {"path": "/a", "path": "/b"}}`, `the key "substrate.path" comes twice`, ""},
		{`{"limits": {"memroy": 1}}`, `unknown key "limits.memroy"`, `did you mean "memory"?`},
		{`{"terminal": {"rows": 1, "x": 1}}`, `unknown key "terminal.x"`, "known keys are rows, cols"},
		{`{"substrate": {"path": "/a", "Path": "/b"}}`, `substrate: a path is`, ""},
		{`{"substrate": {"PATH": "/a"}}`, `substrate: a path is`, ""},
		{`{"limits": {"memory": "4G"}}`, `limits.memory: "4G" is not a size`, "a size is a whole number and a unit, such as 512MiB or 4GiB"},
		{`{"limits": {"memory": 1.5}}`, `limits.memory: "1.5" is not a size`, "a size is a whole number and a unit, such as 512MiB or 4GiB"},
		{`{"limits": {"memory": true}}`, `limits.memory: "true" is not a size`, "a size is a whole number and a unit, such as 512MiB or 4GiB"},
		{`{"limits": {"wall": 3600}}`, `limits.wall: a number cannot be a length of time; write it as text, such as 1h30m`, ""},
		{`{"limits": {"pids": 1.5}}`, "limits.pids: a number 1.5 cannot be a whole number", ""},
		{`{"limits": {"pids": "64"}}`, "limits.pids: a string cannot be a whole number", ""},
		{`{"limits": {"pids": 99999999999999999999}}`, "limits.pids: a number 99999999999999999999 cannot be a whole number", ""},
		{`{"limits": {"cpus": "2"}}`, "limits.cpus: a string cannot be a number", ""},
		{`{"limits": []}`, "limits: not an object", ""},
		{`{"dirty": 1}`, "dirty: a number cannot be true or false", ""},
		{`{"argv": "make"}`, "argv: a string cannot be a list", ""},
		{`{"argv": [1]}`, "argv: a number cannot be text", ""},
		{`{"terminal": {"rows": 65536}}`, "terminal.rows: a number 65536 cannot be a whole number from 0 to 65535", ""},
		{"{\"base\": \"\xff\"}", "the input is not valid UTF-8", "send a path that is not text as path_b64"},
		{`{"base": "\ud800"}`, "the text at byte 10 holds half a surrogate pair", ""},
		{`{"base": "\udc00\ud800"}`, "the text at byte 10 holds half a surrogate pair", ""},
		{`{"base": "\ud800\u0041"}`, "the text at byte 10 holds half a surrogate pair", ""},
		{`{"base": "\\\ud800x"}`, "the text at byte 12 holds half a surrogate pair", ""},
		{`{"base": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "base.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0…: the input nests deeper than 32", ""},
		{`{"base": "` + strings.Repeat("x", LargestInput) + `"}`, "the input of 4194316 bytes is larger than 4194304", ""},
	} {
		var in GrowInput
		err := Decode([]byte(test.text), &in)
		var f *fault.Error
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%.60s: %v", test.text, err)
			continue
		}
		f = err.(*fault.Error)
		if !strings.HasPrefix(f.Detail, test.want) {
			t.Errorf("%.60s:\ngot  %s\nwant %s", test.text, f.Detail, test.want)
		}
		if f.Hint != test.hint && test.hint != "" {
			t.Errorf("%.60s: hint %q, want %q", test.text, f.Hint, test.hint)
		}
	}
}

// FuzzDecode: what is taken is taken by encoding/json to the same, and what
// this package prints of it is taken again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"substrate":{"path":"/a"},"argv":["true"],"limits":{"memory":"4GiB","wall":"1h"}}`,
		`{"substrate":"handbook","base":"\ud83c\udf31","terminal":{"rows":1,"cols":2}}`,
		`{"argv":[],"ARGV":[]}`, `{"a":{"a":{"a":[]}}}`, `[[[[`, `{"limits":{"pids":1e2}}`, `"\ud800"`, "{\"\x00\":1}", `{"substrate":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, plain GrowInput
		if err := Decode(data, &got); err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		if err := json.Unmarshal(data, &plain); err != nil {
			t.Fatalf("%q is taken here and not by encoding/json: %v", data, err)
		}
		if diff := cmp.Diff(plain, got); diff != "" {
			t.Errorf("%q: %s", data, diff)
		}
		printed, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var back GrowInput
		if err := Decode(printed, &back); err != nil {
			t.Fatalf("%s was printed and is refused: %v", printed, err)
		}
		if a, b := fmt.Sprintf("%+v", normal(got)), fmt.Sprintf("%+v", normal(back)); a != b {
			t.Errorf("%s came back as %s", a, b)
		}
	})
}

// normal prints an input without the addresses of what it points to.
func normal(in GrowInput) string {
	data, _ := json.Marshal(in)
	return string(data)
}
