//go:build linux

package stem

import (
	"maps"
	"slices"
	"strings"

	"tendril/agents"
	"tendril/fault"
	"tendril/grant"
	"tendril/spelling"
)

// started is what an agent adds to a plan beside its command.
type started struct {
	env       []string
	toolchain []string
}

// startAgent makes the task of the plan's work the command of the agent that it names. Work
// that names none stays as it is.
func (s *Stem) startAgent(p *plan) (started, error) {
	if p.work.Agent == "" {
		return started{}, nil
	}
	agent, ok := s.config.Agents[agents.Name(p.work.Agent)]
	if !ok {
		return started{}, unknownAgent(p.work.Agent, texts(slices.Sorted(maps.Keys(s.config.Agents))))
	}
	route, err := p.call.permit.route(agent.Agent)
	if err != nil {
		return started{}, p.call.deny(err)
	}
	model := p.work.Model
	if model == "" && agent.NeedsModel() {
		if len(route.Models) == 0 {
			return started{}, fault.New(fault.Invalid, "the agent %s needs the name of a model", p.work.Agent).
				WithHint("give one with --model, or name it first in the grant's `models`")
		}
		model = string(route.Models[0])
	}
	argv, env, err := agent.Started(p.work.Ask, model)
	if err != nil {
		return started{}, err
	}
	p.work.Argv = argv
	return started{env, texts(agent.Toolchain)}, nil
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
