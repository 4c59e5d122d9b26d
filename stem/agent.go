//go:build linux

package stem

import (
	"maps"
	"slices"
	"strings"

	"tendril/agents"
	"tendril/budget"
	"tendril/fault"
	"tendril/grant"
	"tendril/spelling"
	"tendril/terrarium"
)

// started is what an agent adds to a plan beside its command.
type started struct {
	env       []string
	toolchain []string
	programs  []terrarium.Program
}

const (
	// ownAgent is the built-in Sprout, which is carried in this program.
	ownAgent   = "sprout"
	ownProgram = terrarium.SproutInside
)

// startAgent makes the task of the plan's work the command of the agent that it names. Work
// that names none stays as it is.
func (s *Stem) startAgent(p *plan) (started, error) {
	if p.work.Agent == "" {
		return started{}, nil
	}
	if p.work.Agent == ownAgent {
		return s.startOwn(p)
	}
	agent, ok := s.config.Agents[agents.Name(p.work.Agent)]
	if !ok {
		return started{}, unknownAgent(p.work.Agent, append(texts(slices.Sorted(maps.Keys(s.config.Agents))), ownAgent))
	}
	route, err := p.call.permit.route(agent.Agent)
	if err != nil {
		return started{}, p.call.deny(err)
	}
	model := p.work.Model
	if model == "" && agent.NeedsModel() {
		if model, err = firstModel(p.work.Agent, route); err != nil {
			return started{}, err
		}
	}
	argv, env, err := agent.Started(p.work.Ask, model)
	if err != nil {
		return started{}, err
	}
	p.work.Argv = argv
	return started{env: env, toolchain: texts(agent.Toolchain)}, nil
}

// startOwn starts the built-in Sprout, which speaks to either route: the first that the
// grant names.
func (s *Stem) startOwn(p *plan) (started, error) {
	if s.config.Sprout == "" {
		return started{}, fault.New(fault.Unavailable, "this tendril was built without its Sprout").WithHint("build it with `make`")
	}
	if p.call.permit.reach == nil || len(p.call.permit.reach.Models) == 0 {
		_, err := p.call.permit.route(agents.Agent{Route: budget.Anthropic})
		return started{}, p.call.deny(err)
	}
	route := p.call.permit.reach.Models[0]
	model := p.work.Model
	if model == "" {
		var err error
		if model, err = firstModel(ownAgent, route); err != nil {
			return started{}, err
		}
	}
	p.work.Argv = []string{ownProgram, "--route", string(route.Route), "--model", model, "--ask", p.work.Ask}
	return started{programs: []terrarium.Program{{Source: s.config.Sprout, Target: ownProgram}}}, nil
}

func firstModel(agent string, route grant.ModelRoute) (string, error) {
	if len(route.Models) == 0 {
		return "", fault.New(fault.Invalid, "the agent %s needs the name of a model", agent).
			WithHint("give one with --model, or name it first in the grant's `models`")
	}
	return string(route.Models[0]), nil
}

// route is the model route that the agent asks over, as the grant has it.
func (p permit) route(agent agents.Agent) (grant.ModelRoute, error) {
	if p.reach != nil {
		for _, route := range p.reach.Models {
			if route.Route == agent.Route {
				return route, nil
			}
		}
	}
	return grant.ModelRoute{}, fault.New(fault.Denied, "no grant lets it ask models over the route %s, as this agent does", agent.Route).
		WithRule("what no single grant covers is denied").
		WithHint("the Botanist can permit it, for a Substrate that has a name: `models: [{route: %s}]` in its grant (docs/agents.md)", agent.Route)
}

func unknownAgent(name string, known []string) error {
	f := fault.New(fault.NotFound, "there is no agent %q", clip(name))
	if nearest, ok := spelling.Nearest(name, known); ok {
		return f.WithHint("did you mean %s?", nearest)
	}
	return f.WithHint("there are: %s; tendril.yaml can name more", strings.Join(known, ", "))
}
