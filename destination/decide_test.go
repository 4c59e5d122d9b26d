package destination

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// written is a rule as a person writes it.
type written struct {
	host, scheme string
	port         Port
	methods      []string // nil: not written
	paths        []string // nil: not written
}

func (w written) rule(t testing.TB) Rule {
	t.Helper()
	r := Rule{Host: pattern(t, w.host), Scheme: Scheme(w.scheme), Port: w.port}
	for _, text := range w.methods {
		var m Method
		if err := m.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		r.Methods = append(r.Methods, m)
	}
	for _, text := range w.paths {
		var p PathPattern
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		r.Paths = append(r.Paths, p)
	}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDecide(t *testing.T) {
	rules := []Rule{
		written{host: "api.example.com"}.rule(t),
		written{host: "*.example.org", methods: []string{"GET", "POST"}, paths: []string{"/v2/*", "/about"}}.rule(t),
		written{host: "vpn.example.com", methods: []string{"any"}}.rule(t),
		written{host: "plain.example.com", scheme: "http"}.rule(t),
		written{host: "api.example.com", port: 8443, methods: []string{"PUT"}}.rule(t),
		written{host: "192.0.2.1"}.rule(t),
	}
	for _, test := range []struct {
		method, url string
		rule        int
		says        string
	}{
		{"GET", "https://api.example.com/any?thing", 0, "rule 1 (api.example.com) permits it"},
		{"HEAD", "https://API.example.com:443/", 0, ""},
		{"POST", "https://api.example.com/", -1, "the method is POST, not GET or HEAD"},
		{"get", "https://api.example.com/", -1, `"get" is not a method in upper case`},
		{"", "https://api.example.com/", -1, `"" is not a method in upper case`},
		{"GET\r\nX: y", "https://api.example.com/", -1, "is not a method in upper case"},
		{"any", "https://vpn.example.com/", -1, `"any" is not a method in upper case`},
		{"CONNECT", "https://vpn.example.com/", -1, "CONNECT is no request"},
		{"PUT", "https://api.example.com:8443/", 4, ""},
		{"GET", "https://api.example.com:8443/", -1, "rule 5 (api.example.com) does not permit it: the method is GET, not PUT"},
		{"GET", "http://api.example.com/", -1, "the scheme is http, not https; the port is 80, not 443"},
		{"GET", "http://plain.example.com/", 3, ""},
		{"GET", "https://plain.example.com/", -1, "the scheme is https, not http"},
		{"GET", "https://example.com/", -1, "no rule names the host example.com"},
		{"GET", "https://x.api.example.com/", -1, "no rule names the host"},
		{"GET", "https://192.0.2.1/", 5, ""},
		{"GET", "https://192.0.2.2/", -1, "no rule names the host"},
		{"GET", "https://a.example.org/v2/x", 1, ""},
		{"GET", "https://a.b.c.example.org/v2/", 1, ""},
		{"POST", "https://a.example.org/about", 1, ""},
		{"GET", "https://example.org/v2/x", -1, "no rule names the host"},
		{"GET", "https://badexample.org/v2/x", -1, "no rule names the host"},
		{"HEAD", "https://a.example.org/about", -1, "the method is HEAD, not GET or POST"},
		{"GET", "https://a.example.org/about/", -1, "the path is none of /v2/*, /about"},
		{"GET", "https://a.example.org/v2", -1, "the path is none of"},
		{"GET", "https://a.example.org/v2/../x", -1, "the path is none of"},
		{"GET", "https://a.example.org/x/../v2/x", 1, ""},
		{"GET", "https://a.example.org/v2/..%2fx", -1, "the path may be read as another one"},
		{"DELETE", "https://vpn.example.com/x", 2, ""},
	} {
		d := Decide(mustParse(t, test.url), test.method, rules)
		if d.Allowed != (test.rule >= 0) || d.Rule != test.rule || !strings.Contains(strings.Join(d.Reasons, "\n"), test.says) {
			t.Errorf("%s %s: %+v; want rule %d, %q", test.method, test.url, d, test.rule, test.says)
		}
	}
	// Every rule that names the host says everything that it misses.
	d := Decide(mustParse(t, "http://api.example.com:81/"), "DELETE", rules)
	if len(d.Reasons) != 2 || strings.Count(strings.Join(d.Reasons, ""), ";") != 4 {
		t.Errorf("%q", d.Reasons)
	}
}

func TestDecideAuthority(t *testing.T) {
	rules := []Rule{
		written{host: "api.example.com", paths: []string{"/v2/*"}}.rule(t),
		written{host: "vpn.example.com", methods: []string{"any"}, port: 22}.rule(t),
		written{host: "plain.example.com", scheme: "http"}.rule(t),
		written{host: "*.example.com"}.rule(t),
		written{host: "both.example.com", methods: []string{"any"}}.rule(t),
	}
	for _, test := range []struct {
		authority string
		rule      int
		inspect   bool
		says      string
	}{
		{"api.example.com:443", 0, true, "rule 1 (api.example.com) permits it"},
		{"vpn.example.com:22", 1, false, "rule 2 (vpn.example.com) permits it"},
		{"vpn.example.com:443", 3, true, ""},
		{"vpn.example.com:23", -1, false, "the port is 23, not 22"},
		{"plain.example.com:80", -1, false, "plain text needs no tunnel"},
		{"both.example.com:443", 4, false, ""},
		{"example.com:443", -1, false, "no rule names the host example.com"},
	} {
		a, err := ParseAuthority(test.authority)
		if err != nil {
			t.Fatal(err)
		}
		d := DecideAuthority(a, rules)
		if d.Allowed != (test.rule >= 0) || d.Rule != test.rule || d.Inspect != test.inspect || !strings.Contains(strings.Join(d.Reasons, "\n"), test.says) {
			t.Errorf("%s: %+v; want rule %d, inspect %t, %q", test.authority, d, test.rule, test.inspect, test.says)
		}
	}
}

// Nothing permits nothing: no rules, no rule, no destination.
func TestUnknownDenies(t *testing.T) {
	u := mustParse(t, "https://example.com/")
	everything := []Rule{written{host: "example.com", methods: []string{"any"}}.rule(t)}
	for what, d := range map[string]Decision{
		"no rules":                   Decide(u, "GET", nil),
		"an empty list":              Decide(u, "GET", []Rule{}),
		"a zero rule":                Decide(u, "GET", []Rule{{}}),
		"a zero URL":                 Decide(URL{}, "GET", everything),
		"a zero URL and rule":        Decide(URL{}, "GET", []Rule{{}}),
		"no rules for a tunnel":      DecideAuthority(u.Authority(), nil),
		"a zero rule for a tunnel":   DecideAuthority(u.Authority(), []Rule{{}}),
		"a zero authority":           DecideAuthority(Authority{}, everything),
		"an empty list of methods":   Decide(u, "GET", []Rule{{Host: everything[0].Host, Methods: Methods{}}}),
		"an empty list of paths":     Decide(u, "GET", []Rule{{Host: everything[0].Host, Paths: []PathPattern{}}}),
		"any beside another":         Decide(u, "PUT", []Rule{{Host: everything[0].Host, Methods: Methods{Any, "GET"}}}),
		"any with paths":             Decide(u, "GET", []Rule{{Host: everything[0].Host, Methods: Methods{Any}, Paths: []PathPattern{"/*"}}}),
		"a scheme that nobody knows": Decide(u, "GET", []Rule{{Host: everything[0].Host, Scheme: "gopher"}}),
	} {
		if d.Allowed || d.Inspect || d.Rule != -1 || len(d.Reasons) == 0 {
			t.Errorf("%s: %+v", what, d)
		}
	}
}

func TestCovers(t *testing.T) {
	host := func(text string) written { return written{host: text} }
	tunnel := written{host: "b.example", methods: []string{"any"}}
	paths := func(list ...string) written { return written{host: "b.example", paths: list} }
	for _, test := range []struct {
		one, another written
		covers       bool
	}{
		{host("b.example"), host("b.example"), true},
		{host("b.example"), host("a.b.example"), false},
		{host("*.b.example"), host("b.example"), false},
		{host("*.b.example"), host("a.b.example"), true},
		{host("*.b.example"), host("c.a.b.example"), true},
		{host("*.b.example"), host("ab.example"), false},
		{host("*.b.example"), host("*.b.example"), true},
		{host("*.b.example"), host("*.a.b.example"), true},
		{host("*.a.b.example"), host("*.b.example"), false},
		{host("a.b.example"), host("*.a.b.example"), false},
		{host("c.a.b.example"), host("*.a.b.example"), false},
		{tunnel, host("b.example"), true},
		{tunnel, paths("/a"), true},
		{host("b.example"), tunnel, false},
		{host("b.example"), written{host: "b.example", port: 443}, true},
		{host("b.example"), written{host: "b.example", port: 444}, false},
		{host("b.example"), written{host: "b.example", scheme: "https"}, true},
		{host("b.example"), written{host: "b.example", scheme: "http", port: 443}, false},
		{host("b.example"), written{host: "b.example", methods: []string{"HEAD"}}, true},
		{written{host: "b.example", methods: []string{"HEAD"}}, host("b.example"), false},
		{host("b.example"), paths("/*"), true},
		{paths("/*"), host("b.example"), false},
		{paths("/*"), paths("/a", "/b/*"), true},
		{paths("/a*"), paths("/a/*"), true},
		{paths("/a/*"), paths("/a*"), false},
		{paths("/a/*"), paths("/a"), false},
		{paths("/a"), paths("/a*"), false},
		{paths("/a", "/b*"), paths("/b", "/a"), true},
	} {
		if got := test.one.rule(t).Covers(test.another.rule(t)); got != test.covers {
			t.Errorf("%+v covers %+v: %t", test.one, test.another, got)
		}
	}
	if (Pattern{}).Matches(Host{}) || (Rule{}).Covers(Rule{}) {
		t.Error("nothing matches nothing")
	}
}

func TestWhatDeniesWithoutADestination(t *testing.T) {
	for _, d := range []Decision{Decide(URL{}, "GET", []Rule{{}}), DecideAuthority(Authority{}, []Rule{{}})} {
		if !slices.Equal(d.Reasons, []string{"there is no destination"}) {
			t.Errorf("%q", d.Reasons)
		}
	}
}

// Of a path that some server reads as another one, a rule with paths permits nothing.
func TestPathsThatClimb(t *testing.T) {
	limited := []Rule{written{host: "h.example.com", paths: []string{"/v2/*"}}.rule(t)}
	free := []Rule{written{host: "h.example.com"}.rule(t)}
	for path, climbs := range map[string]bool{
		"/v2/x": false, "/v2/a%2Fb": false, "/v2/a//b": false, "/v2/a;b": false, "/v2/a..b": false, "/v2/%C3%A9": false,
		"/v2/100%25": false, "/v2/a%5Cb": false, "/v2/.well-known": false, "/v2/%20": false,
		"/v2/..%2Fx": true, "/v2/%2e%2e%2fx": true, "/v2/%252e%252e/x": true, "/v2/%25252e%25252e/x": true,
		"/v2/..%5Cx": true, "/v2/..;/x": true, "/v2/..;a=b/x": true, "/v2/..%3B/x": true, "/v2/.;/x": true, "/v2/..%20/x": true,
		"/v2/...%2F": true, "/v2/%C0%AE%C0%AE/x": true, "/v2/%EF%BC%8E%EF%BC%8E/x": true, "/v2/%E2%80%A5/x": true,
		"/v2/%00": true, "/v2/%0d%0a": true, "/v2/%7F": true, "/v2/%FF": true, "/v2/a%2F..%2F..%2Fx": true,
		"/v2/" + "%" + strings.Repeat("25", 20) + "2e": true,
	} {
		u := mustParse(t, "https://h.example.com"+path)
		if d := Decide(u, "GET", limited); d.Allowed == climbs {
			t.Errorf("%s: %+v", path, d)
		}
		if d := Decide(u, "GET", free); !d.Allowed {
			t.Errorf("%s without paths: %+v", path, d)
		}
	}
}

// The universe of the properties: small, so that rules and requests meet often, and
// with a witness for everything that can differ.
var (
	someHosts    = []string{"b.example", "a.b.example", "c.a.b.example", "d.a.b.example", "z.z.b.example", "other.example", "192.0.2.1"}
	someSchemes  = []string{"https", "http"}
	somePorts    = []string{"", ":443", ":8443"}
	someMethods  = []string{"GET", "HEAD", "POST", "PUT"} // DELETE is in no rule
	somePaths    = []string{"/", "/a", "/a/", "/a/b", "/ab", "/a/b/c", "/zz", "/a/..%2Fzz", "/a/z"}
	somePatterns = []string{"b.example", "a.b.example", "*.b.example", "*.a.b.example", "c.a.b.example", "192.0.2.1"}
	someRanges   = []string{"/", "/a", "/a*", "/a/*", "/*", "/a/b", "/a/b*"}
)

func anyRule() *rapid.Generator[written] {
	return rapid.Custom(func(t *rapid.T) written {
		w := written{host: rapid.SampledFrom(somePatterns).Draw(t, "host"), port: rapid.SampledFrom([]Port{0, 0, 443, 8443}).Draw(t, "port")}
		switch rapid.SampledFrom([]string{"tunnel", "plain", "https", "https", "https"}).Draw(t, "kind") {
		case "tunnel":
			w.methods = []string{"any"}
			return w
		case "plain":
			w.scheme = "http"
		}
		subset := func(label string, all []string) []string {
			if rapid.Bool().Draw(t, "no "+label) {
				return nil
			}
			return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 3, rapid.ID).Draw(t, label)
		}
		w.methods, w.paths = subset("methods", someMethods), subset("paths", someRanges)
		return w
	})
}

