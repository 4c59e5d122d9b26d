package acceptance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tendril/run"
)

// modelServer makes the server outside answer as a provider of models, with 100 tokens in
// and 20 out each time.
func (o *outside) modelServer() {
	o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.seen = append(o.seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("X-Api-Key"))
		o.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[{"type":"text","text":"hello"}],`+
			`"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":100,"output_tokens":20}}`)
	})
}

// permitModels lets the Botanist ask the model m-1, with limits.
func (g *garden) permitModels(o *outside, limits string) {
	g.t.Helper()
	g.succeed("substrate", "list")
	dir := filepath.Join(g.home, ".config", "tendril")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		g.t.Fatal(err)
	}
	secret := filepath.Join(g.home, "api.key")
	for name, text := range map[string]string{
		filepath.Join(dir, "substrates.yaml"): "version: 1\nsubstrates:\n  handbook: {path: " + g.repo + "}\n",
		filepath.Join(dir, "tendril.yaml"): fmt.Sprintf("version: 1\nroutes:\n  anthropic: {url: \"https://%s\", networks: [127.0.0.0/8]}\n",
			net.JoinHostPort(o.host, o.port)),
		filepath.Join(dir, "prices.yaml"): "version: 1\nprices:\n  - {route: anthropic, model: m-1, input: 3000000, output: 15000000, cache_read: 300000, cache_write: 3750000, max_output: 64}\n",
		filepath.Join(dir, "grants.yaml"): "version: 1\ngrants:\n  - pollen: botanist\n    substrates: [handbook]\n    classes: [sprout.grow, stoma.pass]\n" +
			"    credentials: [model-api]\n    models: [{route: anthropic, models: [m-1]}]\n" + limits,
		secret: honeytoken,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			g.t.Fatal(err)
		}
	}
	g.succeed("grant", "check")
	g.succeed("credential", "add", "model-api", "--file", secret, "--host", o.host, "--port", o.port, "--method", "POST", "--path", "/v1/*", "--header", "x-api-key")
}

const askModel = `ask() { curl -sS -m 20 -o /tmp/answer -w '%{http_code}' -H 'content-type: application/json' -H 'anthropic-version: 2023-06-01' -H "x-api-key: $ANTHROPIC_API_KEY" \
 -d '{"model":"m-1","max_tokens":64,"messages":[{"role":"user","content":"hello"}]}' "$ANTHROPIC_BASE_URL/v1/messages"; echo " $(cat /tmp/answer)"; }
`

// An agent inside asks its model at an address of its loopback; the key is attached
// outside and what was used is counted.
func TestModelsAreAskedOverTheRoute(t *testing.T) {
	needs(t, "curl")
	g := newGarden(t)
	o := g.goOutside(t)
	o.modelServer()
	g.permitModels(o, "    limits: {tokens: 100000, spend: 5.00 USD}\n")
	said := g.succeed("--json", "grow", "--substrate", "handbook", "--", "sh", "-c", askModel+`
