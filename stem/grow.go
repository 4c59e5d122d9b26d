//go:build linux

package stem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	"tendril/capability"
	"tendril/fault"
	"tendril/ledger"
	"tendril/rootfs/image"
	"tendril/run"
	"tendril/stoma"
	"tendril/substrate"
	"tendril/terrarium"
)

// growth is one run while it lives. Its steps stand below in the order in which
// they happen.
type growth struct {
	stem    *Stem
	plan    *plan
	id      run.ID
	plot    *plot
	events  *eventLog
	started time.Time

	base      *substrate.Base
	image     *image.Image // nil: the root file system is a view of this host
	reach     *reach       // nil: nothing is reached
	completed run.State    // what the run ends in if nothing comes in between
	spec      terrarium.Spec
	terrarium terrarium.Terrarium
	boundary  []terrarium.Row
	process   *stoma.Process
	ending    ending
	fruit     *substrate.Fruit
	summary   stoma.Summary
	result    substrate.Result

	leftBehind []run.Flag // entries that cannot be in the result

	releaseImage func() // nil without an image
}

const (
	// openTime bounds the making of a wall, and closeTime its removal.
	openTime  = 2 * time.Minute
	closeTime = time.Minute
	// collectTime bounds the handing over of a stopped run's work.
	collectTime = 10 * time.Minute
)

// grow is a run whose work becomes a Fruit.
func (s *Stem) grow(ctx context.Context, c *call, in capability.GrowInput) (run.Run, error) {
	return s.live(ctx, c, in.Work, (*growth).bearFruit)
}

// live is the life of one run, of which steps is what it is for. Its result is the
// run's record; its error is for what kept the run from being recorded at all, and for
// a refusal.
func (s *Stem) live(ctx context.Context, c *call, work capability.Work, steps func(*growth, context.Context) error) (run.Run, error) {
	plan, err := s.plan(ctx, c, work) // is it sane: nothing exists yet
	if err != nil {
		return run.Run{}, err
	}
	defer plan.close()
	g, err := s.begin(ctx, plan) // durable before anything acts on it
	if err != nil {
		return run.Run{}, err
	}
	err = s.explain(steps(g, ctx))
	if errors.Is(err, context.Canceled) && ctx.Err() != nil && g.ending.stop == nil {
		g.ending.stop, err = g.cancelled(ctx), nil
	}
	return g.end(context.WithoutCancel(ctx), err)
}

// explain gives a full disk a remedy, where whoever met it knew none. A disk that is
// not the state directory's has been named by then.
func (s *Stem) explain(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Hint != "" || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return fault.New(fault.Unavailable, "%w", err).WithHint("make room on the file system of %s, or name a directory on a larger one with TENDRIL_STATE_DIR", s.config.Site.State)
}

// open goes from the base to the first command behind a wall. What it opens, end closes.
func (g *growth) open(ctx context.Context) error {
	if err := g.takeBase(ctx); err != nil {
		return err
	}
	if err := g.takeImage(ctx); err != nil {
		return err
	}
	if err := g.openWall(ctx); err != nil {
		return err
	}
	if err := g.bring(ctx); err != nil {
		return err
	}
	return g.firstExec(ctx)
}

// bearFruit goes from the base to the Fruit.
func (g *growth) bearFruit(ctx context.Context) error {
	if err := g.open(ctx); err != nil {
		return err
	}
	if err := g.work(ctx); err != nil {
		return errors.Join(err, g.salvage(context.WithoutCancel(ctx)))
	}
	return g.harvest(context.WithoutCancel(ctx), g.terrarium)
}

// begin records the run under a lock that says who owns it.
func (s *Stem) begin(ctx context.Context, p *plan) (*growth, error) {
	g := &growth{stem: s, plan: p, id: run.NewID(), started: time.Now()}
	var err error
	if g.plot, err = claim(s.runs, g.id); err != nil {
		return nil, err
	}
	if err := s.create(ctx, p, g.id); err != nil {
		return nil, errors.Join(err, g.plot.end())
	}
	g.events = &eventLog{stem: s, id: g.id, emit: func(e run.Event) { capability.Emit(ctx, e) }}
	return g, nil
}

