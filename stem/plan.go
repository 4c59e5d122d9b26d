//go:build linux

package stem

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tendril/capability"
	"tendril/fault"
	"tendril/rootfs"
	"tendril/run"
	"tendril/spelling"
	"tendril/substrate"
	"tendril/terrarium"
)

// plan is a request that makes sense on this host. Making one changes nothing:
// whatever is wrong with the request is said before anything exists.
type plan struct {
	call       *call
	work       capability.Work
	repository *substrate.Repository
	base       substrate.Commit
	leftOut    func() string // what of the working tree the base does not hold, in words; "" if nothing
	provider   terrarium.Provider
	view       rootfs.View
	toolchain  []string // directories that the view shows beside /usr
	programs   []terrarium.Program
	limits     terrarium.Spec // only its limits are set
	extra      []string       // what the environment holds beside what every Sprout has
	env        []string       // the whole of it
}

// Defaults for limits that neither the request nor the Botanist gives. The wall
// has its own for the others.
const (
	defaultWall   = time.Hour
	defaultOutput = 64 << 20
)

// defaults are the site's limits as a grant is measured by them: what a request may ask
// for of which its grant says nothing.
func (s *Stem) defaults() capability.Limits {
	d := s.config.Defaults
	if d.Wall == nil {
		d.Wall = new(capability.Duration(defaultWall))
	}
	if d.Output == nil {
		d.Output = new(capability.Bytes(defaultOutput))
	}
	if d.Pids == nil {
		d.Pids = new(terrarium.DefaultPids)
	}
	if d.Disk == nil {
		d.Disk = new(capability.Bytes(terrarium.DefaultDisk))
	}
	return d
}

func (s *Stem) plan(ctx context.Context, c *call, in capability.Work) (_ *plan, err error) {
	p := &plan{call: c, work: in, provider: c.provider}
	if err := s.refresh(ctx, in.Substrate); err != nil {
		return nil, err
	}
	if p.repository, err = s.open(ctx, in.Substrate); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.repository.Close())
		}
	}()
	base, err := s.baseOf(in)
	if err != nil {
		return nil, err
	}
	if p.base, err = p.repository.Resolve(ctx, base); err != nil {
		return nil, err
	}
	if err := s.mayBegin(ctx, p); err != nil {
		return nil, err
	}
	if err := p.repository.CheckWritable(); err != nil {
		return nil, err
	}
	p.limits = specLimits(c.permit.limits(in.Limits, s.config.Defaults))
	if err := terrarium.ValidateLimits(p.limits); err != nil {
		return nil, err
	}
	agent, err := s.startAgent(p)
	if err != nil {
		return nil, err
	}
	p.programs, p.extra = agent.programs, slices.Concat(c.permit.env(), agent.env, in.Env)
	if in.Image == "" { // what is in an image is known once it is there
		if err := s.planToolchain(p, agent); err != nil {
			return nil, err
		}
	}
	p.leftOut = s.lookAtWorktree(ctx, c, in)
	return p, nil
}

// onHost reports whether the work runs on the host itself, behind no wall.
func (p *plan) onHost() bool { return p.provider.Capabilities().Runtime == terrarium.RuntimeHost }

// planToolchain decides what of this host is seen inside, and refuses a command that will
// not be there.
func (s *Stem) planToolchain(p *plan, agent started) (err error) {
	if p.onHost() { // everything of the host is there
		p.env = environment([]string{"PATH=" + s.config.HostPath}, p.extra)
		return nil
	}
	p.toolchain = slices.Concat(s.config.Toolchain, agent.toolchain)
	if p.view, err = rootfs.HostView(p.toolchain, SproutUser); err != nil {
		return err
	}
	path := strings.Join(append(agent.toolchain, p.view.Path(s.config.HostPath)), ":")
	p.env = environment([]string{"PATH=" + path}, p.extra)
	return s.commandExists(p)
}

// mayBegin refuses a Pollen a base that nobody published: a stash, an object that was left
// behind, or a run's Fruit, unless it may see that run.
func (s *Stem) mayBegin(ctx context.Context, p *plan) error {
	if p.call.actor.Botanist() {
		return nil
	}
	id, err := run.ParseID(strings.TrimPrefix(p.work.Base, "tendril/"))
	if err == nil && strings.HasPrefix(p.work.Base, "tendril/") {
		r, err := s.state.Get(ctx, id)
		if err == nil && p.call.permit.scope.Sees(r.Substrate.Name, r.Pollen == p.call.actor.Name()) && r.Substrate == p.work.Substrate {
			return nil
		}
	}
	published, err := p.repository.Published(ctx, p.base.ID)
	if err != nil || published {
		return err
	}
	return p.call.deny(fault.New(fault.Denied, "the base %q is in the history of no branch and no tag", clip(p.work.Base)).
		WithRule("a Pollen begins from what was published").WithHint("name a branch, a tag, or a commit that one of them holds"))
}