ask >answer.txt
curl -sS -m 20 -o /dev/null -w '%{http_code}\n' "$ANTHROPIC_BASE_URL/v1/files" >other.txt
curl -sS -m 20 -o /dev/null -w '%{http_code}\n' https://`+net.JoinHostPort(o.host, o.port)+`/v1/messages >direct.txt 2>&1 || true
env >env.txt`)
	var r run.Run
	if err := json.Unmarshal([]byte(said.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if got := g.git("show", *r.Branch+":answer.txt"); !strings.HasPrefix(got, "200 ") || !strings.Contains(got, "hello") {
		t.Errorf("the model said %q", got)
	}
	if got := g.git("show", *r.Branch+":other.txt"); got != "404" {
		t.Errorf("an endpoint that spends elsewhere: %q", got)
	}
	if got := g.git("show", *r.Branch+":direct.txt"); strings.HasPrefix(got, "200") {
		t.Errorf("the provider was reached beside the route: %q", got)
	}
	if env := g.git("show", *r.Branch+":env.txt"); strings.Contains(env, honeytoken) || !strings.Contains(env, "ANTHROPIC_BASE_URL=http://127.0.0.1:") {
		t.Errorf("the environment is\n%s", env)
	}
	if seen := o.requests(); len(seen) != 1 || seen[0] != "POST /v1/messages "+honeytoken {
		t.Errorf("the provider saw %q", seen)
	}
	if r.Usage == nil || r.Usage.Tokens != 120 || r.Usage.MicroUSD != 100*3+20*15 {
		t.Errorf("counted %+v", r.Usage)
	}
	g.mustRecordModels(r.ID, `"change":"model.reserved"`, `"change":"model.settled"`, "120 tokens, 600 micro-USD")
}

// At its limit a run is stopped by that name, and its work so far is kept.
func TestABudgetStopsTheRun(t *testing.T) {
	needs(t, "curl")
	g := newGarden(t)
	o := g.goOutside(t)
	o.modelServer()
	g.permitModels(o, "    limits: {tokens: 6000}\n")
	p := g.tendril("--json", "grow", "--substrate", "handbook", "--", "sh", "-c", askModel+`while true; do ask >>answers.txt; done`)
	var r run.Run
	if err := json.Unmarshal([]byte(p.stdout), &r); err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	if p.status != run.ExitStopped || r.State != run.Stopped || r.Stop == nil || r.Stop.Limit != run.Tokens || r.Commit == nil {
		t.Errorf("status %d: %+v", p.status, r)
	}
	if r.Usage == nil || r.Usage.Tokens > 6000 || r.Usage.Tokens < 500 {
		t.Errorf("counted %+v", r.Usage)
	}
	if n := len(o.requests()); n < 4 || n > 50 {
		t.Errorf("the provider was asked %d times; inside: %s", n, g.git("show", *r.Branch+":answers.txt"))
	}
	g.mustRecordModels(r.ID, `"capability":"egress.model"`)
}

// The models that a grant names, and its limits, are those of now also within a run that
// began with others.
func TestModelsAndLimitsAreTheGrantsOfNow(t *testing.T) {
	needs(t, "curl")
	for name, c := range map[string]struct {
		from, to string
		limit    run.Limit
	}{
		"another model": {"models: [m-1]", "models: [m-9]", ""},
		"a lower limit": {"tokens: 1000000000", "tokens: 100", run.Tokens},
		"a day's limit": {"limits: {tokens: 1000000000}", "limits: {tokens: 1000000000}\n    daily: {spend: 0.000001 USD}", run.Spend},
		"strict":        {"models: [m-1]", "models: [m-1], strict: true", ""},
		"no route":      {"    models: [{route: anthropic, models: [m-1]}]\n", "    egress: [{host: example.org, methods: [GET]}]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGarden(t)
			o := g.goOutside(t)
			o.modelServer()
			g.permitModels(o, "    limits: {tokens: 1000000000}\n")
			p := g.start("--json", "grow", "--wall", "60s", "--substrate", "handbook", "--", "sh", "-c", `
ask() { curl -sS -m 20 -o /dev/null -w '%{http_code}' -H 'content-type: application/json' \
 -d '{"model":"m-1","max_tokens":64,"speed":"fast","messages":[{"role":"user","content":"hello"}]}' "$ANTHROPIC_BASE_URL/v1/messages"; }