// create records the run, if the grant has one left for today.
func (s *Stem) create(ctx context.Context, p *plan, id run.ID) error {
	created := p.call.runChange("run.created", p.record(id))
	created.Target = p.repository.CommonDir // what a name was bound to
	if g := p.call.permit.grant; g != nil && g.Daily.Runs != nil {
		return s.state.CreateRunWithin(ctx, p.record(id), int64(*g.Daily.Runs), created)
	}
	return s.state.CreateRun(ctx, p.record(id), created)
}

// takeBase makes the tree that the work starts from: a commit of the Substrate,
// or with --dirty a snapshot of its working tree.
func (g *growth) takeBase(ctx context.Context) error {
	if err := g.enter(ctx, run.Preparing, func(r *run.Run) { r.Started = new(run.At(g.started)) }); err != nil {
		return err
	}
	commit := g.plan.base
	if g.plan.work.Dirty {
		var err error
		if commit, err = g.plan.repository.Snapshot(ctx); err != nil {
			return err
		}
	}
	base, err := g.plan.repository.Base(ctx, commit, sproutOwner, func(done, total int) {
		capability.Progress(ctx, "preparing the base", int64(done), int64(total))
	})
	if err != nil {
		return err
	}
	g.base = base
	return nil
}

// openWall opens the Terrarium. It comes back with a boundary that was read back
// and is what was asked, or not at all.
func (g *growth) openWall(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTime, fault.New(fault.Unavailable, "the wall was not ready within %v", openTime))
	defer cancel()
	capability.Progress(ctx, "opening the Terrarium", 0, 0)
	spec := g.plan.limits
	spec.Run = string(g.id)
	if g.reach, err = g.stem.newReach(g.plan.call, g.id, g.events); err != nil {
		return err
	}
	spec.Listeners = g.reach.listeners(context.WithoutCancel(ctx))
	spec.Rootfs = g.root()
	spec.Workspace = terrarium.Workspace{Image: g.base.Image, Dir: g.plot.dir}
	spec.Env = g.plan.env
	if g.plan.provider.Capabilities().Keeps("User") {
		spec.User = terrarium.DefaultUser
	}
	if err := g.plot.builds(g.plan.provider.Name()); err != nil {
		return err
	}
	g.spec = spec
	opened, err := g.plan.provider.Open(ctx, spec)
	if err != nil {
		return errors.Join(err, g.plot.sweep(ctx, g.plan.provider))
	}
	g.terrarium, g.boundary = opened, opened.Boundary()
	if err := g.plan.call.permitted(fault.BrokenBoundary, "applied", g.plan.call.applied(g.boundary)); err != nil {
		return err
	}
	if g.plan.onHost() {
		g.warn(ctx, "nothing isolates this run from the host: the Sprout can read and change whatever this account can")
	}
	if left := g.plan.leftOut(); left != "" {
		g.warn(ctx, left)
	}
	for _, row := range g.boundary {
		if !g.plan.call.actor.Botanist() {
			row.Note = "" // it names groups and accounts of the host
		}
		if note := unenforced(row); note != "" {
			g.warn(ctx, note)
		}
	}
	return nil
}

// firstExec starts the Sprout's command: the first thing of the Sprout's that
// runs.
func (g *growth) firstExec(ctx context.Context) error {
	if err := g.enter(ctx, run.Running, g.describe); err != nil {
		return err
	}
	capability.Progress(ctx, "", 0, 0)
	request := stoma.ExecRequest{Argv: g.plan.work.Argv, Env: g.plan.env, Dir: "/workspace"}
	if size := g.plan.work.Terminal; size != nil {
		request.TTY = &stoma.Size{Rows: size.Rows, Cols: size.Cols}
	}
	process, err := g.terrarium.Stoma().Exec(ctx, request)
	var missing *stoma.ExecError
	if errors.As(err, &missing) {
		hint := "a path is looked up in /workspace; a program of this host has to be part of the toolchain view (docs/terrarium.md)"
		if g.image != nil {
			hint = "a path is looked up in /workspace; a program has to be in the image"
		}
		return fault.New(fault.NotFound, "command %q does not run inside: %s", g.plan.work.Argv[0], missing.Reason).WithHint("%s", hint)
	}
	if err != nil {
		return fault.New(fault.BrokenBoundary, "starting the command: %w", err)
	}
	g.process = process
	return nil
}