// baseOf is the revision that a request starts from: its own, or the one that its
// Substrate's binding names; "" is HEAD.
func (s *Stem) baseOf(in capability.Work) (string, error) {
	if in.Base != "" || in.Dirty || in.Substrate.Name == "" {
		return in.Base, nil
	}
	bound, err := s.bound(in.Substrate.Name)
	if err != nil || bound.Branch == "" {
		return "", err
	}
	return "refs/heads/" + string(bound.Branch), nil
}

// close gives back what the plan holds.
func (p *plan) close() error {
	p.leftOut() // it holds the repository open
	return p.repository.Close()
}

// lookAtWorktree compares the working tree with HEAD while the wall is being made:
// nothing but a notice depends on it. The function that it returns waits for the
// answer, and can be called again.
func (s *Stem) lookAtWorktree(ctx context.Context, c *call, in capability.Work) func() string {
	if in.Dirty || !c.actor.Botanist() { // what is uncommitted is not a Pollen's to know

		return func() string { return "" }
	}
	answer := make(chan string, 1)
	go func() { answer <- s.leftOut(ctx, in) }()
	return sync.OnceValue(func() string { return <-answer })
}

// worktreeTime bounds the look at the working tree: a tree can be made that Git
// never gets to the end of, and a notice is not worth the wait.
const worktreeTime = 30 * time.Second

func (s *Stem) leftOut(ctx context.Context, in capability.Work) string {
	ctx, cancel := context.WithTimeoutCause(ctx, worktreeTime, fmt.Errorf("it takes longer than %v", worktreeTime))
	defer cancel()
	var dirty substrate.Dirty
	repository, err := s.open(ctx, in.Substrate)
	if err == nil {
		dirty, err = repository.Dirty(ctx)
		err = errors.Join(err, repository.Close())
	}
	switch {
	case err != nil:
		return fmt.Sprintf("whether the working tree has changes that the base leaves out is not known: %v", err)
	case dirty.Changed == 0 && dirty.Untracked == 0:
		return ""
	}
	return fmt.Sprintf("the working tree has %d changed and %d untracked files that the base leaves out (--dirty takes them along)", dirty.Changed, dirty.Untracked)
}

const sproutHome = "/home/sprout"

// sproutOwner owns what a base image holds.
var sproutOwner = substrate.Owner{UID: terrarium.DefaultUser.UID, GID: terrarium.DefaultUser.GID}

// environment is the whole environment of a Sprout: what the root file system says, what
// programs need to work, and what the request and the road add.
func environment(root, extra []string) []string {
	var env []string
	for _, variable := range slices.Concat(root, []string{
		"HOME=" + sproutHome, "USER=sprout", "LOGNAME=sprout", "SHELL=/bin/sh",
		"LANG=C.UTF-8", "TERM=dumb", "TMPDIR=/tmp",
		"GIT_CONFIG_NOSYSTEM=1",
	}, extra) {
		name, _, _ := strings.Cut(variable, "=")
		env = slices.DeleteFunc(env, func(have string) bool { return strings.HasPrefix(have, name+"=") })
		env = append(env, variable)
	}
	return env
}

// commandExists refuses a command that the search path inside will not find, and
// says where it is on this host. A path is judged inside: it may lie in the
// workspace.
func (s *Stem) commandExists(p *plan) error {
	command := p.work.Argv[0]
	if slices.ContainsFunc(p.programs, func(shown terrarium.Program) bool { return shown.Target == command }) {
		return nil
	}
	if strings.Contains(command, "/") && !filepath.IsAbs(command) {
		return nil
	}
	absence := p.view.Missing(command, insidePath(p.env))
	if absence.HostPath != "" && absence.Visible {
		return nil
	}
	if filepath.IsAbs(command) && (strings.HasPrefix(command, "/workspace/") || strings.HasPrefix(command, "/tmp/")) {
		return nil
	}
	return s.explainMissing(p, command)
}

func insidePath(env []string) string {
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			return value
		}
	}
	return ""
}

