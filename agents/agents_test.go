package agents

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tendril/budget"
	"tendril/strictyaml"
)

type file struct {
	Version int            `yaml:"version"`
	Agents  map[Name]Agent `yaml:"agents"`
}

func parse(text string) (Agent, error) {
	f, err := strictyaml.Decode[file]("tendril.yaml", []byte("version: 1\nagents:\n  mine: "+text+"\n"))
	return f.Agents["mine"], err
}

func TestAgentsOfAFile(t *testing.T) {
	got, err := parse(`{command: [mine, -m, "x/{model}", "{prompt}"], route: openai, env: {MINE: "of {model}"}}`)
	if err != nil {
		t.Fatal(err)
	}
	argv, env, err := got.Started("do it", "m-1")
	if err != nil || !slices.Equal(argv, []string{"mine", "-m", "x/m-1", "do it"}) || !slices.Equal(env, []string{"MINE=of m-1"}) || got.Route != budget.OpenAI {
		t.Errorf("%q, %q, %v, %v", argv, env, got.Route, err)
	}
}

func TestAgentsOfAFileThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{command: [mine]}`:                                     "0 arguments {prompt} instead of one",
		`{command: [mine, "{prompt}", "{prompt}"]}`:             "2 arguments {prompt} instead of one",
		`{command: ["{prompt}"]}`:                               "is only a part of",
		`{command: [sh, -c, "mine {prompt}"]}`:                  "is only a part of",
		`{command: [mine, "--message={prompt}"]}`:               "is only a part of",
		`{command: []}`:                                         "no program",
		`{command: ["", "{prompt}"]}`:                           "no program",
		`{command: mine}`:                                       "not a list",
		`{route: gemini}`:                                       "is not a route",
		`{env: {"A B": x}}`:                                     "not the name of a variable",
		`{env: {1A: x}}`:                                        "not the name of a variable",
		`{env: {"": x}}`:                                        "not the name of a variable",
		`{env: {A: 1}}`:                                         "is not text",
		`{env: {A: "{prompt}"}}`:                                "{prompt}",
		`{command: [mine, "{prompt}"], env: {A: x}, model: m}`:  "unknown key",
		`{command: [mine, "{prompt}", "\0"], route: anthropic}`: "NUL",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := strictyaml.Decode[file]("tendril.yaml", []byte("version: 1\nagents: {My_Agent: {}}\n")); err == nil || !strings.Contains(err.Error(), "is not the name of a coding agent") {
		t.Error(err)
	}
}

func TestExtended(t *testing.T) {
	own := Agent{Command: Command{"a", "{prompt}"}, Route: budget.OpenAI, Env: map[Variable]string{"A": "1", "B": "1"}}
	got := own.Extended(Agent{Env: map[Variable]string{"B": "2"}})
	if !slices.Equal(got.Command, own.Command) || got.Route != own.Route || got.Env["A"] != "1" || got.Env["B"] != "2" || own.Env["B"] != "1" {
		t.Errorf("%+v from %+v", got, own)
	}
	got = own.Extended(Agent{Command: Command{"b", "{prompt}"}, Route: budget.Anthropic})
	if got.Command[0] != "b" || got.Route != budget.Anthropic {
		t.Errorf("%+v", got)
	}
	if own.Missing() != "" || (Agent{Command: own.Command}).Missing() != "route" || (Agent{Route: own.Route}).Missing() != "command" {
		t.Error("what is missing of an agent is not said")
	}
}

// Whatever is to be done is one argument, as it is.
func TestATaskIsOneArgument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prompt := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"{model}", "{prompt}", "--help", "$(id)", "'; id #"})).Draw(t, "prompt")
		for name, agent := range BuiltIn() {
			argv, env, err := agent.Started(prompt, "m-1")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(argv) != len(agent.Command) {
				t.Fatalf("%s: %q", name, argv)
			}
			for i, word := range agent.Command {
				if want := strings.ReplaceAll(word, "{model}", "m-1"); word == "{prompt}" && argv[i] != prompt || word != "{prompt}" && argv[i] != want {
					t.Fatalf("%s: argument %d is %q", name, i, argv[i])
				}
			}
			if !slices.IsSorted(env) || strings.Contains(strings.Join(env, ""), "{model}") {
				t.Fatalf("%s: %q", name, env)
			}
		}
	})
}

func TestModels(t *testing.T) {
	for _, agent := range BuiltIn() {
		for _, name := range []string{"", "-m", `m"`, "m'", "m$x", "m\n", "m m", "m{", "m\\", strings.Repeat("m", 1000)} {
			if _, _, err := agent.Started("x", name); err == nil {
				t.Errorf("a model %q", name)
			}
		}
	}
	without := Agent{Command: Command{"a", "{prompt}"}, Route: budget.OpenAI}
	if _, _, err := without.Started("x", "m-1"); err == nil {
		t.Error("a model that nobody is told was taken")
	}
	if _, _, err := without.Started("x", ""); err != nil {
		t.Error(err)
	}
}

func TestBuiltInsAreValid(t *testing.T) {
	for name, agent := range BuiltIn() {
		if err := new(Name).UnmarshalText([]byte(name)); err != nil {
			t.Error(err)
		}
		if err := errors.Join(agent.Command.Validate(), agent.Validate()); err != nil || agent.Missing() != "" {
			t.Errorf("%s: %v, without %q", name, err, agent.Missing())
		}
		for variable := range agent.Env {
			if err := new(Variable).UnmarshalText([]byte(variable)); err != nil {
				t.Error(err)
			}
		}
		if !agent.NeedsModel() {
			t.Errorf("%s is told no model", name)
		}
	}
}
