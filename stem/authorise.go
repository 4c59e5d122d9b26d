//go:build linux

package stem

import (
	"context"
	"slices"
	"time"

	"tendril/capability"
	"tendril/fault"
	"tendril/grant"
	"tendril/policy"
)

// permit is what lets a call go on, and how far.
type permit struct {
	rule  string       // what permits it, for the ledger
	grant *grant.Grant // nil: the Botanist's built-in one
	scope grant.Scope  // what a Pollen may see of runs and Substrates through this class
	reach *grant.Grant // whose egress and credentials it has; nil: none
}

// reaches reports whether anything outside can be reached.
func (p permit) reaches() bool {
	return p.reach != nil && (p.reach.Egress != nil || p.reach.Models != nil)
}

const builtIn = "the Botanist's own grant: observe, grow and control on any path of this host"

// authorise says whether the actor may ask this of its subject. Whoever may not learns
// nothing of the subject, not even whether it exists.
//
// today is how many runs the actor has begun today, which counts where one more is asked for.
func (s *Stem) authorise(ctx context.Context, a Actor, d capability.Definition, in capability.Request, today int) (permit, error) {
	if a.Botanist() {
		switch d.Branch {
		case capability.Observe, capability.Control:
			return permit{rule: builtIn}, nil
		case capability.Grow:
			p := permit{rule: builtIn}
			if reaching(d) {
				p.reach = s.reachOf(a, d.Name, in)
			}
			return p, nil
		}
	} else if d.Branch == capability.Control {
		return permit{}, fault.New(fault.Denied, "it is the Botanist's alone").WithRule("the control Branch cannot be granted")
	}
	grants, err := s.grants()
	if err != nil {
		// Where the file lies and what is in it is the Botanist's to read.
		return permit{}, fault.New(fault.Denied, "no grant is in force").
			WithRule("a grants file that is not understood grants nothing").WithHint("the Botanist can see why: tendril grant check")
	}
	now := time.Now()
	request := grant.Request{Pollen: a.Name(), Class: d.Name, Defaults: s.defaults(), RunsToday: today, Now: now}
	p := permit{scope: grants.Scope(a.Name(), d.Name, now)}
	if request.Substrate, err = s.substrateAbout(ctx, a, d.Name, in.Subject(), p.scope); err != nil {
		return permit{}, err
	}
	if wall, ok := in.(capability.Walled); ok {
		asked := wall.Wall()
		request.Provider, request.Image, request.Limits = asked.Provider, asked.Image, asked.Limits
	}
	decision := grants.Decide(request)
	if !decision.Permitted {
		return permit{}, refusalOf(decision)
	}
	p.rule, p.grant = decision.Rule, decision.Grant
	if reaching(d) {
		p.reach = decision.Grant
	}
	return p, nil
}

// reaching reports whether a capability reaches out, or runs somebody's work, which may.
func reaching(d capability.Definition) bool {
	return d.Branch == capability.Reach || d.Branch == capability.Publish || slices.Contains(actionsOf[d.Name], policy.ActionEditWorkspace)
}

// refusalOf is the refusal without who asks what of what, which every refusal of
// Invoke says.
func refusalOf(d grant.Decision) error {
	refused := fault.New(fault.Denied, "%s", d.Missing).WithRule(d.Rule)
	if d.Add != "" {
		refused = refused.WithHint("the Botanist can permit it: %s", d.Add)
	}
	return refused
}

// noRunOfYours is said of a run that does not exist and of one that is another's, in
// the same words.
var noRunOfYours = fault.New(fault.Denied, "it is no run that this Pollen may see").
	WithRule("a Pollen sees its own runs, and those of others only where its grant says `runs: substrate`")

// substrateAbout returns the name of the Substrate that a subject is about, "" for none. A
// run has to be in the scope.
func (s *Stem) substrateAbout(ctx context.Context, a Actor, class string, about capability.Subject, scope grant.Scope) (string, error) {
	switch {
	case about.Run != "" && len(scope) == 0:
		return "", fault.New(fault.Denied, "no grant gives %s this class", a.Name()).
			WithRule("what no single grant covers is denied").
			WithHint("the Botanist can permit it: tendril grant add --pollen %s --class %s --substrate NAME", a.Name(), class)
	case about.Run != "":
		r, err := s.state.Get(ctx, about.Run)
		if fault.Is(err, fault.NotFound) || err == nil && !scope.Sees(r.Substrate.Name, r.Pollen == a.Name()) {
			return "", noRunOfYours
		}
		return r.Substrate.Name, err
	case about.Substrate == nil:
		return "", nil
	case about.Substrate.Path != "":
		return "", fault.New(fault.Denied, "it is named by its path").
			WithRule("a grant names Substrates by their names; only the Botanist, without one, names them by path").
			WithHint("use the name that the Botanist gave it: tendril substrate list")
	}
	return about.Substrate.Name, nil
}

// limits are what a run is asked to keep, and what it gets for the rest. What the grant
// names is asked for also where the request is silent: its limit is kept or the run is
// refused.
func (p permit) limits(asked, defaults capability.Limits) (capability.Limits, capability.Limits) {
	if p.grant == nil {
		return asked, defaults
	}
	granted, effective := p.grant.Limits.Limits, p.grant.Effective(asked, defaults)
	return capability.Limits{
		CPUs:   insisted(asked.CPUs, granted.CPUs, effective.CPUs),
		Memory: insisted(asked.Memory, granted.Memory, effective.Memory),
		Disk:   insisted(asked.Disk, granted.Disk, effective.Disk),
		Output: insisted(asked.Output, granted.Output, effective.Output),
		Pids:   insisted(asked.Pids, granted.Pids, effective.Pids),
		Wall:   insisted(asked.Wall, granted.Wall, effective.Wall),
		Idle:   insisted(asked.Idle, granted.Idle, effective.Idle),
	}, defaults
}

func insisted[T any](asked, granted, effective *T) *T {
	if granted == nil {
		return asked
	}
	return effective
}

// accepts reports whether the wall is one that the permit lets a run have. The
// Botanist's own grant accepts every wall: what a wall needs beside that, such as a gate in
// the environment, is the wall's to say.
func (p permit) accepts(provider string) bool { return p.grant == nil || p.grant.Accepts(provider) }

// whilePermitted returns a context that ends when what permits the call does: the Pollen
// is revoked or expires, or the grant is taken away. The function that it returns ends the
// watch, and has to be called.
func (s *Stem) whilePermitted(ctx context.Context, c *call) (context.Context, func()) {
	definition, err := capability.Lookup(c.name)
	if err != nil || c.actor.Botanist() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		look := time.NewTicker(permitPoll)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
				if err := s.stillPermitted(ctx, c, definition); err != nil && ctx.Err() == nil {
					cancel(err)
					return
				}
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-over
	}
}

// permitPoll is how soon work ends after its permit did.
const permitPoll = 500 * time.Millisecond

// stillPermitted asks again what was asked at the beginning. It compares the Pollen's id
// and not the token: a rotation does not end what runs.
func (s *Stem) stillPermitted(ctx context.Context, c *call, d capability.Definition) error {
	record, err := s.state.Pollen(ctx, c.actor.name)
	if err != nil {
		return err
	}
	if err := record.Check(time.Now(), &c.actor.uid); err != nil {
		return err
	}
	_, err = s.authorise(ctx, c.actor, d, c.input, 0) // its own run has begun
	return err
}
