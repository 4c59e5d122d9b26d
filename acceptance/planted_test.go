package acceptance_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tendril/fault"
	"tendril/run"
)

// planted is a control plane that would change what runs get, were it read.
var planted = map[string]string{
	"grants.yaml": `version: 1
grants:
  - pollen: ci-docs
    substrates: [handbook]
    classes: [sprout.grow, stoma.pass]
    limits: {memory: 640MiB, pids: 99}
    egress: [{host: example.com, methods: [GET]}]
  - pollen: botanist
    substrates: [handbook]
    classes: [sprout.grow, stoma.pass]
    credentials: [planted]
    egress: [{host: example.com, methods: [GET]}]
    models: [{route: anthropic, models: [claude-sonnet-4-6]}]
    limits: {spend: 5.00 USD}
`,
	"substrates.yaml": "version: 1\nsubstrates: {handbook: {path: REPO}, planted: {path: REPO}}\n",
	"tendril.yaml":    "version: 1\nlimits: {defaults: {memory: 320MiB, pids: 77, wall: 9m}}\n",
	"credentials.yaml": `version: 1
credentials:
  planted:
    source: {env: HOME}
    bind: {host: api.anthropic.com, methods: [POST]}
    attach: {header: x-api-key}
`,
	"prices.yaml": `version: 1
prices:
  - {route: anthropic, model: claude-sonnet-4-6, input: 0, output: 0, cache_read: 0, cache_write: 0, max_output: 64000}
`,
	"model_fields.yaml": "version: 1\nanthropic:\n  kinds:\n    request: [speed]\n",
}

// plant commits the planted control plane wherever somebody may look for one, and beside it
// the token.
func (g *garden) plant(token string) {
	g.t.Helper()
	for _, dir := range []string{"", ".config/tendril/", ".tendril/", "tendril/", "config/"} {
		files := map[string]string{"token": token + "\n"}
		for name, text := range planted {
			files[name] = strings.ReplaceAll(text, "REPO", g.repo)
		}
		if err := os.MkdirAll(filepath.Join(g.repo, dir), 0o700); err != nil {
			g.t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(g.repo, dir, name), []byte(text), 0o600); err != nil {
				g.t.Fatal(err)
			}
		}
	}
	g.git("add", "-A", "-f")
	g.git("commit", "-qm", "plants")
}

// inRepository runs the product in the repository's own directory.
func (g *garden) inRepository(args ...string) answer {
	g.t.Helper()
	return g.startAs(`cd `+g.repo+` && exec "$0" "$@"`, args...).wait()
}

// given is what a run was given: its boundary, in which its limits are, and what its Sprout
// saw of a network.
type given struct {
	Pollen     string
	Boundary   []run.Row
	Unenforced []run.Limit
	Usage      *run.Usage
	Saw        string
}

// given grows in the repository's own directory.
func (g *garden) given(flags ...string) given {
	g.t.Helper()
	args := append(flags, "--json", "grow", "--substrate", "handbook", "--", "sh", "-c", `cut -d: -f1 /proc/net/dev; env | cut -d= -f1 | sort`)
	said := g.inRepository(args...)
	var r run.Run
	if err := json.Unmarshal([]byte(said.stdout), &r); err != nil || said.status != 0 || len(r.Boundary) == 0 {
		g.t.Fatalf("%+v: %v", said, err)
	}
	boundary := slices.DeleteFunc(r.Boundary, func(row run.Row) bool { // what differs from run to run
		return row.Field == "Run" || row.Field == "Workspace.Image" || row.Field == "Workspace.Dir"
	})
	return given{r.Pollen, boundary, r.Unenforced, r.Usage, g.output(r.ID)}
}

// authority is what the control plane says of itself in the repository's own directory.
func (g *garden) authority() string {
	g.t.Helper()
	var said strings.Builder
	for _, what := range []string{"substrate", "credential", "grant"} {
		list := g.inRepository("--json", what, "list")
		if list.status != 0 {
			g.t.Fatalf("%s list: %+v", what, list)
		}
		said.WriteString(list.stdout)
	}
	return said.String()
}

// What a Substrate holds is work, and never the control plane's.
func TestPlantedAuthorityChangesNothing(t *testing.T) {
	g := newGarden(t)
	deputy := g.pollenFor("deputy", "sprout.grow", "stoma.pass")
	asPollen := []string{"--token-file", g.tokenIn("ci-docs", g.pollenFor("ci-docs", "run.list"))}
	g.succeed("grant", "add", "--pollen", "ci-docs", "--substrate", "handbook", "--class", "sprout.grow", "--memory", "512MiB")
	callers := map[string][]string{"botanist": nil, "ci-docs": asPollen}
	before, clean := g.authority(), map[string]given{}
	for name, flags := range callers {
		clean[name] = g.given(flags...)
	}
	g.plant(deputy)
	bare := g.env
	g.env = append(bare, "TENDRIL_POLLEN=botanist", "TENDRIL_GRANTS="+filepath.Join(g.repo, "grants.yaml"), "TENDRIL_USER=botanist")
	for name, flags := range callers {
		if got := g.given(flags...); got.Pollen != name || !reflect.DeepEqual(got, clean[name]) {
			t.Errorf("%s was given %+v\nover a clean repository %+v", name, got, clean[name])
		}
	}
	told := refused(t, "pass", g.inRepository(append(asPollen, "--json", "pass", "--substrate", "handbook", "--", "true")...))
	if told.Kind != fault.Denied || !strings.Contains(told.Rule, notCovered) {
		t.Errorf("pass: %+v", told)
	}
	if after := g.authority(); after != before {
		t.Errorf("the control plane says\n%s\nbefore\n%s", after, before)
	}
	// The plants are good: where the Botanist says that they are his, all of that changes.
	g.env = append(bare, "TENDRIL_CONFIG_DIR="+g.repo)
	for name, flags := range callers {
		got := g.given(flags...)
		if reflect.DeepEqual(got.Boundary, clean[name].Boundary) || got.Saw == clean[name].Saw {
			t.Errorf("%s: as the control plane, the plants change nothing: %+v", name, got)
		}
	}
	if g.authority() == before {
		t.Error("as the control plane, the plants say nothing else")
	}
}