echo "first $(ask)"; while now=$(ask); test "$now" = 200; do :; done; echo "at last $now"`)
			g.awaitOutput(p, nil, "first 200")
			grants := filepath.Join(g.home, ".config", "tendril", "grants.yaml")
			text, err := os.ReadFile(grants)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(string(text), c.from, c.to, 1)
			if changed == string(text) {
				t.Fatalf("nothing to change in\n%s", text)
			}
			// As an editor does it: half a file is none that anybody wrote.
			if err := errors.Join(os.WriteFile(grants+".new", []byte(changed), 0o600), os.Rename(grants+".new", grants)); err != nil {
				t.Fatal(err)
			}
			g.succeed("grant", "check")
			var r run.Run
			if said := p.wait(); json.Unmarshal([]byte(said.stdout), &r) != nil {
				t.Fatalf("%+v", said)
			}
			var limit run.Limit
			if r.Stop != nil {
				limit = r.Stop.Limit
			}
			if limit != c.limit {
				t.Errorf("the run ended as %+v", r)
			}
			if out := g.output(r.ID); c.limit == "" && !strings.Contains(out, "at last 400") {
				t.Errorf("the run said %s", out)
			}
			// By the route, or by the way out if the grant changed between the two.
			g.mustRecordModels(r.ID, `"decision":"deny"`)
		})
	}
}

// What the Stem takes out of a model request, and what it refuses by itself, is in the
// ledger, in the events and in the record of the run.
func TestWhatAModelRequestMayNotHaveIsTold(t *testing.T) {
	needs(t, "curl")
	g := newGarden(t)
	o := g.goOutside(t)
	o.modelServer()
	g.permitModels(o, "    limits: {tokens: 100000, spend: 5.00 USD}\n")
	said := g.succeed("--json", "grow", "--substrate", "handbook", "--", "sh", "-c", `
ask() { curl -sS -m 20 -o /dev/null -w '%{http_code} ' -H 'content-type: application/json' -d "$2" "$ANTHROPIC_BASE_URL$1"; }
ask /v1/messages '{"model":"m-1","max_tokens":64,"messages":[{"role":"user","content":"hello"}],"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"shell","input_schema":{"type":"object"}}],"client_metadata":{"a":"b"}}'
ask /v1/messages '{"model":"m-1","max_tokens":64,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://example.org/'`+honeytoken+`'"}}]}]}'
ask /v1/messages '{"model":"m-2","max_tokens":64,"messages":[]}'
ask /v1/messages/batches '{}'`)
	var r run.Run
	if err := json.Unmarshal([]byte(said.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if out := g.output(r.ID); out != "200 400 400 404 " {
		t.Errorf("inside: %q", out)
	}
	if len(o.requests()) != 1 {
		t.Errorf("the provider saw %q", o.requests())
	}
	g.mustRecordModels(r.ID, `"target":"anthropic m-1 without tools.web_search_20250305, request.client_metadata"`,
		`source in the request`, `the model m-2 is not one that the grant names`, `POST /v1/messages/batches is not served`)
	export := g.succeed("ledger", "export").stdout
	if n := strings.Count(export, `"capability":"egress.model"`); n != 3 || strings.Contains(export, honeytoken) {
		t.Errorf("%d refusals in the ledger\n%s", n, export)
	}
	origin := "https://" + net.JoinHostPort(o.host, o.port)
	var refused int64
	for _, reach := range g.get(r.ID).Egress {
		if reach.Destination == origin {
			refused = reach.Refused
		}
	}
	if refused != 3 {
		t.Errorf("the record says %+v", g.get(r.ID).Egress)
	}
	events, err := g.store.Events(t.Context(), r.ID, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for _, e := range events {
		switch data := e.Data.(type) {
		case run.Warning:
			told[data.Detail]++
		case run.EgressDecision:
			if !data.Allowed && data.Destination == origin && data.Failure == "refused" {
				told["refused"]++
			}
		}
	}
	if told["taken out of requests to anthropic: tools.web_search_20250305"] != 1 || told["refused"] != 3 {
		t.Errorf("told %v", told)
	}
}

// What models cost is in the ledger: what was set aside, what it came to, and what a limit
// refused.
func (g *garden) mustRecordModels(id run.ID, want ...string) {
	g.t.Helper()
	export := g.succeed("ledger", "export").stdout
	for _, what := range want {
		found := false
		for line := range strings.Lines(export) {
			found = found || strings.Contains(line, string(id)) && strings.Contains(line, what)
		}
		if !found {
			g.t.Errorf("no row of the run says %s", what)
		}
	}
}
