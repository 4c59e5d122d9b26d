package site_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tendril/budget"
	"tendril/credential"
	"tendril/egress/model"
	"tendril/fault"
	"tendril/grant"
	"tendril/site"
	"tendril/strictyaml"
)

// controlPlane is every file that decides something: the constant that names it, its type
// and a valid example, which has what a file needs at least. The keys are those of the type.
var controlPlane = []controlFile{
	{site.FileName, "site.FileName", reflect.TypeFor[site.Config](), parser(site.ParseConfig), mapping{{"version", "1"}}},
	{grant.FileName, "grant.FileName", reflect.TypeFor[grant.File](), parser(grant.Parse), mapping{{"version", "1"}, {"grants", list{mapping{
		{"pollen", "ci-docs"}, {"substrates", list{"handbook"}}, {"classes", list{"run.get"}},
		{"egress", list{mapping{{"host", "api.example.com"}}}},
	}}}}},
	{grant.SubstratesFileName, "grant.SubstratesFileName", reflect.TypeFor[grant.SubstratesFile](), parser(grant.ParseSubstrates), mapping{{"version", "1"}, {"substrates", mapping{
		{"handbook", mapping{{"path", "/srv/handbook.git"}}},
	}}}},
	{credential.FileName, "credential.FileName", reflect.TypeFor[credential.File](), parser(credential.Parse), mapping{{"version", "1"}, {"credentials", mapping{
		{"model-api", mapping{
			{"source", mapping{{"env", "MODEL_API_KEY"}}}, {"bind", mapping{{"host", "api.example.com"}}}, {"attach", mapping{{"header", "Authorization"}}},
		}},
	}}}},
	{budget.FileName, "budget.FileName", reflect.TypeFor[pricesFile](), parser(budget.ParsePrices), mapping{{"version", "1"}, {"prices", list{mapping{
		{"route", "anthropic"}, {"model", "some-model"}, {"input", "1"}, {"output", "1"}, {"cache_read", "1"}, {"cache_write", "1"},
	}}}}},
	{model.FieldsFileName, "model.FieldsFileName", reflect.TypeFor[fieldsFile](), parser(model.WithFile), mapping{{"version", "1"}}},
}

// The keys of files whose types are their packages' own. TestTypos compares them with the
// keys that the parser says it knows.
type (
	pricesFile struct {
		Version int `yaml:"version"`
		Prices  []struct {
			Route      string `yaml:"route"`
			Model      string `yaml:"model"`
			Input      string `yaml:"input"`
			Output     string `yaml:"output"`
			CacheRead  string `yaml:"cache_read"`
			CacheWrite string `yaml:"cache_write"`
			MaxInput   string `yaml:"max_input"`
			MaxOutput  string `yaml:"max_output"`
		} `yaml:"prices"`
	}
	fieldsFile struct {
		Version   int         `yaml:"version"`
		Anthropic dialectFile `yaml:"anthropic"`
		Chat      dialectFile `yaml:"openai-chat"`
		Responses dialectFile `yaml:"openai-responses"`
	}
	dialectFile struct {
		Kinds   map[string][]string `yaml:"kinds"`
		Refused []string            `yaml:"refused"`
		Media   map[string]int64    `yaml:"media"`
		Betas   []string            `yaml:"betas"`
	}
)

type controlFile struct {
	name, is string
	file     reflect.Type
	parse    func(name string, text []byte) error
	example  mapping
}

func parser[T any](parse func(string, []byte) (T, error)) func(string, []byte) error {
	return func(name string, text []byte) error {
		_, err := parse(name, text)
		return err
	}
}

// TestTypos makes every slip of one key stroke in every key of every file: each is
// refused at its line, and the refusal names the key that was meant.
func TestTypos(t *testing.T) {
	for _, test := range controlPlane {
		t.Run(test.name, func(t *testing.T) {
			if err := test.parse(test.name, []byte(render(test.example))); err != nil {
				t.Fatalf("the example is not valid: %v", err)
			}
			keys := 0
			for _, place := range places(test.file, nil) {
				knowsOnly(t, test.parse(test.name, []byte(render(replaceKey(test.example, place.path, noKey, noKey)))), place)
				for _, key := range place.keys {
					keys++
					if err := test.parse(test.name, []byte(render(replaceKey(test.example, place.path, key, key)))); err != nil && strings.Contains(err.Error(), "unknown key") {
						t.Errorf("the key %q itself, at %v: %v", key, place.path, err)
					}
					for _, typo := range slips(key) {
						if !slices.Contains(place.keys, typo) {
							text := render(replaceKey(test.example, place.path, key, typo))
							refusesTypo(t, test.parse(test.name, []byte(text)), test.name, text, key, typo)
						}
					}
				}
			}
			if keys < 5 {
				t.Errorf("only %d keys were found", keys)
			}
		})
	}
}

// noKey is near to no key.
const noKey = "qqqqqqqqqqqqqqqqqqqq"

// knowsOnly reads the keys that a refusal of noKey lists.
func knowsOnly(t *testing.T, err error, place place) {
	t.Helper()
	var f *fault.Error
	if want := "known keys are " + strings.Join(place.keys, ", "); !errors.As(err, &f) || f.Hint != want {
		t.Errorf("at %v: %v\nwant %s", place.path, err, want)
	}
}