// work waits for the Sprout, and stops it when something else comes first. In
// the end nothing of it runs any more.
func (g *growth) work(ctx context.Context) error {
	defer g.process.Close()
	feeding := g.feed(ctx)
	output := newRecorder(g.plan.limits.Output.Value, g.events.append)
	recorded := make(chan error, 1)
	go func() { recorded <- output.record(context.WithoutCancel(ctx), g.process.Stdout, g.process.Stderr) }()

	g.ending = g.supervise(ctx, g.process, output)
	feeding()
	quiet, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if g.ending.err == nil {
		if err := g.terrarium.Stoma().Quiesce(quiet); err != nil {
			g.ending.err = fault.New(fault.BrokenBoundary, "ending what the Sprout left running: %w", err)
		}
	}
	if g.ending.err != nil {
		g.process.Close() // the streams end with it
	}
	if err := <-recorded; err != nil {
		return fmt.Errorf("recording the output: %w", err)
	}
	if late := g.reachedAtTheEnd(quiet, output); late != nil && g.ending.stop == nil {
		g.ending.stop = late
	}
	if g.ending.stop != nil && g.ending.stop.Limit != "" {
		if err := g.events.append(quiet, run.Event{Data: run.LimitReached{Limit: g.ending.stop.Limit}}); err != nil {
			return err
		}
	}
	return g.ending.err
}

// reachedAtTheEnd looks once more for a limit that was reached just before the
// command ended: a full disk or a full output makes a command fail before anybody
// looks again.
func (g *growth) reachedAtTheEnd(ctx context.Context, output *recorder) *run.Stop {
	select {
	case <-output.full:
		return &run.Stop{Limit: run.Output}
	case limit := <-g.terrarium.Exceeded():
		return &run.Stop{Limit: run.Limit(limit)}
	case limit := <-g.reach.limit():
		return &run.Stop{Limit: limit}
	default:
	}
	if g.ending.err != nil {
		return nil
	}
	stat, err := g.terrarium.Stoma().Stat(ctx)
	switch {
	case err != nil:
	case stat.ScratchFull():
		return &run.Stop{Limit: run.Disk}
	case stat.AtMax > 0:
		return &run.Stop{Limit: run.Pids}
	}
	return nil
}

// salvage hands over what a Terrarium left that ended without a word, if its wall can still
// read that.
func (g *growth) salvage(ctx context.Context) error {
	opening, cancel := context.WithTimeoutCause(ctx, openTime, fault.New(fault.Unavailable, "what the Terrarium left could not be read within %v", openTime))
	defer cancel()
	recovered, err := terrarium.Recover(opening, g.plan.provider, g.spec)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading what the Terrarium left: %w", err)
	}
	g.warn(ctx, "the Terrarium ended before its work was handed over; what it left was read in a fresh one, and files that were being written may be missing or incomplete")
	err = g.harvest(ctx, recovered)
	closing, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	return errors.Join(err, g.plot.close(closing, recovered))
}

// harvest makes the changed entries a commit on a branch of its own.
func (g *growth) harvest(ctx context.Context, from terrarium.Terrarium) error {
	ctx, cancel := context.WithTimeoutCause(ctx, collectTime, fault.New(fault.Unavailable, "the work could not be collected within %v", collectTime))
	defer cancel()
	// From here on a successor can finish the run: what ended it is known.
	err := g.enter(ctx, run.Collecting, g.describe)
	if err != nil {
		return err
	}
	if g.fruit, err = g.plan.repository.NewFruit(ctx, g.base.Commit, substrate.Limits{}); err != nil {
		return err
	}
	defer g.fruit.Discard()
	g.summary, err = from.Stoma().Collect(ctx, func(record stoma.Record) error {
		if record.Kind == stoma.Skip {
			g.leftBehind = append(g.leftBehind, run.Flag{Kind: "left-behind", Path: run.Path(record.Path),
				Note: "is not in the result: Git cannot hold it, it lies too deep, or it is larger than the disk limit"})
			return nil
		}
		return g.fruit.Add(substrate.Kind(record.Kind), record.Path, record.Size, record.Content)
	})
	if err != nil {
		return fmt.Errorf("collecting the work: %w", err)
	}
	g.result, err = g.fruit.Commit(ctx, substrate.Meta{
		Run: string(g.id), Pollen: g.plan.call.actor.Name(), Provider: g.madeBehind(), Time: time.Now(),
	})
	g.completed = run.Unchanged
	if g.result.Commit != "" {
		g.completed = run.Fruited
	}
	return err
}

