// Package agents says how agent CLIs are started: the command that does one task with
// nobody at the terminal, the model route that it asks over, and its environment.
//
// It is pure. It promises that what is to be done reaches a command as one argument of
// its own and never as part of another, so no task can become a piece of a script or of
// a setting, and that a model's name holds nothing that a script, TOML or JSON would
// read. It does not say where an agent is on a host, does not install one, and cannot
// know whether another version still takes the same arguments.
package agents

import (
	"maps"
	"slices"
	"strings"

	"tendril/budget"
	"tendril/fault"
	"tendril/spelling"
)

// The placeholders of a command and of an environment.
const (
	promptPlace = "{prompt}" // what is to be done; a word of the command
	modelPlace  = "{model}"  // the model's name; anywhere
)

// Agent is how one agent CLI is started.
type Agent struct {
	Command Command             `yaml:"command"`
	Route   budget.Route        `yaml:"route"`
	Env     map[Variable]string `yaml:"env"`
}

// Command is a program and its arguments. One of them is {prompt}.
type Command []string

// Validate refuses a command that nobody could tell what to do.
func (c Command) Validate() error {
	if len(c) == 0 || c[0] == "" {
		return fault.New(fault.Invalid, "the command has no program").WithHint(`write something like [my-agent, --model, "{model}", "{prompt}"]`)
	}
	places := 0
	for i, word := range c {
		switch {
		case strings.ContainsRune(word, 0):
			return fault.New(fault.Invalid, "the command holds a NUL byte")
		case word == promptPlace && i > 0:
			places++
		case strings.Contains(word, promptPlace):
			return fault.New(fault.Invalid, "%s is only a part of %q", promptPlace, clip(word)).
				WithHint("give it an argument of its own; in a script, use $1")
		}
	}
	if places != 1 {
		return fault.New(fault.Invalid, "the command has %d arguments %s instead of one", places, promptPlace)
	}
	return nil
}

// Variable is the name of a variable of the environment.
type Variable string

// UnmarshalText refuses what shells cannot name (POSIX, Base Definitions, section 8.1).
func (v *Variable) UnmarshalText(text []byte) error {
	for i, c := range text {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fault.New(fault.Invalid, "%q is not the name of a variable", clip(string(text)))
		}
	}
	if len(text) == 0 || len(text) > 128 {
		return fault.New(fault.Invalid, "%q is not the name of a variable", clip(string(text)))
	}
	*v = Variable(text)
	return nil
}

// Validate refuses an environment that asks for what only a command has.
func (a Agent) Validate() error {
	for name, value := range a.Env {
		if strings.Contains(value, promptPlace) || strings.ContainsRune(value, 0) {
			return fault.New(fault.Invalid, "the variable %s holds %s or a NUL byte", name, promptPlace)
		}
	}
	return nil
}

// Name is the name of an agent in its one form, see [spelling.CheckName].
type Name string

// reserved is the agent that is carried in tendril itself and has no entry.
const reserved = "sprout"

// UnmarshalText refuses what is not in that form, and the name of tendril's own agent.
func (n *Name) UnmarshalText(text []byte) error {
	if string(text) == reserved {
		return fault.New(fault.Invalid, "%s is tendril's own agent, which no entry changes", reserved).WithHint("give yours another name")
	}
	if err := spelling.CheckName("coding agent", string(text)); err != nil {
		return err
	}
	*n = Name(text)
	return nil
}

// Extended is the agent with what the other one says in the place of its own.
func (a Agent) Extended(by Agent) Agent {
	if by.Command != nil {
		a.Command = by.Command
	}
	if by.Route != "" {
		a.Route = by.Route
	}
	env := maps.Clone(a.Env)
	if env == nil {
		env = map[Variable]string{}
	}
	maps.Copy(env, by.Env)
	a.Env = env
	return a
}

// Missing is the key without which the agent cannot be started; "" if it is whole.
func (a Agent) Missing() string {
	switch {
	case a.Command == nil:
		return "command"
	case a.Route == "":
		return "route"
	}
	return ""
}

// NeedsModel reports whether the agent has to be told its model.
func (a Agent) NeedsModel() bool {
	inModel := func(s string) bool { return strings.Contains(s, modelPlace) }
	return slices.ContainsFunc(a.Command, inModel) || slices.ContainsFunc(slices.Collect(maps.Values(a.Env)), inModel)
}

// Started is the command, and its environment as NAME=value in the order of the names,
// that does what the prompt says with that model. The model may be "" for an agent that
// needs none.
func (a Agent) Started(prompt, model string) (argv, env []string, err error) {
	switch {
	case a.NeedsModel() && (!budget.IsModel(model) || model[0] == '-'):
		return nil, nil, fault.New(fault.Invalid, "%q is not the name of a model", clip(model))
	case !a.NeedsModel() && model != "":
		return nil, nil, fault.New(fault.Invalid, "this agent cannot be told its model").WithHint("put {model} into its command or env")
	}
	for _, word := range a.Command {
		if word == promptPlace {
			argv = append(argv, prompt)
		} else {
			argv = append(argv, strings.ReplaceAll(word, modelPlace, model))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Env)) {
		env = append(env, string(name)+"="+strings.ReplaceAll(a.Env[name], modelPlace, model))
	}
	return argv, env, nil
}

// clip bounds what an error repeats.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
