package acceptance_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tendril/run"
)

// realAgent is an agent CLI as npm has it, and the names that its tools have.
type realAgent struct {
	route string
	key   string // the variable that the recipe takes its key from
	shell func(command string) (tool string, input object)
	write func(path, content string) (tool string, input object)
}

var realAgents = map[string]realAgent{
	"claude": {
		route: "anthropic", key: "ANTHROPIC_API_KEY",
		shell: func(command string) (string, object) {
			return "Bash", object{"command": command, "description": "work"}
		},
		write: func(path, content string) (string, object) {
			return "Write", object{"file_path": "/workspace/" + path, "content": content}
		},
	},
	"codex": {
		route: "openai", key: "OPENAI_API_KEY",
		shell: func(command string) (string, object) { return "exec_command", object{"cmd": command} },
		write: func(path, content string) (string, object) {
			return "exec_command", object{"cmd": "apply_patch <<'EOF'\n" + patch(path, content) + "\nEOF"}
		},
	},
	"opencode": {
		route: "openai", key: "OPENAI_API_KEY",
		shell: func(command string) (string, object) {
			return "bash", object{"command": command, "description": "work"}
		},
		write: func(path, content string) (string, object) {
			return "apply_patch", object{"patchText": patch(path, content)}
		},
	},
	"pi": {
		route: "anthropic", key: "ANTHROPIC_API_KEY",
		shell: func(command string) (string, object) { return "bash", object{"command": command} },
		write: func(path, content string) (string, object) {
			return "write", object{"path": path, "content": content}
		},
	},
}

// patch adds a file of one line, in the form that OpenAI's models are taught.
func patch(path, line string) string {
	return "*** Begin Patch\n*** Add File: " + path + "\n+" + strings.TrimSuffix(line, "\n") + "\n*** End Patch"
}

func TestAgentClaude(t *testing.T)   { completesATask(t, "claude") }
func TestAgentCodex(t *testing.T)    { completesATask(t, "codex") }
func TestAgentOpencode(t *testing.T) { completesATask(t, "opencode") }
func TestAgentPi(t *testing.T)       { completesATask(t, "pi") }

func TestAgentsAsOrdinaryUser(t *testing.T) {
	agentsDir(t, "claude")
	againAsOrdinaryUser(t, "TestAgentClaude", "TENDRIL_TEST_AGENTS="+os.Getenv("TENDRIL_TEST_AGENTS"), "TENDRIL_TEST_RECIPES="+recipes(t))
}

// agentsDir is where npm has put the agents, and skips where it has not.
func agentsDir(t *testing.T, program string) string {
	t.Helper()
	dir := os.Getenv("TENDRIL_TEST_AGENTS")
	if dir == "" {
		t.Skip("TENDRIL_TEST_AGENTS is not set: scripts/agents DIR puts the agents there")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".bin", program)); err != nil {
		t.Skipf("%s is not installed: %v", program, err)
	}
	return dir
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

// An agent CLI from npm does a task inside, by the recipe of docs/agents.md: five turns
// and more, a limit, a stream that breaks and a tool that fails among them. Its model is
// asked over the route, with a key that is attached outside, and what was used is counted.
func completesATask(t *testing.T, name string) {
	dir := agentsDir(t, name)
	agent := realAgents[name]
	g := newGarden(t)
	o := g.goOutside(t)
	model := &scriptedModel{turns: agent.script(name), key: honeytoken}
	o.Config.Handler = model

	steps := recipeOf(t, name)
	for i, command := range steps.commands { // a task that could be taken for an option
		steps.commands[i] = strings.ReplaceAll(command, `"make the failing test pass"`, `-- "--help is what this begins with: greet me"`)
	}
	printed := g.follow(steps, o, agent, dir)
	p := printed[len(printed)-1]
	model.mu.Lock()
	defer model.mu.Unlock()
	var r run.Run
	if err := json.Unmarshal([]byte(p), &r); err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	logs := g.tendril("run", "logs", string(r.ID))
	said := logs.stdout + logs.stderr
	watched := g.tendril("run", "watch", string(r.ID))
	if r.State != run.Fruited || r.Branch == nil || r.Exit == nil || r.Exit.Failed() {
		t.Fatalf("%s\n%q\n%s", p, model.problems, said)
	}
	t.Logf("%d ms, %d requests\n%s", *r.DurationMS, model.asked, watched.stderr)
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
	if strings.Contains(fruit+said+watched.stdout+watched.stderr+p, honeytoken) {
		t.Error("the key came inside")
	}
}

