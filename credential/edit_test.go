package credential

import (
	"strings"
	"testing"

	"tendril/fault"
)

// parsed is the credential of a file with one, called c.
func parsed(t *testing.T, source, bind, attach string) Credential {
	t.Helper()
	return mustParse(t, one(source, bind, attach)).Credentials["c"]
}

func TestAdd(t *testing.T) {
	c := parsed(t, "{command: [pass, show, 'a: b', '5']}", "{host: '*.example.org', methods: [POST], paths: [/v1/*]}", `{header: Authorization, template: "Bearer {secret}"}`)
	added := "  ann:\n" +
		`    source: {command: ["pass", "show", "a: b", "5"]}` + "\n" +
		`    bind: {host: "*.example.org", methods: [POST], paths: ["/v1/*"]}` + "\n" +
		`    attach: {header: Authorization, template: "Bearer {secret}"}` + "\n"
	for _, test := range []struct{ name, text, want string }{
		{"to nothing", "", "version: 1\ncredentials:\n" + added},
		{"to an empty file", "version: 1\ncredentials: {} # none\n", "version: 1\ncredentials: # none\n" + added},
		{"to others", whole, whole + added},
	} {
		got, err := Add(FileName, []byte(test.text), "ann", c)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %v\ngot\n%s\nwant\n%s", test.name, err, got, test.want)
		}
	}
}

func TestAddRefuses(t *testing.T) {
	good := parsed(t, goodSource, goodBind, goodAttach)
	for _, test := range []struct {
		name       string
		text       string
		credential Name
		change     func(*Credential)
		want       string
	}{
		{"a name twice", whole, "forge", nil, "the credential forge exists already, in credentials.yaml:9"},
		{"no name", "", "", nil, `"" is not the name of a credential`},
		{"another form of name", "", "Model_API", nil, `"Model_API" is not the name of a credential`},
		{"no source", "", "c", func(c *Credential) { c.Source = Source{} }, "source: exactly one"},
		{"no host", "", "c", func(c *Credential) { c.Bind = Bind{} }, "bind: the binding has no host"},
		{"no place", "", "c", func(c *Credential) { c.Attach = Attach{} }, "attach: exactly one"},
		{"no program", "", "c", func(c *Credential) { c.Source = Source{Command: Command{}} }, "source: the command names no program"},
		{"half an age", "", "c", func(c *Credential) { c.Source = Source{Age: Age{File: "/a"}} }, "source: age needs both"},
		{"a variable that is none", "", "c", func(c *Credential) { c.Source = Source{Env: "h0ney-s3cret"} }, "credentials.yaml:4: env: this is not the name"},
		{"a broken file", "version: 1\ncredential: {}\n", "c", nil, `credentials.yaml:2: unknown key "credential"`},
		{"a file in brackets", "{version: 1, credentials: {}}\n", "c", nil, "not written in a way that this program edits"},
	} {
		c := good
		if test.change != nil {
			test.change(&c)
		}
		got, err := Add(FileName, []byte(test.text), test.credential, c)
		if !fault.Is(err, fault.Invalid) || got != nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "h0ney") {
			t.Errorf("%s: %v\n%s", test.name, err, got)
		}
	}
}

func TestRemove(t *testing.T) {
	got, err := Remove(FileName, []byte(whole), "forge")
	before, after, _ := strings.Cut(whole, "  forge:\n")
	_, after, _ = strings.Cut(after, "attach: {basic: ci}\n")
	if want := before + after; err != nil || string(got) != want {
		t.Errorf("%v\ngot\n%s\nwant\n%s", err, got, want)
	}
	for _, name := range mustParse(t, whole).Names() {
		text, err := Remove(FileName, []byte(whole), name)
		if err != nil || len(mustParse(t, string(text)).Credentials) != 3 || strings.Contains(strings.Join(mustParse(t, string(text)).Names(), " "), name) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	text := []byte(whole)
	for _, name := range []string{"search", "model-api", "other", "forge"} {
		if text, err = Remove(FileName, text, name); err != nil {
			t.Fatal(err)
		}
	}
	if len(mustParse(t, string(text)).Credentials) != 0 || !strings.Contains(string(text), "# what the Stem may say for a Sprout\n") {
		t.Errorf("%s", text)
	}
	for _, text := range []string{"", whole} {
		if got, err := Remove(FileName, []byte(text), "nobody"); !fault.Is(err, fault.NotFound) || got != nil {
			t.Errorf("%v\n%s", err, got)
		}
	}
}

// A parser of YAML would see lines where nobody else does. What an edit by lines would
// then take is another credential than the one that was meant.
func TestRemoveTakesNoOther(t *testing.T) {
	text := "version: 1 # \u2028\ncredentials:\n"
	for _, name := range []string{"a", "b", "c"} {
		text += "  " + name + ": {source: {env: A}, bind: {host: a.example}, attach: {query: k}}\n"
	}
	got, err := Remove(FileName, []byte(text), "b")
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "a line break that editors do not show") || got != nil {
		t.Errorf("%v\n%s", err, got)
	}
}
