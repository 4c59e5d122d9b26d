package acceptance_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tendril/run"
)

// realAgent is an agent CLI as npm has it, and the names that its tools have.
type realAgent struct {
	route string
	shell func(command string) (tool string, input object)
	write func(path, content string) (tool string, input object)
}

var realAgents = map[string]realAgent{
	"claude": {
		route: "anthropic",
		shell: func(command string) (string, object) {
			return "Bash", object{"command": command, "description": "work"}
		},
		write: func(path, content string) (string, object) {
			return "Write", object{"file_path": "/workspace/" + path, "content": content}
		},
	},
	"codex": {
		route: "openai",
		shell: func(command string) (string, object) { return "exec_command", object{"cmd": command} },
		write: func(path, content string) (string, object) {
			return "exec_command", object{"cmd": "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: " + path + "\n+" + strings.TrimSuffix(content, "\n") + "\n*** End Patch\nEOF"}
		},
	},
	"opencode": {
		route: "openai",
		shell: func(command string) (string, object) {
			return "bash", object{"command": command, "description": "work"}
		},
		write: func(path, content string) (string, object) {
			return "write", object{"filePath": "/workspace/" + path, "content": content}
		},
	},
	"pi": {
		route: "anthropic",
		shell: func(command string) (string, object) { return "bash", object{"command": command} },
		write: func(path, content string) (string, object) {
			return "write", object{"path": path, "content": content}
		},
	},
}

func TestAgentClaude(t *testing.T)   { completesATask(t, "claude") }
func TestAgentCodex(t *testing.T)    { completesATask(t, "codex") }
func TestAgentOpencode(t *testing.T) { completesATask(t, "opencode") }
func TestAgentPi(t *testing.T)       { completesATask(t, "pi") }

func TestAgentsAsOrdinaryUser(t *testing.T) {
	agentModules(t, "claude")
	asOrdinaryUser(t, "TestAgentClaude", "TENDRIL_TEST_AGENTS="+os.Getenv("TENDRIL_TEST_AGENTS"))
}

// agentModules is where npm has put the agents, and skips where it has not.
func agentModules(t *testing.T, program string) string {
	t.Helper()
	dir := os.Getenv("TENDRIL_TEST_AGENTS")
	if dir == "" {
		t.Skip("TENDRIL_TEST_AGENTS is not set: scripts/agents DIR puts the agents there")
	}
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(filepath.Join(modules, ".bin", program)); err != nil {
		t.Skipf("%s is not installed: %v", program, err)
	}
	return modules
}

// script is a small task with what goes wrong on the way.
func (a realAgent) script(name string) []turn {
	shell := func(command, answers string) turn {
		tool, input := a.shell(command)
		return turn{tool: tool, input: input, answers: answers}
	}
	tool, input := a.write("greeting.txt", "hello from "+name+"\n")
	turns := []turn{
		shell("cat old.txt && id -u", "70707"),
		shell("cat nowhere.txt", "No such file"),
		{tool: tool, input: input},
		shell("echo new >>old.txt && cat old.txt greeting.txt", "hello from "+name),
		shell("git status --short", "greeting.txt"),
		shell("("+lookForToken+") >/tmp/found 2>/dev/null; cp /tmp/found found.txt; wc -l found.txt", "1 found.txt"),
	}
	turns[1].limited, turns[3].cut = true, true
	return turns
}

// lookForToken says in which environments, command lines and files the token is, by its
// first half, and finds a decoy. No command line of its own holds that half.
const lookForToken = `printf 'hny-%s' 5f1d0c2e >/tmp/decoy; grep -alFf /tmp/decoy /proc/[0-9]*/environ /proc/[0-9]*/cmdline; ` +
	`find / \( -path /proc -o -path /sys -o -path /usr -o -name node_modules \) -prune -o -type f -size -256k -exec grep -lFf /tmp/decoy {} +`

