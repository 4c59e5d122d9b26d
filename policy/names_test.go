package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"tendril/fault"
)

const permittedJSON = `{"runtime":"container","privileged":"no","filesystem":"scratch","network":"disabled","secrets":"none","approval":"none","action":"compute"}`

func TestDecodeJSON(t *testing.T) {
	names, err := DecodeJSON([]byte(permittedJSON))
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(names.Evaluate())
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"decision":"permit","mask":0,"reasons":["no rule of this policy is violated; that certifies nothing beyond these seven inputs"]}`; string(out) != want {
		t.Errorf("got %s", out)
	}
}

func TestDecodeJSONRefuses(t *testing.T) {
	for _, test := range []struct{ what, data, says string }{
		{"nothing", ``, "ends too early"},
		{"half an object", `{"runtime":"host"`, "ends too early"},
		{"half a pair", `{"runtime"`, "ends too early"},
		{"no value", `{"runtime":}`, "not JSON"},
		{"no colon", `{"runtime" "host"}`, "not JSON"},
		{"a comma too many", `{"runtime":"host",}`, "not JSON"},
		{"a comma too few", `{"runtime":"host" "action":"compute"}`, "not JSON"},
		{"no JSON", `runtime: host`, "not JSON"},
		{"a list", `["runtime"]`, "not a JSON object"},
		{"null", `null`, "not a JSON object"},
		{"an unknown key", `{"netwrok":"disabled"}`, `there is no input "netwrok" (did you mean "network"?)`},
		{"a key unlike any", `{"x":"disabled"}`, `there is no input "x" (one of runtime, privileged`},
		{"another case", `{"Runtime":"host"}`, `there is no input "Runtime" (did you mean "runtime"?)`},
		{"a long key", `{"` + strings.Repeat("k", 999) + `":"host"}`, strings.Repeat("k", 64) + `…"`},
		{"a key twice", `{"runtime":"container","runtime":"host"}`, `"runtime" comes twice`},
		{"a key twice, spelt in two ways", `{"runtime":"container","\u0072untime":"host"}`, `"runtime" comes twice`},
		{"a number", `{"runtime":1}`, `"runtime" is not text`},
		{"true", `{"privileged":true}`, `"privileged" is not text`},
		{"null", `{"privileged":null}`, `"privileged" is not text`},
		{"a list as a value", `{"action":["compute"]}`, `"action" is not text`},
		{"two objects", permittedJSON + permittedJSON, "something follows"},
		{"a brace too many", permittedJSON + "}", "something follows"},
		{"too much", permittedJSON + strings.Repeat(" ", LargestJSON), "larger than 4096 bytes"},
	} {
		names, err := DecodeJSON([]byte(test.data))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.says) || names != nil {
			t.Errorf("%s: %v, %v; want %q", test.what, names, err, test.says)
		}
	}
}

// What is missing or misspelt is named, and denies.
func TestNamesSayWhatIsWrong(t *testing.T) {
	permitted, err := DecodeJSON([]byte(permittedJSON))
	if err != nil {
		t.Fatal(err)
	}
	change := func(name, value string) Names {
		changed := maps.Clone(permitted)
		if changed[name] = value; value == "-" {
			delete(changed, name)
		}
		return changed
	}
	for _, test := range []struct {
		names Names
		says  string
	}{
		{change("runtime", "-"), "runtime is missing (one of host, container, microvm)"},
		{change("runtime", "Container"), `runtime has no value "Container" (did you mean "container"?)`},
		{change("network", "allow-list"), `network has no value "allow-list" (did you mean "allowlist"?)`},
		{change("secrets", ""), `secrets has no value "" (one of none, brokered, raw)`},
		{change("approval", " none"), `approval has no value " none" (did you mean "none"?)`},
		{change("action", strings.Repeat("\x1b", 999)), `action has no value "` + strings.Repeat(`\x1b`, 64) + `…" (one of compute`},
		{change("acton", "compute"), `there is no input "acton" (did you mean "action"?)`},
	} {
		d := test.names.Evaluate()
		if d.Mask != OutOfRange || d.Permits() || len(d.Reasons) != 1 || !strings.Contains(d.Reasons[0], test.says) {
			t.Errorf("%+v, want %q", d, test.says)
		}
	}
	if d := (Names{}).Evaluate(); d.Mask != OutOfRange || strings.Count(d.Reasons[0], "is missing") != 7 {
		t.Errorf("no names at all: %+v", d)
	}
}

// Whatever the bytes are, the answer is a refusal, a denial, or a permit of exactly
// seven declared values.
func FuzzDecodeJSON(f *testing.F) {
	f.Add([]byte(permittedJSON))
	f.Add([]byte(`{"runtime":"host","privileged":"yes"}`))
	f.Add([]byte(`{"runtime":"container","runtime":"host"}`))
	f.Add([]byte(`{"runtime":{"a":[1,null]}}`))
	f.Add([]byte("{\"action\":\"\xff\"} "))
	f.Fuzz(func(t *testing.T, data []byte) {
		names, err := DecodeJSON(data)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("not an invalid input: %v", err)
			}
			return
		}
		for name := range names {
			if !slices.Contains(InputNames(), name) {
				t.Errorf("%q is no input", name)
			}
		}
		d := names.Evaluate()
		if d.Permits() && len(names) != 7 {
			t.Errorf("%d inputs are enough for a permit", len(names))
		}
		again, err := json.Marshal(names)
		if err != nil {
			t.Fatal(err)
		}
		same, err := DecodeJSON(again)
		if err != nil && len(again) <= LargestJSON {
			t.Errorf("%s was not read again: %v", again, err)
		} else if err == nil && !maps.Equal(names, same) {
			t.Errorf("%v became %v", names, same)
		}
	})
}