type request struct {
	method string
	url    URL
}

// everyRequest is the universe.
func everyRequest(t testing.TB) []request {
	var all []request
	for _, host := range someHosts {
		for _, scheme := range someSchemes {
			for _, port := range somePorts {
				for _, path := range somePaths {
					u := mustParse(t, scheme+"://"+host+port+path)
					for _, method := range append(someMethods, "DELETE") {
						all = append(all, request{method, u})
					}
				}
			}
		}
	}
	return all
}

// permits is the meaning of a rule once more, over texts.
func (w written) permits(method, text string) bool {
	host := regexp.QuoteMeta(w.host)
	if name, ok := strings.CutPrefix(w.host, "*."); ok {
		host = `([a-z0-9-]+\.)+` + regexp.QuoteMeta(name)
	}
	scheme := "https"
	if w.scheme == "http" {
		scheme = "http"
	}
	port := ""
	if w.port == 8443 || (scheme == "http" && w.port == 443) {
		port = ":" + w.port.String()
	}
	paths := "/.*"
	if w.paths != nil {
		var each []string
		for _, p := range w.paths {
			each = append(each, strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, `.*`))
		}
		paths = "(" + strings.Join(each, "|") + ")"
		if strings.Contains(text, "..%2F") {
			return false
		}
	}
	methods := w.methods
	if methods == nil {
		methods = []string{"GET", "HEAD"}
	}
	return (methods[0] == "any" || slices.Contains(methods, method)) &&
		regexp.MustCompile(`^`+scheme+`://`+host+port+paths+`$`).MatchString(text)
}