// TestTyposOfEveryWatchedFile: a file that comes to be watched has its keys tried too.
func TestTyposOfEveryWatchedFile(t *testing.T) {
	paths, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	watched := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") || !bytes.Contains(text, []byte("site.Watch")) {
			continue
		}
		set := token.NewFileSet()
		file, err := goparser.ParseFile(set, path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			of := call.Fun
			if instance, ok := of.(*ast.IndexExpr); ok {
				of = instance.X
			}
			if types.ExprString(of) != "site.Watch" {
				return true
			}
			watched++
			name := types.ExprString(call.Args[1])
			if !slices.ContainsFunc(controlPlane, func(f controlFile) bool { return f.is == name }) {
				t.Errorf("%s: the file %s is not in the table of controlPlane", set.Position(call.Pos()), name)
			}
			return true
		})
	}
	if watched < len(controlPlane)-1 { // all but the Botanist's own, which is read once
		t.Errorf("only %d watched files were found", watched)
	}
}

func refusesTypo(t *testing.T, err error, name, text, key, typo string) {
	t.Helper()
	before, _, _ := strings.Cut(text, marker)
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid {
		t.Errorf("%q for %q: %v\n%s", typo, key, err, text)
		return
	}
	prefix := fmt.Sprintf("%s:%d: unknown key %q (did you mean ", name, 1+strings.Count(before, "\n"), typo)
	rest, ok := strings.CutPrefix(f.Detail, prefix)
	if !ok {
		t.Errorf("got  %s\nwant %s", f.Detail, prefix)
		return
	}
	// Two keys can be as near, as provider and providers are.
	if meant, _ := strings.CutSuffix(rest, "?)"); meant != fmt.Sprintf("%q", key) && !slices.Contains(slips(strings.Trim(meant, `"`)), typo) {
		t.Errorf("%q for %q: got %s", typo, key, f.Detail)
	}
}

// place is a mapping of a file: the keys on the way there, "-" for an item of a list, "*"
// for a name of a map; and the keys that it may have.
type place struct{ path, keys []string }

func places(t reflect.Type, path []string) []place {
	if _, ok := reflect.New(t).Interface().(interface{ UnmarshalText([]byte) error }); ok {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return places(t.Elem(), path)
	case reflect.Slice:
		return places(t.Elem(), append(slices.Clip(path), "-"))
	case reflect.Map:
		return places(t.Elem(), append(slices.Clip(path), "*"))
	case reflect.Struct:
		here := place{path: path}
		below := inner(t, &here)
		return append(below, here)
	}
	return nil
}

// inner collects the keys of a struct, and the places below it.
func inner(t reflect.Type, here *place) (below []place) {
	for i := range t.NumField() {
		field := t.Field(i)
		key, option, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch {
		case field.Type == reflect.TypeFor[strictyaml.Line]():
		case option == "inline":
			below = append(below, inner(field.Type, here)...)
		default:
			here.keys = append(here.keys, key)
			below = append(below, places(field.Type, append(slices.Clip(here.path), key))...)
		}
	}
	return below
}

// A value of a file is text, a list or a mapping, and a mapping keeps the order of its keys.
type (
	mapping []pair
	list    []any
	pair    struct {
		key   string
		value any
	}
)

const marker = "here"

// replaceKey returns the value with the key of a mapping replaced by another, whose value is the
// marker. What the value lacks of the way there is made.
func replaceKey(value any, path []string, key, by string) any {
	if len(path) == 0 {
		own, _ := value.(mapping)
		kept := slices.DeleteFunc(slices.Clone(own), func(p pair) bool { return p.key == key })
		return append(kept, pair{by, marker})
	}
	if path[0] == "-" {
		var first any
		if own, ok := value.(list); ok {
			first = own[0]
		}
		return list{replaceKey(first, path[1:], key, by)}
	}
	own, _ := value.(mapping)
	own = slices.Clone(own)
	for i, p := range own {
		if p.key == path[0] || path[0] == "*" {
			own[i].value = replaceKey(p.value, path[1:], key, by)
			return own
		}
	}
	return append(own, pair{strings.Replace(path[0], "*", "name", 1), replaceKey(nil, path[1:], key, by)})
}

func render(value any) string { return strings.TrimPrefix(block(value, "\n"), "\n") + "\n" }

// block writes a value one key a line; margin is the line break and indentation before each.
func block(value any, margin string) string {
	var out strings.Builder
	switch value := value.(type) {
	case string:
		return " " + value
	case list:
		for _, item := range value {
			out.WriteString(margin + "-" + strings.Replace(block(item, margin+"  "), margin+"  ", " ", 1))
		}
	case mapping:
		for _, p := range value {
			out.WriteString(margin + p.key + ":" + block(p.value, margin+"  "))
		}
	}
	return out.String()
}

// slips returns every word that one insertion, removal, replacement, change of case or swap of
// neighbours makes of word.
func slips(word string) []string {
	seen := map[string]bool{word: true, "": true}
	var all []string
	add := func(slip string) {
		if !seen[slip] {
			seen[slip] = true
			all = append(all, slip)
		}
	}
	add(strings.ToUpper(word))
	for i := range len(word) + 1 {
		for _, c := range "abcdefghijklmnopqrstuvwxyz_-" {
			add(word[:i] + string(c) + word[i:])
			if i < len(word) {
				add(word[:i] + string(c) + word[i+1:])
			}
		}
		if i < len(word) {
			add(word[:i] + word[i+1:])
			add(word[:i] + strings.ToUpper(word[i:i+1]) + word[i+1:])
		}
		if i+1 < len(word) {
			add(word[:i] + word[i+1:i+2] + word[i:i+1] + word[i+2:])
		}
	}
	return all
}
