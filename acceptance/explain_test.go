package acceptance_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tendril/capability"
	"tendril/run"
)

// What explain says is what decides: of the right classes, by the right rule, and with what
// would keep the request from succeeding.
func TestExplainSaysWhatDecides(t *testing.T) {
	g := newGarden(t)
	for _, name := range []string{"handbook", "other", "routed", "closed", "late"} {
		g.succeed("substrate", "add", name, "--path", g.repo)
	}
	token := filepath.Join(g.home, "ci.token")
	g.succeed("pollen", "issue", "ci", "--token-out", token)
	g.succeed("pollen", "issue", "gone", "--token-out", token+".gone")
	g.succeed("pollen", "revoke", "gone")
	secret := filepath.Join(g.home, "api.key")
	if err := os.WriteFile(secret, []byte(honeytoken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ran, asking := filepath.Join(g.home, "ran"), filepath.Join(g.home, "asking")
	if err := os.WriteFile(asking, []byte("#!/bin/sh\ntouch '"+ran+"'; echo "+honeytoken+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	g.succeed("credential", "add", "here", "--file", secret, "--host", "here.site.example", "--header", "Authorization")
	g.succeed("credential", "add", "missing", "--file", secret+".missing", "--host", "missing.site.example", "--header", "Authorization")
	g.succeed("credential", "add", "asking", "--command", asking, "--host", "asking.site.example", "--header", "Authorization")
	grants := `version: 1
grants:
  - pollen: botanist
    substrates: [handbook]
    classes: [stoma.pass, egress.fetch]
    egress: [{host: "*.site.example"}, {host: post.test, methods: [POST]}]
    credentials: [here, missing, asking]
  - pollen: ci
    substrates: [other]
    classes: [egress.fetch]
    egress: [{host: "*.site.example"}, {host: post.test, methods: [POST]}]
  - pollen: ci
    substrates: [handbook]
    classes: [run.get]
    egress: [{host: a.site.example}]
  - pollen: botanist
    substrates: [routed]
    classes: [sprout.grow]
    models: [{route: anthropic, models: [m-1]}]
  - pollen: botanist
    substrates: [closed]
    classes: [sprout.grow]
  - pollen: ci
    substrates: [late]
    classes: [run.get]
    egress: [{host: a.site.example}]
  - pollen: ci
    substrates: [late]
    classes: [sprout.grow]
    egress: [{host: b.site.example}]
  - pollen: gone
    substrates: [handbook]
    classes: [sprout.grow]
    egress: [{host: a.site.example}]
`
	if err := os.WriteFile(filepath.Join(g.home, ".config", "tendril", "grants.yaml"), []byte(grants), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args       []string
		classes    string // "" is no
		rule       string
		reason     string
		unreadable string
	}{
		"without sprout.grow":    {args: []string{"https://a.site.example/"}, classes: "stoma.pass egress.fetch", rule: "grants.yaml:3 rule 1 (*.site.example) permits it"},
		"a fetch alone":          {args: []string{"--pollen", "ci", "-s", "other", "https://a.site.example/"}, classes: "egress.fetch", rule: "grants.yaml:8 rule 1"},
		"a fetch cannot post":    {args: []string{"--pollen", "ci", "-s", "other", "--method", "POST", "https://post.test/"}, rule: "grants.yaml:8: it gives nothing that could ask", reason: "does not give sprout.grow, stoma.pass"},
		"no class that reaches":  {args: []string{"--pollen", "ci", "-s", "handbook", "https://a.site.example/"}, rule: "grants.yaml:12: it gives nothing that could ask"},
		"of two, which decides":  {args: []string{"--pollen", "ci", "-s", "late", "https://a.site.example/"}, rule: "grants.yaml:27 no rule names the host"},
		"a post by a run":        {args: []string{"--method", "post", "https://post.test/"}, classes: "stoma.pass", rule: "grants.yaml:3 rule 2"},
		"another host":           {args: []string{"-s", "handbook", "https://else.test/"}, rule: "grants.yaml:3 no rule names the host else.test"},
		"another method":         {args: []string{"-s", "handbook", "--method", "PUT", "https://a.site.example/"}, rule: "grants.yaml:3 rule 1 (*.site.example) does not permit it: the method is PUT"},
		"an empty list":          {args: []string{"-s", "closed", "https://a.site.example/"}, rule: "grants.yaml:20: an empty list of destinations denies all"},
		"no grant there":         {args: []string{"--pollen", "ci", "-s", "closed", "https://a.site.example/"}, rule: "what no single grant covers is denied", reason: "ci has no grant on closed"},
		"a model's provider":     {args: []string{"-s", "routed", "https://api.anthropic.com/v1/messages"}, rule: "grants.yaml:16: only the model route anthropic leads there", reason: "only over the model route anthropic"},
		"beside the provider":    {args: []string{"-s", "routed", "https://api.openai.com/v1/"}, rule: "grants.yaml:16: an empty list"},
		"a revoked Pollen":       {args: []string{"--pollen", "gone", "https://a.site.example/"}, rule: "only a Pollen that is good may ask", reason: "was revoked"},
		"a secret that is there": {args: []string{"https://here.site.example/"}, classes: "stoma.pass egress.fetch", rule: "grants.yaml:3 rule 1"},
		"a secret that is not":   {args: []string{"https://missing.site.example/"}, classes: "stoma.pass egress.fetch", rule: "grants.yaml:3 rule 1", unreadable: "the credential missing cannot be read"},
		"a secret of a command":  {args: []string{"https://asking.site.example/"}, classes: "stoma.pass egress.fetch", rule: "grants.yaml:3 rule 1"},
	} {
		t.Run(name, func(t *testing.T) {
			said := g.tendril(append([]string{"--json", "egress", "explain"}, c.args...)...)
			var x capability.EgressExplanation
			if err := json.Unmarshal([]byte(said.stdout), &x); err != nil {
				t.Fatalf("%+v: %v", said, err)
			}
			if got := strings.Join(x.Classes, " "); got != c.classes || x.Permitted != (c.classes != "") || (said.status == 0) != x.Permitted {
				t.Errorf("permitted %t for %q, status %d; want %q", x.Permitted, got, said.status, c.classes)
			}
			if !strings.HasPrefix(x.Rule, c.rule) || !strings.Contains(strings.Join(x.Reasons, "\n"), c.reason) {
				t.Errorf("rule %q, reasons %q", x.Rule, x.Reasons)
			}
			if got := strings.Join(x.Unreadable, "\n"); !strings.Contains(got, c.unreadable) || (c.unreadable == "") != (got == "") {
				t.Errorf("unreadable: %q", got)
			}
			if strings.Contains(said.stdout, honeytoken) {
				t.Error("the secret is in the answer")
			}
		})
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the question ran the command of a credential")
	}
	if said := g.succeed("egress", "explain", "https://missing.site.example/"); !strings.Contains(said.stdout, "by: stoma.pass, egress.fetch\n") || !strings.Contains(said.stdout, "which would fail now: the credential missing") {
		t.Errorf("in words: %s", said.stdout)
	}
	for _, args := range [][]string{{"--pollen", "nosuch"}, {"--substrate", "nosuch"}} {
		said := g.tendril(append([]string{"--json", "egress", "explain", "https://a.site.example/"}, args...)...)
		if said.status != run.ExitRefused || !strings.Contains(said.stdout, `"kind":"not-found"`) {
			t.Errorf("%v: %+v", args, said)
		}
	}
}

// The record of a run says why something was refused, and not only that it was.
func TestARecordSaysWhyItRefused(t *testing.T) {
	needs(t, "curl")
	g := newGarden(t)
	o := g.goOutside(t)
	g.permit(o, "")
	base := "https://" + net.JoinHostPort(o.host, o.port)
	long := "https://" + strings.Repeat(strings.Repeat("a", 60)+".", 3) + "example"
	said := g.succeed("--json", "grow", "--substrate", "handbook", "--", "sh", "-c", fmt.Sprintf(`
curl -sS -m 20 -X POST -d x %[1]s/ok/a; curl -sS -m 20 %[1]s/secret; curl -sS -m 20 %[1]s/ok/a; curl -sS -m 20 %[2]s/ ; true`, base, long))
	var grown run.Run
	if err := json.Unmarshal([]byte(said.stdout), &grown); err != nil {
		t.Fatal(err)
	}
	record := g.get(grown.ID) // as it is stored
	why := map[string]string{}
	for _, r := range record.Egress {
		if r.Refusal != nil {
			why[r.Destination] = *r.Refusal
		}
		if (r.Refused > 0) != (r.Refusal != nil) {
			t.Errorf("%+v", r)
		}
	}
	if got := why[base]; !strings.HasPrefix(got, "grants.yaml:3") || !strings.Contains(got, "the path is none of /ok/*") || strings.Contains(got, "POST") {
		t.Errorf("the latest refusal is %q", got)
	}
	if got := why[long+":443"]; !strings.Contains(got, "no rule names the host") || len(got) > 410 {
		t.Errorf("of another host: %q in %q", got, why)
	}
	if text := g.succeed("run", "get", string(grown.ID)).stdout; !strings.Contains(text, "the path is none of /ok/*") || !strings.Contains(text, "refused by") {
		t.Errorf("in words: %s", text)
	}
}
