//go:build linux

package registration

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

const link = "/usr/local/lib/tendril/runsc"

// Whatever the configuration has otherwise stays, byte for byte, and comes back by itself.
func TestRegisterKeepsTheRest(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":          "",
		"an empty object":  "{}",
		"spread out":       "{\n}\n",
		"other settings":   "{\n  \"log-driver\": \"none\",\n  \"dns\": [ \"10.0.0.1\" ]\n}\n",
		"tabs":             "{\n\t\"b\": 1,\n\t\"a\":   {\"z\": 1, \"y\": [1,2]}\n}",
		"one line":         `{"log-driver":"none","x":{"runtimes":1}}`,
		"other runtimes":   "{\n    \"runtimes\": {\n        \"kata\": {\"path\": \"/usr/bin/kata\"}\n    },\n    \"debug\": true\n}\n",
		"no runtimes":      "{\n    \"runtimes\": {\n    },\n    \"debug\": true\n}\n",
		"a key of escapes": "{\n  \"a\\\"b\\\\\": \"}\\\"\",\n  \"runtimes\": {\"k\": {\"path\": \"/k\"}}\n}",
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			with, err := register([]byte(text), link)
			if err != nil {
				t.Fatal(err)
			}
			var got, had map[string]any
			if err := json.Unmarshal(with, &got); err != nil {
				t.Fatalf("%v in %s", err, with)
			}
			ours := got["runtimes"].(map[string]any)["runsc"].(map[string]any)
			if ours["path"] != link || len(ours["runtimeArgs"].([]any)) != len(Args) {
				t.Errorf("registered as %v", ours)
			}
			delete(got["runtimes"].(map[string]any), "runsc")
			if text != "" {
				if err := json.Unmarshal([]byte(text), &had); err != nil {
					t.Fatal(err)
				}
			}
			if _, ok := had["runtimes"]; !ok {
				delete(got, "runtimes")
			}
			if len(had)+len(got) > 0 && !reflect.DeepEqual(got, had) {
				t.Errorf("besides it there is %v, and was %v", got, had)
			}
			again, err := register(with, link)
			if err != nil || !bytes.Equal(again, with) {
				t.Errorf("a second time changes something (%v): %s", err, again)
			}
			back, err := unregister(with, link)
			if err != nil {
				t.Fatal(err)
			}
			if want := text; name != "nothing" && name != "spread out" && name != "no runtimes" && string(back) != want {
				t.Errorf("taken out again it is\n%s\nand was\n%s", back, want)
			}
		})
	}
}

func TestRegisterRefuses(t *testing.T) {
	for text, says := range map[string]string{
		`{"a": 1, "a": 2}`:                       `"a" is there twice`,
		`{"Debug": true, "debug": false}`:        `"debug" is there twice`,
		`{"x": {"a": 1, "b": {"c": 1, "c": 2}}}`: `"c" is there twice`,
		"{\n// a comment\n}":                     "not strict JSON",
		`{"a": 1,}`:                              "not strict JSON",
		`{"a": 1} {"b": 2}`:                      "something after the end",
		`[1]`:                                    "no object",
		`{"runtimes": 7}`:                        "no object",
		`{"runtimes": {"runsc": {"path": "/usr/bin/runsc"}}}`:         "not tendril's",
		`{"runtimes": {"runsc": 7}}`:                                  "runtimes.runsc",
		strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100): "deeper",
		`{"a": 1`: "not strict JSON",
	} {
		if got, err := register([]byte(text), link); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %s, %v; want an error that says %q", text, got, err, says)
		}
	}
}

// What an older tendril registered is brought up to date; what somebody else did stays.
func TestRegisterMendsItsOwn(t *testing.T) {
	old := `{"runtimes": {"a": {"path": "/a"}, "runsc": {"path": "` + link + `", "runtimeArgs": ["--network=none"]}}, "z": 1}`
	got, err := register([]byte(old), link)
	if err != nil || bytes.Contains(got, []byte(`["--network=none"]`)) || !bytes.Contains(got, []byte("oci-seccomp")) {
		t.Errorf("mended to %s (%v)", got, err)
	}
	foreign := `{"runtimes": {"runsc": {"path": "/usr/bin/runsc"}}}`
	if got, err := unregister([]byte(foreign), link); err != nil || string(got) != foreign {
		t.Errorf("took out somebody else's: %s (%v)", got, err)
	}
}

func FuzzRegister(f *testing.F) {
	f.Add(`{"a": 1}`)
	f.Add("{\n\t\"runtimes\": {}\n}")
	f.Add(`{"a\"": {"runtimes": {"x": [1, {"b": null}]}}, "runtimes": {"k": {"path": "/k"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		with, err := register([]byte(text), link)
		if err != nil {
			return
		}
		var got map[string]any
		if err := json.Unmarshal(with, &got); err != nil {
			t.Fatalf("%q became %q: %v", text, with, err)
		}
		var had map[string]any
		if json.Unmarshal([]byte(text), &had) == nil {
			for key := range had {
				if _, ok := got[key]; !ok {
					t.Fatalf("%q became %q: %q is gone", text, with, key)
				}
			}
		}
		if again, err := register(with, link); err != nil || !bytes.Equal(again, with) {
			t.Fatalf("%q: a second time gives %q (%v)", with, again, err)
		}
		if _, err := unregister(with, link); err != nil {
			t.Fatalf("%q: %v", with, err)
		}
	})
}