// explainMissing says why a command is not inside and what would put it there.
func (s *Stem) explainMissing(p *plan, command string) error {
	f := fault.New(fault.NotFound, "command %q does not exist inside", command)
	if !p.call.actor.Botanist() { // what else the host has is not a Pollen's to know
		return f.WithHint("give a program of the toolchain, or a path in the Substrate")
	}
	absence := p.view.Missing(command, s.config.HostPath)
	switch {
	case absence.HostPath == "":
		return f.WithHint("it is not on this host's PATH either: install it, or give a path in the Substrate")
	case absence.Key != "":
		return f.WithHint("on this host it is %s; to show it inside, put `%s` into tendril.yaml", absence.HostPath, absence.Key)
	case absence.Visible:
		return f.WithHint("on this host it is %s; give that path", absence.HostPath)
	default:
		return f.WithHint("on this host it is %s, in a directory that must not be shown inside", absence.HostPath)
	}
}

// specLimits are the limits of a request; what it leaves open comes from the
// Botanist, and is then a default that nobody insisted on.
func specLimits(asked, defaults capability.Limits) terrarium.Spec {
	return terrarium.Spec{
		CPUs:   limit(asked.CPUs, defaults.CPUs, 0, func(v float64) float64 { return v }),
		Memory: limit(asked.Memory, defaults.Memory, 0, func(v capability.Bytes) int64 { return int64(v) }),
		Disk:   limit(asked.Disk, defaults.Disk, 0, func(v capability.Bytes) int64 { return int64(v) }),
		Output: limit(asked.Output, defaults.Output, defaultOutput, func(v capability.Bytes) int64 { return int64(v) }),
		Pids:   limit(asked.Pids, defaults.Pids, 0, func(v int) int { return v }),
		Wall:   limit(asked.Wall, defaults.Wall, defaultWall, func(v capability.Duration) time.Duration { return time.Duration(v) }),
		Idle:   limit(asked.Idle, defaults.Idle, 0, func(v capability.Duration) time.Duration { return time.Duration(v) }),
	}
}

func limit[In any, Out float64 | int64 | int | time.Duration](asked, byDefault *In, otherwise Out, convert func(In) Out) terrarium.Limit[Out] {
	switch {
	case asked != nil:
		return terrarium.Limit[Out]{Value: convert(*asked), Required: true}
	case byDefault != nil:
		return terrarium.Limit[Out]{Value: convert(*byDefault)}
	default:
		return terrarium.Limit[Out]{Value: otherwise}
	}
}

// choose returns the wall of a request: the one that it names, or else the one that its
// grant or its Substrate names, or else the strongest that is ready and that the grant
// accepts. One that somebody named is used or refused, never replaced.
func (s *Stem) choose(ctx context.Context, in capability.Walled, p permit) (terrarium.Provider, error) {
	name, err := s.wantedProvider(in, p)
	if err != nil {
		return nil, err
	}
	var names, reasons []string
	for _, provider := range s.providers {
		if name != "" && provider.Name() != name {
			names = append(names, provider.Name())
			continue
		}
		if name == "" && provider.Capabilities().OnlyNamed {
			continue
		}
		if !p.accepts(provider.Name()) {
			reasons = append(reasons, provider.Name()+": the grant does not accept it")
			continue
		}
		err := provider.Ready(ctx)
		if err == nil {
			return provider, nil
		}
		if name != "" {
			return nil, err
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v%s", provider.Name(), err, hintOf(err)))
	}
	if name != "" {
		f := fault.New(fault.NotFound, "there is no provider %q", name)
		if nearest, ok := spelling.Nearest(name, names); ok {
			return nil, f.WithHint("did you mean %s?", nearest)
		}
		return nil, f.WithHint("there are: %s", strings.Join(names, ", "))
	}
	return nil, fault.New(fault.Unavailable, "no wall is ready on this host (%s)", strings.Join(reasons, "; "))
}

// wantedProvider is the name of the wall that somebody chose; "" if nobody did. The
// Substrate's is a default among those that the grant accepts, and no way around it.
func (s *Stem) wantedProvider(in capability.Walled, p permit) (string, error) {
	if name := in.Wall().Provider; name != "" {
		return name, nil
	}
	if p.grant != nil && p.grant.Provider != "" {
		return string(p.grant.Provider), nil
	}
	about := in.Subject().Substrate
	if about == nil || about.Name == "" {
		return "", nil
	}
	bound, err := s.bound(about.Name)
	if err != nil || bound.Provider == "" || !p.accepts(string(bound.Provider)) {
		return "", err
	}
	return string(bound.Provider), nil
}

func hintOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Hint != "" {
		return "; " + f.Hint
	}
	return ""
}

// record is the run as it is when nothing has been done yet.
func (p *plan) record(id run.ID) run.Run {
	return run.Run{
		ID: id, State: run.Queued, Pollen: p.call.actor.Name(),
		Substrate: p.work.Substrate, Dirty: p.work.Dirty, Provider: new(p.provider.Name()),
	}
}