func TestDecideIsWhatTheRulesSay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		list := rapid.SliceOfN(anyRule(), 0, 3).Draw(rt, "rules")
		var rules []Rule
		for _, w := range list {
			rules = append(rules, w.rule(t))
		}
		method := rapid.SampledFrom(append(someMethods, "DELETE")).Draw(rt, "method")
		u := mustParse(t, rapid.SampledFrom(someSchemes).Draw(rt, "scheme")+"://"+rapid.SampledFrom(someHosts).Draw(rt, "host")+
			rapid.SampledFrom(somePorts).Draw(rt, "port")+rapid.SampledFrom(somePaths).Draw(rt, "path"))
		want := slices.IndexFunc(list, func(w written) bool { return w.permits(method, u.String()) })
		if d := Decide(u, method, rules); d.Allowed != (want >= 0) || d.Rule != want {
			rt.Fatalf("%s %s: %+v, want rule %d", method, u, d, want)
		}
	})
}

// Taking anything out of a rule, or a rule out of a list, never permits more.
func TestNarrowingNeverPermitsMore(t *testing.T) {
	requests := everyRequest(t)
	rapid.Check(t, func(rt *rapid.T) {
		wide := anyRule().Draw(rt, "rule")
		narrow := wide
		switch what := rapid.IntRange(0, 4).Draw(rt, "what"); {
		case what == 0 && len(wide.methods) > 1:
			narrow.methods = wide.methods[1:]
		case what == 1 && len(wide.paths) > 1:
			narrow.paths = wide.paths[1:]
		case what == 2 && wide.paths == nil && !slices.Equal(wide.methods, []string{"any"}):
			narrow.paths = []string{rapid.SampledFrom(someRanges).Draw(rt, "path")}
		case what == 3 && slices.Equal(wide.methods, []string{"any"}):
			narrow.methods = []string{rapid.SampledFrom(someMethods).Draw(rt, "method")}
		case what == 4 && strings.HasPrefix(wide.host, "*."):
			narrow.host = "a" + wide.host[1:]
		default:
			narrow = written{}
		}
		rest := []Rule{anyRule().Draw(rt, "another").rule(t)}
		before, after := append([]Rule{wide.rule(t)}, rest...), rest
		if narrow.host != "" {
			after = append([]Rule{narrow.rule(t)}, rest...)
			if !before[0].Covers(after[0]) {
				rt.Fatalf("%+v does not cover %+v", wide, narrow)
			}
		}
		for _, r := range requests {
			if Decide(r.url, r.method, after).Allowed && !Decide(r.url, r.method, before).Allowed {
				rt.Fatalf("%s %s is permitted by less", r.method, r.url)
			}
		}
	})
}

