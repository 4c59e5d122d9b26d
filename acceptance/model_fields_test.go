package acceptance_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a request may hold beyond what is known is for the Botanist to say: in
// model_fields.yaml for all, in a grant for what it permits.
func TestRequestFieldsPassAsTheFilesSay(t *testing.T) {
	needs(t, "curl")
	g := newGarden(t)
	o := g.goOutside(t)
	var last []byte // that arrived; o.mu guards it
	arrived := func() []byte {
		o.mu.Lock()
		defer o.mu.Unlock()
		body := last
		last = nil
		return body
	}
	o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		last, _ = io.ReadAll(r.Body)
		messagesAnswer(&sse{w: w}, nil)
	})
	g.permitModels(o, "")
	config := filepath.Join(g.home, ".config", "tendril")
	grants, err := os.ReadFile(filepath.Join(config, "grants.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const (
		file  = "version: 1\nanthropic: {kinds: {request: [speed]}}\n"
		field = ", fields: [speed]"
		tool  = ", tools: [web_search_20250305]"
		ask   = `curl -sS -m 20 -o /tmp/answer -w '%{http_code} ' -H 'content-type: application/json' -d '{"model":"m-1","max_tokens":64,"stream":true,"speed":"fast",` +
			`"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"Bash","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"hello"}]}' ` +
			`"$ANTHROPIC_BASE_URL/v1/messages"; grep -o 'would be taken out of it: [a-z_0-9., ]*[a-z0-9]' /tmp/answer || true`
		refused = "400 would be taken out of it: "
	)
	for name, c := range map[string]struct {
		file, grant string // what is added
		inside      string // status, and what a refusal names
		speed, tool bool   // arrive
	}{
		"nothing is said":             {inside: "200"},
		"the file names the field":    {file: file, inside: "200", speed: true},
		"the grant names the field":   {grant: field, inside: "200", speed: true},
		"the grant names the tool":    {grant: tool, inside: "200", tool: true},
		"strict":                      {grant: ", strict: true", inside: refused + "tools.web_search_20250305, request.speed"},
		"strict, and the field named": {file: file, grant: ", strict: true", inside: refused + "tools.web_search_20250305"},
		"strict, and the tool named":  {grant: tool + ", strict: true", inside: refused + "request.speed"},
		"strict, and all of it named": {grant: tool + field + ", strict: true", inside: "200", speed: true, tool: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := g.in(t)
			permitted := strings.Replace(string(grants), "models: [m-1]}", "models: [m-1]"+c.grant+"}", 1)
			for name, text := range map[string]string{"grants.yaml": permitted, "model_fields.yaml": c.file} {
				if text == "" {
					text = "version: 1\n"
				}
				if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			g.succeed("grant", "check")
			arrived()
			r, said := g.grown(ask)
			if out := strings.TrimSpace(g.output(r.ID)); said.status != 0 || out != c.inside {
				t.Errorf("status %d, inside: %q, want %q; %s", said.status, out, c.inside, said.stderr)
			}
			body := arrived()
			if asked := body != nil; asked != (c.inside == "200") {
				t.Errorf("the provider was asked: %t", asked)
			}
			if body == nil {
				return
			}
			var asked struct {
				Speed string
				Tools []struct{ Name string }
			}
			if err := json.Unmarshal(body, &asked); err != nil {
				t.Fatal(err)
			}
			want := "[{Bash}]"
			if c.tool {
				want = "[{web_search} {Bash}]"
			}
			if asked.Speed == "fast" != c.speed || fmt.Sprint(asked.Tools) != want {
				t.Errorf("the provider was asked %s", body)
			}
		})
	}

	// Of a file that cannot be read nothing is guessed.
	if err := os.WriteFile(filepath.Join(config, "model_fields.yaml"), []byte("version: 1\ngemini: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	arrived()
	if p := g.tendril("grow", "--substrate", "handbook", "--", "sh", "-c", ask); p.status == 0 || !strings.Contains(p.stderr, "model_fields.yaml") || arrived() != nil {
		t.Errorf("with a broken file: %+v", p)
	}
}