// recipe is what a reader of docs/agents.md does to have one agent work.
type recipe struct {
	files    map[string]string // of the configuration directory
	commands []string
}

// recipes is the document's text. An ordinary user may be unable to read the checkout.
func recipes(t *testing.T) string {
	t.Helper()
	if text := os.Getenv("TENDRIL_TEST_RECIPES"); text != "" {
		return text
	}
	text, err := os.ReadFile("../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The recipes install what the tests run.
func TestRecipesAreOfTheTestedVersions(t *testing.T) {
	script, err := os.ReadFile("../scripts/agents")
	if err != nil {
		t.Skip("this is not a checkout")
	}
	for _, name := range []string{"claude", "codex", "opencode", "pi"} {
		installed := 0
		for _, command := range recipeOf(t, name).commands {
			packages, ok := strings.CutPrefix(command, "npm install --prefix /opt/agents ")
			for _, one := range strings.Fields(packages) {
				if ok && strings.Contains(string(script), one) {
					installed++
				} else if ok {
					t.Errorf("%s installs %s, which scripts/agents does not", name, one)
				}
			}
		}
		if installed == 0 {
			t.Errorf("%s is not installed", name)
		}
	}
}

// recipeOf takes from the document the blocks at the beginning of the chapter that the
// agent's section is in, and those of that section.
func recipeOf(t *testing.T, name string) recipe {
	t.Helper()
	r := recipe{files: map[string]string{}}
	for chapter := range strings.SplitSeq(recipes(t), "\n## ") {
		sections := strings.Split(chapter, "\n### ")
		for _, section := range sections[1:] {
			if strings.HasPrefix(section, name+"\n") {
				r.take(sections[0])
				r.take(section)
			}
		}
	}
	if len(r.files) != 3 || len(r.commands) < 4 {
		t.Fatalf("the recipe for %s is %+v", name, r)
	}
	return r
}

func (r *recipe) take(text string) {
	blocks := strings.Split(text, "```")
	for i := 1; i < len(blocks); i += 2 {
		if content, ok := strings.CutPrefix(blocks[i], "yaml\n# "); ok {
			file, content, _ := strings.Cut(content, "\n")
			r.files[file] = content
		} else if commands, ok := strings.CutPrefix(blocks[i], "sh\n"); ok {
			r.commands = append(r.commands, strings.Split(strings.TrimSpace(commands), "\n")...)
		}
	}
}

// follow does what the recipe says, with the server outside in the place of the provider,
// and the installed agents in the place of those that npm would fetch. It returns what each
// command printed.
func (g *garden) follow(r recipe, o *outside, agent realAgent, dir string) (printed []string) {
	g.t.Helper()
	config := filepath.Join(g.home, ".config", "tendril")
	r.files["tendril.yaml"] += fmt.Sprintf("routes:\n  %s: {url: \"https://%s\", networks: [127.0.0.0/8]}\n", agent.route, net.JoinHostPort(o.host, o.port))
	if err := os.MkdirAll(config, 0o700); err != nil {
		g.t.Fatal(err)
	}
	for name, text := range r.files {
		text = strings.ReplaceAll(text, "/opt/agents", dir)
		if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o600); err != nil {
			g.t.Fatal(err)
		}
	}
	g.env = append(g.env, agent.key+"="+honeytoken)
	words := strings.NewReplacer(
		"--host api.anthropic.com", "--host "+o.host+" --port "+o.port, "--host api.openai.com", "--host "+o.host+" --port "+o.port,
		"tendril grow", "tendril --json grow --wall 90s",
	)
	for _, command := range r.commands {
		if strings.HasPrefix(command, "npm ") {
			continue
		}
		printed = append(printed, g.shell(`cd "$1"; binary=$2 errors=$3
			tendril() { "$binary" "$@" 2>"$errors" || { cat "$errors"; return 1; }; }
			`+words.Replace(command), g.repo, g.binary, filepath.Join(filepath.Dir(g.repo), "errors")))
	}
	return printed
}
