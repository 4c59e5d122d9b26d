package strictyaml

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tendril/fault"
)

type document struct {
	Version int               `yaml:"version"`
	Items   []item            `yaml:"items"`
	Named   map[lower]item    `yaml:"named"`
	Free    map[string]string `yaml:"free"`
}

type item struct {
	Line Line `yaml:"-"`

	Word  lower    `yaml:"word"`
	Text  string   `yaml:"text"`
	Whole int64    `yaml:"whole"`
	Part  *float64 `yaml:"part"`
	Flag  bool     `yaml:"flag"`
	Words pairs    `yaml:"words"`
	Inner inner    `yaml:"inner"`

	shared `yaml:",inline"`
}

type shared struct {
	First lower `yaml:"first"`
}

type inner struct {
	Deep []string `yaml:"deep"`
}

func (inner) RefuseKey(key string) error {
	if key != "shallow" {
		return nil
	}
	return fault.New(fault.Invalid, "nothing here is shallow").WithHint("dig")
}

// lower is text that reads itself.
type lower string

func (l *lower) UnmarshalText(text []byte) error {
	if strings.ToLower(string(text)) != string(text) {
		return fault.New(fault.Invalid, "%q is not lower case", text).WithHint("lower it")
	}
	*l = lower(text)
	return nil
}

// pairs are a list of at most two words, or the word none.
type pairs []lower

func (p *pairs) UnmarshalText(text []byte) error {
	if string(text) != "none" {
		return errors.New("neither a list nor none")
	}
	*p = pairs{"none"}
	return nil
}

func (p pairs) Validate() error {
	if len(p) > 2 {
		return errors.New("more than two words")
	}
	return nil
}

