package destination_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"tendril/destination"
	"tendril/fault"
	"tendril/strictyaml"
)

// file is a control plane file with rules, as the grants file has them.
type file struct {
	Version int                `yaml:"version"`
	Egress  []destination.Rule `yaml:"egress"`
}

const rules = `version: 1
egress:
  - host: api.example.com
  - host: "*.example.org"
    methods: [GET, HEAD, POST]
    paths: [/v2/*, /about]
  - {host: vpn.example.com, methods: any, port: 8443}
  - {host: "[2001:db8::1]", scheme: http, port: 8080}
  - {host: xn--bcher-kva.example, methods: [any]}
`

func TestRulesInAFile(t *testing.T) {
	decoded, err := strictyaml.Decode[file]("grants.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(decoded.Egress)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"host":"api.example.com"},` +
		`{"host":"*.example.org","methods":["GET","HEAD","POST"],"paths":["/v2/*","/about"]},` +
		`{"host":"vpn.example.com","port":8443,"methods":["any"]},` +
		`{"host":"[2001:db8::1]","scheme":"http","port":8080},` +
		`{"host":"xn--bcher-kva.example","methods":["any"]}]`
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
	// What an edit writes is read back as the same rules.
	text := []byte("version: 1\negress: []\n")
	for i, rule := range decoded.Egress {
		if text, err = strictyaml.AddItem("grants.yaml", text, "egress", rule); err != nil {
			t.Fatalf("rule %d: %v", i, err)
		}
	}
	again, err := strictyaml.Decode[file]("grants.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	same, err := json.Marshal(again.Egress)
	if err != nil || string(same) != string(out) {
		t.Errorf("%s\nbecame %s, %v", text, same, err)
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	for _, test := range []struct{ rule, says string }{
		{`{}`, "the rule has no host"},
		{`{methods: any}`, "the rule has no host"},
		{`{host: "*"}`, "holds a *"},
		{`{host: "*."}`, "whole domain"},
		{`{host: "*.com"}`, "whole domain"},
		{`{host: "*.com."}`, "ends in a dot"},
		{`{host: "**.example.org"}`, "holds a *"},
		{`{host: "a.*.example.org"}`, "holds a *"},
		{`{host: "*example.org"}`, "holds a *"},
		{`{host: "*.*.example.org"}`, "holds a *"},
		{`{host: .example.org}`, "empty label"},
		{`{host: "*.192.0.2.1"}`, "nothing is below one"},
		{`{host: "*.[2001:db8::1]"}`, "whole domain"},
		{`{host: "2001:db8::1"}`, "holds a colon"},
		{`{host: 127.1}`, "ends in a number"},
		{`{host: "https://example.com"}`, "holds a colon"},
		{`{host: example.com/x}`, "not letters, digits or hyphens"},
		{`{host: "example.com:8443"}`, "holds a colon"},
		{`{host: bücher.example}`, "may look like others"},
		{`{host: "*.bücher.example"}`, "may look like others"},
		{`{host: [example.com]}`, "not a single value"},
		{"{host: " + strings.Repeat("a", destination.Longest) + "a}", "longer than"},
		{`{host: example.com, scheme: HTTPS}`, "not a scheme"},
		{`{host: example.com, scheme: ftp}`, "not a scheme"},
		{`{host: example.com, port: 0}`, "the port is not a number"},
		{`{host: example.com, port: 0443}`, "the port is not a number"},
		{`{host: example.com, port: 65536}`, "the port is not a number"},
		{`{host: example.com, port: 0x1bb}`, "the port is not a number"},
		{`{host: example.com, port: https}`, "the port is not a number"},
		{`{host: example.com, port: ""}`, "the port is not a number"},
		{`{host: example.com, methods: GET}`, "not a list of methods"},
		{`{host: example.com, methods: Any}`, "not a list of methods"},
		{`{host: example.com, methods: "*"}`, "not a list of methods"},
		{`{host: example.com, methods: []}`, "the list of methods is empty"},
		{`{host: example.com, methods: }`, "no value"},
		{`{host: example.com, methods: [get]}`, "not a method"},
		{`{host: example.com, methods: [G ET]}`, "not a method"},
		{`{host: example.com, methods: [""]}`, "not a method"},
		{`{host: example.com, methods: [` + strings.Repeat("A", 33) + `]}`, "not a method"},
		{`{host: example.com, methods: [CONNECT]}`, "CONNECT is no method"},
		{`{host: example.com, methods: [GET, GET]}`, "GET comes twice"},
		{`{host: example.com, methods: [GET, any]}`, "stands beside"},
		{`{host: example.com, methods: any, paths: [/*]}`, "has paths"},
		{`{host: example.com, methods: any, scheme: http}`, "is for plain text"},
		{`{host: example.com, paths: []}`, "the list of paths is empty"},
		{`{host: example.com, paths: /v2/*}`, "not a list"},
		{`{host: example.com, paths: [/a, /a]}`, "/a comes twice"},
		{`{host: example.com, paths: [v2/*]}`, "begin with a slash"},
		{`{host: example.com, paths: ["*"]}`, "begin with a slash"},
		{`{host: example.com, paths: [""]}`, "begin with a slash"},
		{`{host: example.com, paths: ["/v*/x"]}`, "elsewhere than at its end"},
		{`{host: example.com, paths: ["/v2/**"]}`, "elsewhere than at its end"},
		{`{host: example.com, paths: ["/a?b"]}`, "a query or a fragment"},
		{`{host: example.com, paths: ["/a#b"]}`, "a query or a fragment"},
		{`{host: example.com, paths: ["/a/../b"]}`, "not in its normal form"},
		{`{host: example.com, paths: ["/%61"]}`, "not in its normal form"},
		{`{host: example.com, paths: ["/a b"]}`, "not in its normal form"},
		{`{host: example.com, paths: ["/a/..*"]}`, "not in its normal form"},
		{`{host: example.com, paths: ["/a/%2"]}`, "escape"},
		{`{host: example.com, paths: ["/a//b"]}`, "may be read as another"},
		{`{host: example.com, paths: ["/..%2Fa"]}`, "may be read as another"},
		{`{host: example.com, paths: ["/%252E%252E/a"]}`, "may be read as another"},
		{`{host: example.com, paths: ["/..;/a"]}`, "may be read as another"},
		{"{host: example.com, paths: [/" + strings.Repeat("a", destination.Longest) + "]}", "longer than"},
		{`{host: example.com, ports: [443]}`, `unknown key "ports" (did you mean "port"?)`},
	} {
		_, err := strictyaml.Decode[file]("grants.yaml", []byte("version: 1\negress:\n  - "+test.rule+"\n"))
		if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), "grants.yaml:3: ") || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%.80s: %v; want %q", test.rule, err, test.says)
		}
	}
}
