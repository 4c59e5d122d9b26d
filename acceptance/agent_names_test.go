package acceptance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tendril/run"
)

// agentsOf writes the Botanist's files for a stand-in of an agent: a script in a directory
// of its own that prints what it was started with.
func (g *garden) agentsOf(models string) (dir string) {
	g.t.Helper()
	dir = filepath.Join(workDir(g.t), "stand-in")
	config := filepath.Join(g.home, ".config", "tendril")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		g.t.Fatal(err)
	}
	g.succeed("substrate", "add", "handbook", "--path", g.repo)
	for file, text := range map[string]string{
		filepath.Join(dir, "stand-in"): "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >said.txt\nenv >env.txt\n",
		filepath.Join(config, "tendril.yaml"): fmt.Sprintf("version: 1\nagents:\n  stand-in:\n    command: [stand-in, \"--model=x/{model}\", --, \"{prompt}\"]\n"+
			"    route: openai\n    env: {MODEL: \"of {model}\", OTHER: \"1\"}\n    toolchain: [%s]\n", dir),
		filepath.Join(config, "grants.yaml"): "version: 1\ngrants:\n  - pollen: botanist\n    substrates: [handbook]\n    classes: [sprout.grow]\n" + models,
	} {
		mode := os.FileMode(0o600)
		if strings.HasPrefix(file, dir) {
			mode = 0o755
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			g.t.Fatal(err)
		}
	}
	g.succeed("grant", "check")
	return dir
}

// An agent of the Botanist's gets its task as one argument, its model by name, and sees
// its own directory, which no other run does.
func TestAnAgentOfTheSite(t *testing.T) {
	g := newGarden(t)
	if strings.HasPrefix(g.home, "/tmp/") {
		t.Skip("no toolchain can be shown from /tmp")
	}
	dir := g.agentsOf("    models: [{route: anthropic}, {route: openai, models: [m-1, m-2]}]\n")
	grow := func(args ...string) run.Run {
		t.Helper()
		said := g.succeed(append([]string{"--json", "grow", "--substrate", "handbook"}, args...)...)
		var r run.Run
		if err := json.Unmarshal([]byte(said.stdout), &r); err != nil || r.Branch == nil {
			t.Fatalf("%v: %+v", err, said)
		}
		return r
	}
	r := grow("--agent", "stand-in", "--env", "OTHER=2", "do '$(id)'; {model}\nand more")
	if got := g.git("show", *r.Branch+":said.txt"); got != "--model=x/m-1\n--\ndo '$(id)'; {model}\nand more" {
		t.Errorf("started with %q", got)
	}
	env := "\n" + g.git("show", *r.Branch+":env.txt") + "\n"
	for _, want := range []string{"MODEL=of m-1", "OTHER=2", "OPENAI_BASE_URL=http://127.0.0.1:3130/v1"} {
		if !strings.Contains(env, "\n"+want+"\n") {
			t.Errorf("%s is not in%s", want, env)
		}
	}
	if !strings.Contains(env, "\nPATH="+dir+":/") {
		t.Errorf("its directory is not first on the PATH:%s", env)
	}
	r = grow("--agent", "stand-in", "--model", "m-2", "--", "--help")
	if got := g.git("show", *r.Branch+":said.txt"); got != "--model=x/m-2\n--\n--help" {
		t.Errorf("started with %q", got)
	}
	r = grow("--", "sh", "-c", "ls -d "+dir+" >seen.txt 2>&1 || true")
	if got := g.git("show", *r.Branch+":seen.txt"); !strings.Contains(got, "No such file") {
		t.Errorf("another run sees %s", got)
	}
}

// What cannot be an agent's task is refused before anything exists.
func TestAgentsThatAreRefused(t *testing.T) {
	g := newGarden(t)
	g.agentsOf("    models: [{route: openai}]\n")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--substrate", "handbook", "--agent", "claude", "x"}, "`models: [{route: anthropic}]` in its grant"},
		{[]string{"--substrate", g.repo, "--agent", "stand-in", "--model", "m-1", "x"}, "`models: [{route: openai}]` in its grant"},
		{[]string{"--substrate", "handbook", "--agent", "stand-in", "x"}, "needs the name of a model"},
		{[]string{"--substrate", "handbook", "--agent", "stand-in", "--model", "a\"b", "x"}, "is not the name of a model"},
		{[]string{"--substrate", "handbook", "--agent", "codecs", "x"}, "did you mean codex?"},
		{[]string{"--substrate", "handbook", "--agent", "stand-in"}, "nothing for the agent to do"},
		{[]string{"--substrate", "handbook", "--agent", "stand-in", "x", "--", "true"}, "takes no command after --"},
		{[]string{"--substrate", "handbook", "make"}, "a task needs --agent"},
		{[]string{"--substrate", "handbook", "--model", "m-1", "--", "true"}, "no agent"},
	} {
		p := g.tendril(append([]string{"grow"}, test.args...)...)
		if p.status != run.ExitRefused || !strings.Contains(p.stderr, test.want) {
			t.Errorf("%q: status %d, %s; want %q", test.args, p.status, p.stderr, test.want)
		}
	}
	if runs := g.runs(); len(runs) > 0 {
		t.Errorf("%d runs are recorded", len(runs))
	}
}