func TestDecode(t *testing.T) {
	got, err := Decode[document]("f", []byte(`version: 1
items:
  - word: a

    first: b
  -
    words: [c, d]
  - {words: none, inner: {deep: ["1"]}}
named:
  x: {text: y}
free: {A: B}
`))
	want := document{Version: 1, Items: []item{
		{Line: 3, Word: "a", shared: shared{"b"}},
		{Line: 7, Words: pairs{"c", "d"}},
		{Line: 8, Words: pairs{"none"}, Inner: inner{[]string{"1"}}},
	}, Named: map[lower]item{"x": {Line: 10, Text: "y"}}, Free: map[string]string{"A": "B"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(item{})); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"named:\n  X: {}\n":                               `f:3: named: "X" is not lower case`,
		"items:\n  - word: A\n":                           `f:3: word: "A" is not lower case`,
		"items:\n  - words: [a, B]\n":                     `f:3: words: "B" is not lower case`,
		"items:\n  - words:\n    - a\n    - b\n    - c\n": "f:4: words: more than two words",
		"items:\n  - words: some\n":                       "f:3: words: neither a list nor none",
		"items:\n  - words: {a: b}\n":                     `f:3: the value of "words" is not a single value`,
		"items:\n  - line: 3\n":                           `f:3: unknown key "line"`,
		"items:\n  - Line: 3\n":                           `f:3: unknown key "Line"`,
		"items:\n  - '-': 3\n":                            `f:3: unknown key "-"`,
		"items:\n  - '': 3\n":                             `f:3: unknown key ""`,
		"items:\n  - shared: {first: a}\n":                `f:3: unknown key "shared"`,
		"items:\n  - inner: {shallow: a}\n":               `f:3: shallow: nothing here is shallow`,
		"items:\n  - inner: {shallo: a}\n":                `f:3: unknown key "shallo"`,
		"items:\n  - frist: a\n":                          `f:3: unknown key "frist" (did you mean "first"?)`,
		"items:\n  - first: a\n    first: b\n":            `f:4: key "first" comes twice; the first is on line 3`,
	} {
		_, err := Decode[document]("f", []byte("version: 1\n"+text))
		detail, _, _ := strings.Cut(fmt.Sprint(err), " (known")
		if !fault.Is(err, fault.Invalid) || detail != want && !strings.HasPrefix(detail, want+" (did you mean ") {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// TestWhatEditorsDoNotShow: what a person sees in a file is what it says.
func TestWhatEditorsDoNotShow(t *testing.T) {
	for text, want := range map[string]string{
		"# off\ritems: []\n":                   "f:2: the line holds a carriage return",
		"items: []\r\n":                        "f:2: the line holds a carriage return",
		"free: {a: b}\n# off\u2028items: []\n": "f:3: the line holds a line break that editors do not show (U+2028)",
		"# off\u2029items: []\n":               "f:2: the line holds a line break that editors do not show (U+2029)",
		"# off\u0085items: []\n":               "f:2: the line holds a line break that editors do not show (U+0085)",
		"free: {a: 'x\u2028y'}\n":              "f:2: the line holds a line break that editors do not show (U+2028)",
		"free: {a: \x00}\n":                    "f:2: the file holds a control character (0x00)",
		"free: {a: \x7f}\n":                    "f:2: the file holds a control character (0x7f)",
		"free: {a: \u009b}\n":                  "f:2: the file holds a control character (0x9b)",
		"free: {a: \ufeff}\n":                  "f:2: the file holds a control character (0xfeff)",
	} {
		for _, edit := range []func(string, []byte) error{
			func(file string, text []byte) error { _, err := Decode[document](file, text); return err },
			func(file string, text []byte) error {
				_, err := AddEntry(file, text, "free", "x", shared{"y"})
				return err
			},
		} {
			if err := edit("f", []byte("version: 1\n"+text)); !fault.Is(err, fault.Invalid) || err.Error() != want {
				t.Errorf("%q\ngot  %v\nwant %s", text, err, want)
			}
		}
	}
}

// TestEveryErrorHasALine: also those to which the parser gives none, or another.
func TestEveryErrorHasALine(t *testing.T) {
	for text, want := range map[string]string{
		"free:\n  a: *none\nitems: []\n":                     "f:3: unknown anchor 'none' referenced",
		"free: {a: b}\n---\n%YAML 1.2\n":                     "f:3: the file holds more than one document",
		"free: {a: b}\n...\n%YAML 7.0\n---\na: b\n":          "f:4: found incompatible YAML document",
		"free: {a: b}\n...\n%TAG ! x\n%TAG ! y\n---\na: b\n": "f:5: found duplicate %TAG directive",
		"free:\n  a: \"\n":                                   "f:3: found unexpected end of stream",
		"free:\n  a: b\n c: d\n":                             "f:4: did not find expected key",
		"\t- x\n":                                            "f:2: found a tab character that violates indentation",
		"free: {a: \"\\x\"}\n":                               "f:2: did not find expected hexdecimal number",
		"free: [\n\n\n":                                      "f:4: did not find expected node content",
		"free: !<x\n":                                        "f:2: did not find the expected '>'",
		"free: &a\n":                                         "f:2: an anchor (&a) is not allowed",
	} {
		_, err := Decode[document]("f", []byte("version: 1\n"+text))
		if !fault.Is(err, fault.Invalid) || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// Whatever is written is read as what it was, also where it looks like something else.
func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	looksLike := []string{"null", "~", "true", "no", "1", "0x1", "1e3", "2027-06-30", "a: b", "a #b", "- a", "*a", "&a", "!a", "[a", "{a", "a, b", "'", `"`, "\\", " a ", "", "%", "@", "`", "|", ">", "?", ":", "a:", "=", "<<", "...", "---", "\u00e9", "\u2028", "a\nb", "\t"}
	text := rapid.OneOf(rapid.SampledFrom(looksLike), rapid.StringMatching(`[ -~\t\n]{0,12}`), rapid.StringMatching(`[a-z0-9 :#,.*/-]{0,12}`))
	rapid.Check(t, func(t *rapid.T) {
		want := item{
			Line: 3, Text: text.Draw(t, "text"), Word: lower(strings.ToLower(text.Draw(t, "word"))), Flag: rapid.Bool().Draw(t, "flag"),
			Whole: rapid.Int64().Draw(t, "whole"), Part: rapid.Ptr(rapid.Map(rapid.IntRange(1, 1<<20), func(n int) float64 { return float64(n) / 64 }), true).Draw(t, "part"),
			Inner: inner{rapid.SliceOfN(text, 1, 2).Draw(t, "deep")}, shared: shared{First: lower(strings.ToLower(text.Draw(t, "first")))},
		}
		for range rapid.IntRange(0, 2).Draw(t, "words") {
			want.Words = append(want.Words, lower(strings.ToLower(text.Draw(t, "a word"))))
		}
		file, err := AddItem("f", nil, "items", want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode[document]("f", file)
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		if !reflect.DeepEqual(got.Items, []item{want}) {
			t.Fatalf("got  %+v\nwant %+v\n%s", got.Items, want, file)
		}
	})
}

func TestRemoveWord(t *testing.T) {
	const file = "version: 1\nitems:\n  - words: LIST\n"
	for _, test := range []struct{ list, word, want string }{
		{"[a, b]", "a", "[b]"}, {"[a, b]", "b", "[a]"}, {"[ 'a' , \"b\" ]", "a", `[ "b" ]`}, {"[ 'a' , \"b\" ]", "b", "[ 'a' ]"},
		{"[a, b,]", "b", "[a,]"}, {"[a, # why\n      b]", "a", "[b]"}, {"[\n      a,\n      b\n    ]", "b", "[\n      a\n    ]"},
		{"\n      - a\n      - b # why", "a", "\n      - b # why"}, {"\n      - a\n\n      - b # why", "b", "\n      - a\n"},
		{"\n    - a\n    -\n      b", "b", "\n    - a"}, {"['ä', b]", "b", "['ä']"}, {"[b, 'ä']", "b", "['ä']"},
	} {
		text := strings.Replace(file, "LIST", test.list, 1)
		got, err := RemoveWord("f", []byte(text), "items", 0, "words", test.word)
		if want := strings.Replace(file, "LIST", test.want, 1); err != nil || string(got) != want {
			t.Errorf("%s without %s: %v\n%s", test.list, test.word, err, got)
		}
	}
	for _, test := range []struct{ list, word string }{{"[a]", "a"}, {"[a, b]", "c"}, {"none", "none"}, {`["\x61", b]`, "a"}, {"[b, >-\n      a\n      ]", "a"}} {
		text := strings.Replace(file, "LIST", test.list, 1)
		if got, err := RemoveWord("f", []byte(text), "items", 0, "words", test.word); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s without %s: %v\n%s", test.list, test.word, err, got)
		}
	}
}