// An agent CLI from npm does a task inside: five turns and more, a limit, a stream that
// breaks and a tool that fails among them. Its model is asked over the route, with a key
// that is attached outside, and what was used is counted.
func completesATask(t *testing.T, name string) {
	modules := agentModules(t, name)
	agent := realAgents[name]
	g := newGarden(t)
	o := g.goOutside(t)
	model := &scriptedModel{turns: agent.script(name), key: honeytoken}
	o.Config.Handler = model
	g.permitAgent(o, name, modules)

	// A task that could be taken for an option.
	p := g.tendril("--json", "grow", "--substrate", "handbook", "--wall", "90s", "--agent", name, "--", "--help is what this prompt begins with: greet me")
	var r run.Run
	if err := json.Unmarshal([]byte(p.stdout), &r); err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	logs := g.tendril("run", "logs", string(r.ID))
	said := logs.stdout + logs.stderr
	if p.status != 0 || r.State != run.Fruited || r.Branch == nil {
		t.Fatalf("status %d, %s: %s\n%v\n%s", p.status, r.State, p.stderr, model.problems, said)
	}
	t.Logf("%d ms, %d requests", *r.DurationMS, model.asked)
	fruit := g.git("show", "--format=", *r.Branch)
	for file, want := range map[string]string{"greeting.txt": "hello from " + name, "old.txt": "old\nnew", "found.txt": "/tmp/decoy"} {
		if got := g.git("show", *r.Branch+":"+file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	for _, problem := range model.problems {
		t.Error(problem)
	}
	if model.limits != 1 || model.cuts != 1 || model.ended == 0 {
		t.Errorf("%d times 429, %d streams cut, told the end %d times", model.limits, model.cuts, model.ended)
	}
	if r.Usage == nil || r.Usage.Tokens < model.used {
		t.Errorf("counted %+v, and %d tokens were used", r.Usage, model.used)
	}
	if !strings.Contains(said, scriptedText) {
		t.Errorf("the agent does not say what the model said:\n%s", said)
	}
	if strings.Contains(fruit+said+p.stderr, honeytoken) {
		t.Error("the key came inside")
	}
}

// permitAgent lets the Botanist ask the model m-1 over the agent's route.
func (g *garden) permitAgent(o *outside, name, modules string) {
	g.t.Helper()
	agent := realAgents[name]
	g.succeed("substrate", "add", "handbook", "--path", g.repo)
	dir := filepath.Join(g.home, ".config", "tendril")
	secret := filepath.Join(g.home, "api.key")
	for file, text := range map[string]string{
		filepath.Join(dir, "tendril.yaml"): fmt.Sprintf("version: 1\nroutes:\n  %s: {url: \"https://%s\", networks: [127.0.0.0/8]}\nagents:\n  %s: {toolchain: [%[4]s, %[4]s/.bin]}\n",
			agent.route, net.JoinHostPort(o.host, o.port), name, modules),
		filepath.Join(dir, "prices.yaml"): fmt.Sprintf("version: 1\nprices:\n  - {route: %s, model: m-1, input: 3000000, output: 15000000, cache_read: 300000, cache_write: 3750000, max_output: 8192}\n", agent.route),
		filepath.Join(dir, "grants.yaml"): fmt.Sprintf("version: 1\ngrants:\n  - pollen: botanist\n    substrates: [handbook]\n    classes: [sprout.grow]\n"+
			"    credentials: [model-api]\n    models: [{route: %s, models: [m-1]}]\n    limits: {tokens: 10000000, spend: 50.00 USD}\n", agent.route),
		secret: honeytoken,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			g.t.Fatal(err)
		}
	}
	g.succeed("grant", "check")
	attach := []string{"--header", "x-api-key"}
	if agent.route == "openai" {
		attach = []string{"--header", "Authorization", "--template", "Bearer {secret}"}
	}
	g.succeed(slices.Concat([]string{"credential", "add", "model-api", "--file", secret, "--host", o.host, "--port", o.port, "--method", "POST", "--path", "/v1/*"}, attach)...)
}
