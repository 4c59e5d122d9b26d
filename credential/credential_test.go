package credential

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tendril/destination"
	"tendril/fault"
)

const whole = `# what the Stem may say for a Sprout
version: 1
credentials:
  model-api: # rotated in May
    source: {env: MODEL_API_KEY}
    bind: {host: api.example.com, methods: [POST], paths: [/v1/*]}
    attach: {header: x-api-key}
  forge:
    source: {command: [pass, show, forge]}
    bind:
      host: "*.forge.example.org"
      port: 8443
    attach: {basic: ci}

  # inside the house
  search:
    source: {age: {file: /etc/keys/search.age, identity: /etc/keys/identity}}
    bind: {scheme: http, host: 10.1.2.3}
    attach: {query: key}
  other:
    source: {file: /etc/keys/other}
    bind: {host: api.example.com, methods: [GET, POST]}
    attach: {header: Authorization, template: "Bearer {secret}"}
`

func mustParse(t testing.TB, text string) File {
	t.Helper()
	f, err := Parse(FileName, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParse(t *testing.T) {
	f := mustParse(t, whole)
	var said []string
	for _, name := range f.Names() {
		c, err := f.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, fmt.Sprintf("%s %s: %s; %s; %s", c.Where(), c.Name, c.Source, c.Bind, c.Attach))
	}
	want := []string{
		"credentials.yaml:9 forge: command pass; GET, HEAD https://*.forge.example.org:8443/*; the password of ci",
		"credentials.yaml:5 model-api: env MODEL_API_KEY; POST https://api.example.com/v1/*; the header x-api-key",
		"credentials.yaml:21 other: file /etc/keys/other; GET, POST https://api.example.com/*; the header Authorization",
		"credentials.yaml:17 search: age /etc/keys/search.age; GET, HEAD http://10.1.2.3/*; the query parameter key",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Error(diff)
	}
	if got := f.Credentials["other"].Attach.Template.Value("x {secret} y"); got != "Bearer x {secret} y" {
		t.Error(got)
	}
}

// one is a file with one credential, of which a part is another.
func one(source, bind, attach string) string {
	return fmt.Sprintf("version: 1\ncredentials:\n  c:\n    source: %s\n    bind: %s\n    attach: %s\n", source, bind, attach)
}

const (
	goodSource = "{env: KEY}"
	goodBind   = "{host: api.example.com}"
	goodAttach = "{header: Authorization}"
)

// TestParseRefuses: h0ney is what nobody may see again.
func TestParseRefuses(t *testing.T) {
	source := func(s string) string { return one(s, goodBind, goodAttach) }
	bind := func(s string) string { return one(goodSource, s, goodAttach) }
	attach := func(s string) string { return one(goodSource, goodBind, s) }
	if _, err := Parse(FileName, []byte(source(goodSource))); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"version: 1\ncredentials: {c: h0ney-s3cret}\n":                                 `:2: the value of "c" is not keys and values`,
		"version: 1\ncredentials: {Model_API: {}}\n":                                   `:2: credentials: "Model_API" is not the name of a credential`,
		"version: 1\ncredentials: {c: {}}\n":                                           `:2: c: source: exactly one of env, file, command and age is needed`,
		"version: 1\ncredentials:\n  c: {source: {env: A}}\n":                          `:3: c: bind: the binding has no host`,
		"version: 1\ncredentials:\n  c: {source: {env: A}, bind: {host: a.example}}\n": `:3: c: attach: exactly one of header, basic and query is needed`,
		"version: 1\ncredentials:\n  c: {value: h0ney}\n":                              ":3: value: a secret is never written in this file",
		"version: 1\ncredentials:\n  c: {token: {a: h0ney}}\n":                         ":3: token: a secret is never written in this file",

		source("{}"):                                                  ":4: source: exactly one of env, file, command and age is needed",
		source("h0ney-s3cret"):                                        `:4: the value of "source" is not keys and values`,
		source("[h0ney]"):                                             `:4: the value of "source" is not keys and values`,
		source("{value: h0ney}"):                                      ":4: value: a secret is never written in this file",
		source("{Secret: h0ney}"):                                     ":4: Secret: a secret is never written in this file",
		source("{password: [h0ney]}"):                                 ":4: password: a secret is never written in this file",
		source("{env: A, api_key: h0ney}"):                            ":4: api_key: a secret is never written in this file",
		source("{age: {key: h0ney}}"):                                 ":4: key: a secret is never written in this file",
		source("{evn: A}"):                                            `:4: unknown key "evn" (did you mean "env"?)`,
		source("{env: A, file: /b}"):                                  ":4: source: exactly one",
		source("{env: A, command: [b]}"):                              ":4: source: exactly one",
		source("{file: /a, age: {file: /b, identity: /c}}"):           ":4: source: exactly one",
		source("{env: h0ney-s3cret}"):                                 ":4: env: this is not the name of an environment variable",
		source("{env: 1h0ney}"):                                       ":4: env: this is not the name of an environment variable",
		source("{env: ''}"):                                           ":4: env: this is not the name of an environment variable",
		source("{env: $A}"):                                           ":4: env: this is not the name of an environment variable",
		source("{file: h0ney}"):                                       ":4: file: this is not an absolute, clean path of a file",
		source("{file: ~/h0ney}"):                                     ":4: file: this is not an absolute, clean path of a file",
		source("{file: /h0ney/../x}"):                                 ":4: file: this is not an absolute, clean path of a file",
		source("{file: /}"):                                           ":4: file: this is not an absolute, clean path of a file",
		source(`{file: "/h0ney\n"}`):                                  ":4: file: this is not an absolute, clean path of a file",
		source("{command: h0ney show}"):                               `:4: the value of "command" is not a list`,
		source("{command: []}"):                                       ":4: command: the command names no program",
		source("{command: ['', h0ney]}"):                              ":4: command: the command names no program",
		source("{command: [bin/h0ney]}"):                              ":4: command: the program is named by a relative path",
		source("{command: [echo h0ney]}"):                             ":4: command: the program's name has a space in it",
		source(`{command: [a, "h0ney\0"]}`):                           ":4: command: the command holds a NUL",
		source("{command: [a, [h0ney]]}"):                             `:4: the value of "command" is not a single value`,
		source("{command: [a" + strings.Repeat(", h0ney", 64) + "]}"): ":4: command: the command has more than 64 words",
		source("{age: {file: /a}}"):                                   ":4: age: age needs both a file and an identity",
		source("{age: /a}"):                                           `:4: the value of "age" is not keys and values`,
		source("{age: {file: /a, identity: AGE-SECRET-KEY-h0ney}}"):   ":4: identity: this is not an absolute, clean path of a file",

		bind("{}"):                                        ":5: bind: the binding has no host",
		bind("{host: '*'}"):                               ":5: host: ",
		bind("{host: '*.com'}"):                           ":5: host: ",
		bind("{host: 'https://a.example'}"):               ":5: host: ",
		bind("{host: a.example, methods: any}"):           ":5: bind: a credential cannot be bound to `methods: any`",
		bind("{host: a.example, methods: []}"):            ":5: bind: the list of methods is empty",
		bind("{host: a.example, methods: [get]}"):         ":5: methods: ",
		bind("{host: a.example, paths: []}"):              ":5: bind: the list of paths is empty",
		bind("{host: a.example, paths: [v1]}"):            ":5: paths: ",
		bind("{host: a.example, paths: ['/*/a']}"):        ":5: paths: ",
		bind("{host: a.example, scheme: ftp}"):            ":5: scheme: ",
		bind("{host: a.example, port: 0}"):                ":5: port: ",
		bind("{host: a.example, token: h0ney}"):           ":5: token: a secret is never written in this file",
		bind("{host: a.example, networks: [10.0.0.0/8]}"): `:5: unknown key "networks"`,
		bind("{hosts: a.example}"):                        `:5: unknown key "hosts" (did you mean "host"?)`,

		attach("{}"):                                            ":6: attach: exactly one of header, basic and query is needed",
		attach("{header: A, basic: b}"):                         ":6: attach: exactly one",
		attach("{query: A, header: b}"):                         ":6: attach: exactly one",
		attach("{template: '{secret}'}"):                        ":6: attach: exactly one",
		attach("{query: k, template: '{secret}'}"):              ":6: attach: a template without a header",
		attach("{header: 'Authorization: Bearer h0ney'}"):       ":6: header: this is not the name of a header",
		attach("{header: ''}"):                                  ":6: header: this is not the name of a header",
		attach("{header: Host}"):                                ":6: header: the header Host frames or routes",
		attach("{header: transfer-encoding}"):                   ":6: header: the header transfer-encoding frames or routes",
		attach("{header: A, template: 'Bearer h0ney'}"):         ":6: template: the template has no place for the secret",
		attach("{header: A, template: '{secret}{secret}'}"):     ":6: template: the template has braces beside",
		attach("{header: A, template: '{secret} {h0ney}'}"):     ":6: template: the template has braces beside",
		attach(`{header: A, template: "h0ney\r\nB: {secret}"}`): ":6: template: the template holds what no header carries",
		attach("{header: A, template: ' {secret}'}"):            ":6: template: the template holds what no header carries",
		attach("{header: A, template: 'ö{secret}'}"):            ":6: template: the template holds what no header carries",
		attach("{basic: 'ann:h0ney'}"):                          ":6: basic: this is not the user of basic authentication",
		attach("{basic: ''}"):                                   ":6: basic: this is not the user of basic authentication",
		attach("{query: 'key=h0ney'}"):                          ":6: query: this is not the name of a query parameter",
		attach("{query: 'a b'}"):                                ":6: query: this is not the name of a query parameter",
		attach("{bearer: h0ney}"):                               ":6: bearer: a secret is never written in this file",
	} {
		f, err := Parse(FileName, []byte(text))
		if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), FileName+want) {
			t.Errorf("%s\ngot  %v\nwant %s%s", text, err, FileName, want)
			continue
		}
		if len(f.Credentials) > 0 {
			t.Errorf("part of it holds: %+v", f)
		}
		var refused *fault.Error
		errors.As(err, &refused)
		if strings.Contains(fmt.Sprintf("%+v", *refused), "h0ney") {
			t.Errorf("the refusal repeats what may be the secret: %+v", *refused)
		}
	}
}

