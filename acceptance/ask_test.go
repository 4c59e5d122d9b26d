package acceptance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tendril/run"
)

// The built-in Sprout is one more agent, whose program comes with tendril.
func init() {
	realAgents["sprout"] = realAgent{
		route: "anthropic",
		shell: func(command string) (string, object) { return "shell", object{"command": command} },
		write: func(path, content string) (string, object) {
			return "write", object{"path": path, "content": content}
		},
	}
}

// ask lets the built-in Sprout do something in a repository whose test fails.
func ask(t *testing.T, limits string, model http.Handler, flags ...string) (*garden, answer, run.Run) {
	t.Helper()
	g := newGarden(t)
	for name, text := range map[string]string{
		"greet.sh": "#!/bin/sh\necho helo\n",
		"test.sh":  "#!/bin/sh\ntest \"$(sh greet.sh)\" = hello || { echo 'want hello' >&2; exit 1; }\n",
	} {
		if err := os.WriteFile(filepath.Join(g.repo, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g.git("add", "-A")
	g.git("commit", "-qm", "a test that fails")
	o := g.goOutside(t)
	o.Config.Handler = model
	g.permitModels(o, limits)
	args := append([]string{"--json", "grow", "--substrate", "handbook", "--wall", "90s"}, flags...)
	said := g.tendril(append(args, "--ask", "make the failing test pass")...)
	var r run.Run
	if err := json.Unmarshal([]byte(said.stdout), &r); err != nil {
		t.Fatalf("%+v: %v", said, err)
	}
	return g, said, r
}

func TestAskTurnsAFailingTestGreen(t *testing.T) {
	agent := realAgents["sprout"]
	shell := func(command, answers string) turn {
		tool, input := agent.shell(command)
		return turn{tool: tool, input: input, answers: answers}
	}
	model := &scriptedModel{key: honeytoken, turns: []turn{
		shell("sh test.sh", "want hello"),
		shell("cat greet.sh", "helo"),
		{tool: "edit", input: object{"path": "greet.sh", "old": "helo", "new": "hello"}},
		shell("sh test.sh && echo green", "green"),
		shell("git status --short", "greet.sh"),
	}}
	model.turns[1].limited, model.turns[2].cut = true, true
	g, said, r := ask(t, "    limits: {tokens: 1000000, spend: 5.00 USD}\n", model, "--model", "m-1")
	if said.status != 0 || r.State != run.Fruited || r.Changed != 1 {
		t.Fatalf("%+v\n%v\n%s", said, model.problems, g.tendril("run", "logs", string(r.ID)).stdout)
	}
	if got := g.git("show", *r.Branch+":greet.sh"); got != "#!/bin/sh\necho hello" {
		t.Errorf("greet.sh is %q", got)
	}
	for _, problem := range model.problems {
		t.Error(problem)
	}
	if r.Usage == nil || r.Usage.Tokens < model.used {
		t.Errorf("counted %+v, and %d tokens were used", r.Usage, model.used)
	}
}

// What docs/models.md tells a reader to do, from nothing to a run, works as it stands.
func TestModelsFromNothingToARun(t *testing.T) {
	text, err := os.ReadFile("../docs/models.md")
	if os.IsNotExist(err) {
		t.Skip("this is not a checkout")
	}
	if err != nil {
		t.Fatal(err)
	}
	steps := recipe{files: map[string]string{}}
	for chapter := range strings.SplitSeq(string(text), "\n## ") {
		if strings.HasPrefix(chapter, "From nothing to a run\n") {
			steps.take(chapter)
		}
	}
	if len(steps.files) != 3 || len(steps.commands) != 4 {
		t.Fatalf("the chapter is %+v", steps)
	}
	steps.files["tendril.yaml"] = "version: 1\n" // what it says of another provider is for others
	agent := realAgents["sprout"]
	agent.key = "ANTHROPIC_API_KEY"
	tool, input := agent.write("greeting.txt", "hello\n")
	g := newGarden(t)
	o := g.goOutside(t)
	o.Config.Handler = &scriptedModel{key: honeytoken, turns: []turn{{tool: tool, input: input}}}
	printed := g.follow(steps, o, agent, "")
	var r run.Run
	if err := json.Unmarshal([]byte(printed[2]), &r); err != nil || r.State != run.Fruited || r.Usage == nil || r.Usage.MicroUSD == 0 {
		t.Fatalf("%q, %v", printed, err)
	}
	if !strings.Contains(printed[3], string(r.ID)) {
		t.Errorf("the list is %s", printed[3])
	}
}

// forEver is a model that always wants one thing more.
type forEver struct{ asked int }

func (f *forEver) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	f.asked++
	messagesAnswer(&sse{w: w}, &turn{tool: "shell", input: object{"command": fmt.Sprintf("echo %d", f.asked)}})
}

// A model that never comes to an end is ended by its tokens, and the work is kept.
func TestAskIsEndedByTokens(t *testing.T) {
	_, said, r := ask(t, "    limits: {tokens: 60000}\n", &forEver{}, "--model", "m-1")
	if said.status != run.ExitStopped || r.Stop == nil || r.Stop.Limit != run.Tokens || r.Usage == nil || r.Usage.Tokens > 60000 {
		t.Errorf("status %d: %+v, %+v", said.status, r.Stop, r.Usage)
	}
}

// A model that answers nonsense is given up after some attempts, neither at once nor late.
func TestAskGivesUpOnNonsense(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, asked int){
		"a tool that is not there": func(w http.ResponseWriter, asked int) {
			messagesAnswer(&sse{w: w}, &turn{tool: "no-such-tool", input: object{"x": asked}})
		},
		"events that are no JSON": func(w http.ResponseWriter, _ int) { (&sse{w: w}).send("message_start", "<html>busy</html>") },
		"a body that is no JSON": func(w http.ResponseWriter, _ int) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "<html>busy</html>")
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			g, said, r := ask(t, "    limits: {tokens: 10000000}\n", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked++
				answer(w, asked)
			}), "--model", "m-1")
			if said.status != run.ExitFailed || r.Exit == nil || r.Exit.Code == nil || *r.Exit.Code != 3 || asked < 5 || asked > 10 {
				t.Errorf("status %d, asked %d times: %+v\n%s", said.status, asked, r.Exit, g.tendril("run", "logs", string(r.ID)).stdout)
			}
		})
	}
}

// Without a model in the grant there is nobody to ask, and that is said.
func TestAskNeedsAModel(t *testing.T) {
	g := newGarden(t)
	said := g.tendril("grow", "--substrate", g.repo, "--ask", "anything")
	if said.status != run.ExitRefused || !strings.Contains(said.stderr, "models") {
		t.Errorf("%+v", said)
	}
}