// reach is what rules permit of an authority: 0 nothing, 1 what is inspected, 2 anything.
func reach(a Authority, rules ...Rule) int {
	switch d := DecideAuthority(a, rules); {
	case !d.Allowed:
		return 0
	case d.Inspect:
		return 1
	}
	return 2
}

// One rule covers another exactly if there is no request that the other alone permits.
func TestCoversAgreesWithDecide(t *testing.T) {
	requests := everyRequest(t)
	rapid.Check(t, func(rt *rapid.T) {
		one, another := anyRule().Draw(rt, "one").rule(t), anyRule().Draw(rt, "another").rule(t)
		less := ""
		for _, r := range requests {
			if Decide(r.url, r.method, []Rule{another}).Allowed && !Decide(r.url, r.method, []Rule{one}).Allowed {
				less = r.method + " " + r.url.String()
			}
			if reach(r.url.Authority(), another) > reach(r.url.Authority(), one) {
				less = "CONNECT " + r.url.Authority().String()
			}
		}
		if one.Covers(another) != (less == "") {
			rt.Fatalf("%+v covers %+v: %t, but %q", one, another, one.Covers(another), less)
		}
		if !one.Covers(one) {
			rt.Fatalf("%+v does not cover itself", one)
		}
	})
}

// The one form of any URL is what is judged and what is sent.
func TestParseOfStringIsIdentity(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.SampledFrom([]string{"https", "http", "HTTPS"}).Draw(rt, "scheme") + "://" +
			rapid.StringMatching(`([A-Za-z0-9]([a-z0-9-]{0,5}[a-z0-9])?\.){0,3}[a-zA-Z]{2,6}`).Draw(rt, "host") +
			rapid.StringMatching(`(:[1-9][0-9]{0,3})?`).Draw(rt, "port") +
			rapid.StringMatching(`(/(\.|\.\.|%2[eEfF]|%[0-9A-Fa-f]{2}|[a-zA-Z;=é"|]){0,4}){0,5}(\?([a-z?/é]|%[0-9A-Fa-f]{2}){0,5})?(#[a-z]{0,3})?`).Draw(rt, "path")
		u, err := Parse(text)
		if err != nil {
			rt.Fatalf("%q: %v", text, err)
		}
		sameAgain(rt, u)
	})
}