// unisolated is said of every run on the host itself.
const unisolated = "nothing isolated this run from the host"

// madeBehind is what the Fruit says of the wall that it was made behind.
func (g *growth) madeBehind() string {
	name := g.plan.provider.Name()
	if g.plan.onHost() {
		name += " (" + unisolated + ")"
	}
	return name
}

// describe puts into the record what is known by now of base, boundary and Fruit.
func (g *growth) describe(r *run.Run) {
	if g.base != nil {
		r.Base = &g.base.Commit.ID
	}
	r.Boundary, r.Unenforced = recordRows(g.boundary), unenforcedLimits(g.boundary)
	r.Exit, r.Stop, r.Egress = g.ending.exit, g.ending.stop, g.reach.summary()
	r.Ignored, r.Skipped = g.summary.Ignored+g.result.Ignored, g.summary.Skipped
	r.Changed, r.Flags = g.result.Changed, append(recordFlags(g.result.Flags), g.leftBehind...)
	if g.result.Commit != "" {
		r.Commit, r.Branch = &g.result.Commit, &g.result.Branch
	}
	r.Partial = g.ending.stop != nil
}

// end closes what is open, gives the verdict, and records the end. broke is what
// ended the run early, if anything did.
func (g *growth) end(ctx context.Context, broke error) (run.Run, error) {
	closing, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	if g.terrarium != nil {
		broke = errors.Join(broke, g.plot.close(closing, g.terrarium))
	}
	g.reach.close()
	if g.base != nil {
		g.base.Release()
	}
	if g.releaseImage != nil {
		g.releaseImage()
	}
	// Nothing measures the host yet, so nothing can be called clean.
	verdict := run.VerdictGiven{Verdict: run.Inconclusive, Reasons: []string{"no observer watched the host during this run"}}
	if g.plan.onHost() {
		verdict.Reasons = append(verdict.Reasons, unisolated)
	}
	if err := g.events.append(ctx, run.Event{Data: verdict}); err != nil {
		broke = errors.Join(broke, err)
	}
	record, err := g.finish(ctx, broke, verdict.Verdict)
	if err != nil {
		return record, errors.Join(broke, err)
	}
	if err := g.plot.end(); err != nil {
		return record, fmt.Errorf("removing the run's directory: %w", err)
	}
	if _, err := g.stem.state.Prune(ctx, keepRuns); err != nil {
		return record, err
	}
	return record, nil
}

// finish records the state that the run ends in.
func (g *growth) finish(ctx context.Context, broke error, verdict run.Verdict) (run.Run, error) {
	usage, err := g.reach.usage(ctx)
	broke = errors.Join(broke, err)
	record, events, err := g.stem.state.UpdateRun(ctx, g.id, func(r *run.Run) error {
		g.describe(r)
		r.Usage = usage
		r.Verdict = &verdict
		r.DurationMS = new(time.Since(g.started).Milliseconds())
		r.Error = run.ErrorOf(broke)
		r.State = endState(*r, broke, g.completed)
		r.Partial = r.Partial || (broke != nil && r.Commit != nil)
		return nil
	}, func(r run.Run) ledger.Entry { return g.plan.call.runChange("run.ended", r) })
	g.events.emitAll(events)
	return record, err
}

// endState is what a run has become; completed is what it is if nothing stopped or
// broke it.
func endState(r run.Run, broke error, completed run.State) run.State {
	switch {
	case r.Stop != nil:
		return run.Stopped
	case broke != nil && r.State == run.Preparing && refusal(broke), broke != nil && r.State == run.Running && fault.Is(broke, fault.NotFound):
		return run.Refused
	case broke != nil:
		return run.Withered
	default:
		return completed
	}
}

// refusal reports whether the request itself was at fault.
func refusal(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Denied, fault.NeedsApproval, fault.Unavailable:
		return true
	}
	return false
}