// TestRefusedLiteralsSayWhere a secret belongs.
func TestRefusedLiteralsSayWhere(t *testing.T) {
	for _, key := range literalKeys {
		for _, place := range []string{one("{"+key+": x}", goodBind, goodAttach), one(goodSource, "{"+key+": x}", goodAttach), one(goodSource, goodBind, "{"+key+": x}")} {
			_, err := Parse(FileName, []byte(place))
			var refused *fault.Error
			if !errors.As(err, &refused) || !strings.Contains(refused.Detail, "a secret is never written in this file") || !strings.Contains(refused.Hint, "mode 0600") {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	f := mustParse(t, whole)
	_, err := f.Lookup("model-apu")
	var unknown *fault.Error
	if !errors.As(err, &unknown) || unknown.Kind != fault.NotFound || unknown.Hint != "did you mean model-api?" {
		t.Errorf("%+v", err)
	}
	if _, err := (File{}).Lookup("x"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

func url(t testing.TB, text string) destination.URL {
	t.Helper()
	u, err := destination.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestFor(t *testing.T) {
	f := mustParse(t, whole+`  again:
    source: {env: AGAIN}
    bind: {host: api.example.com, methods: [PUT, POST]}
    attach: {basic: ann}
  louder:
    source: {env: LOUDER}
    bind: {scheme: http, host: 10.1.2.3}
    attach: {query: KEY}
`)
	for _, test := range []struct {
		names       []string
		method, url string
		want        []Name
		err         fault.Kind
	}{
		{nil, "POST", "https://api.example.com/v1/a", nil, ""},
		{[]string{"model-api"}, "POST", "https://api.example.com/v1/a", []Name{"model-api"}, ""},
		{[]string{"model-api", "model-api"}, "POST", "https://api.example.com/v1/a", []Name{"model-api"}, ""},
		{[]string{"other", "model-api"}, "POST", "https://api.example.com/v1/a", []Name{"other", "model-api"}, ""},
		{[]string{"other", "model-api"}, "POST", "https://api.example.com/v2/a", []Name{"other"}, ""},
		{[]string{"model-api"}, "GET", "https://api.example.com/v1/a", nil, ""},
		{[]string{"model-api", "other"}, "GET", "http://api.example.com/v1/a", nil, ""},
		{[]string{"search"}, "GET", "http://10.1.2.3/a?b", []Name{"search"}, ""},
		{[]string{"other", "again"}, "POST", "https://api.example.com/", nil, fault.Denied},
		{[]string{"other", "again"}, "GET", "https://api.example.com/", []Name{"other"}, ""},
		{[]string{"other", "nobody"}, "GET", "https://api.example.com/", nil, fault.NotFound},
		{[]string{"search", "louder"}, "GET", "http://10.1.2.3/a", nil, fault.Denied},
	} {
		bound, err := f.For(test.names, url(t, test.url), test.method)
		var got []Name
		for _, c := range bound {
			got = append(got, c.Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" || fault.KindOf(err) != test.err {
			t.Errorf("%q, %s %s: %v %s", test.names, test.method, test.url, err, diff)
		}
	}
}

// Bindings whose parts are few, so that they often overlap.
var (
	bindings = rapid.Custom(func(t *rapid.T) Bind {
		var b Bind
		host := rapid.SampledFrom([]string{"example.com", "a.example.com", "b.a.example.com", "*.example.com", "*.a.example.com"}).Draw(t, "host")
		if err := b.Host.UnmarshalText([]byte(host)); err != nil {
			t.Fatal(err)
		}
		b.Scheme = rapid.SampledFrom([]destination.Scheme{"", "https", "http"}).Draw(t, "scheme")
		b.Port = rapid.SampledFrom([]destination.Port{0, 80, 443, 8443}).Draw(t, "port")
		if rapid.Bool().Draw(t, "methods") {
			b.Methods = rapid.SliceOfNDistinct(rapid.SampledFrom([]destination.Method{"GET", "HEAD", "POST"}), 1, 3, rapid.ID).Draw(t, "which methods")
		}
		if rapid.Bool().Draw(t, "paths") {
			b.Paths = rapid.SliceOfNDistinct(rapid.SampledFrom([]destination.PathPattern{"/*", "/v1/*", "/v1/a", "/v1/a*", "/v2/*"}), 1, 2, rapid.ID).Draw(t, "which paths")
		}
		return b
	})
	requests = rapid.Custom(func(t *rapid.T) destination.URL {
		u, err := destination.Parse(rapid.SampledFrom([]string{"https", "http"}).Draw(t, "scheme") + "://" +
			rapid.SampledFrom([]string{"example.com", "a.example.com", "b.a.example.com", "c.b.a.example.com", "xexample.com"}).Draw(t, "host") +
			rapid.SampledFrom([]string{"", ":80", ":443", ":8443"}).Draw(t, "port") + rapid.SampledFrom([]string{"/", "/v1/a", "/v1/ab?c", "/v2/", "/v1", "/v1/%2e%2e/a"}).Draw(t, "path"))
		if err != nil {
			t.Fatal(err)
		}
		return u
	})
	methods = rapid.SampledFrom([]string{"GET", "HEAD", "POST", "PUT", "get", "CONNECT", "any", ""})
)

// Properties: a narrower binding permits nothing more; one that takes something away from
// a binding is narrower; plain text is never without the word for it.
func TestNarrowing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wide, other := bindings.Draw(t, "wide"), bindings.Draw(t, "other")
		u, method := requests.Draw(t, "url"), methods.Draw(t, "method")
		if other.Within(wide) && other.Covers(u, method) && !wide.Covers(u, method) {
			t.Fatalf("%s is within %s, and covers %s %s alone", other, wide, method, u)
		}
		narrow := wide
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			narrow.Methods = destination.Methods{"GET"}
			if len(wide.Methods) > 0 {
				narrow.Methods = wide.Methods[:1]
			}
		case 1:
			narrow.Paths = []destination.PathPattern{"/v1/a"}
			if len(wide.Paths) > 0 {
				narrow.Paths = wide.Paths[:1]
			}
		case 2:
			if err := narrow.Host.UnmarshalText([]byte(strings.Replace(wide.Host.String(), "*", "z", 1))); err != nil {
				t.Fatal(err)
			}
		}
		if !narrow.Within(wide) {
			t.Fatalf("%s is not within %s", narrow, wide)
		}
		if narrow.Covers(u, method) && !wide.Covers(u, method) {
			t.Fatalf("%s covers %s %s, and %s does not", narrow, method, u, wide)
		}
		if wide.Covers(u, method) && u.Scheme() == destination.HTTP && wide.Scheme != destination.HTTP {
			t.Fatalf("%s covers plain text", wide)
		}
	})
}

func TestZeroBindingCoversNothing(t *testing.T) {
	u := url(t, "https://example.com/")
	tunnel := Bind{Methods: destination.Methods{destination.Any}}
	if err := tunnel.Host.UnmarshalText([]byte("example.com")); err != nil {
		t.Fatal(err)
	}
	for _, b := range []Bind{{}, tunnel} {
		if b.Covers(u, "GET") || b.Within(b) {
			t.Errorf("%+v covers something", b)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	for _, seed := range []string{
		"", "version: 1", "version: 1\ncredentials: {}", one(goodSource, goodBind, goodAttach), one("{value: x}", goodBind, goodAttach),
		one("{command: [a, b]}", "{host: 127.0.0.1, port: 1}", "{query: a}"), one("&a {env: A}", "*a", "{<<: *a}"), "version: 1\ncredentials: {c: {source: {age: {file: /a, identity: /b}}}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(FileName, data)
		if err != nil {
			if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), FileName+":") {
				t.Errorf("the refusal is not one of the file: %v", err)
			}
			return
		}
		for name, c := range file.Credentials {
			if err := errors.Join(c.Validate(), new(Name).UnmarshalText([]byte(name))); err != nil {
				t.Error(err)
			}
			text, err := Add(FileName, nil, name, c)
			if err != nil {
				t.Errorf("%s cannot be written: %v", name, err)
				continue
			}
			again := mustParse(t, string(text)).Credentials[name]
			again.Line, c.Line = 0, 0
			if fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", c) {
				t.Errorf("%+v became %+v\n%s", c, again, text)
			}
		}
	})
}
