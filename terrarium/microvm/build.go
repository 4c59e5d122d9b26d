//go:build linux

package microvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// maxConns is how many connections a Terrarium may have open to the outside of it.
const maxConns = 1024

// open is one Terrarium of this wall.
type open struct {
	confine.Opened
	spec      terrarium.Spec
	blueprint blueprint
	names     names
	process   *process
	how       string        // what runs the guest's code
	inside    stoma.Stat    // before the first exec
	state     confine.State // of the machine's process
}

// build makes the Terrarium and reads back what became of it.
func (p *provider) build(ctx context.Context, b blueprint) (_ *open, err error) {
	t := &open{Opened: confine.NewOpened(),
		spec: b.spec, blueprint: b, names: namesIn(b.spec.Workspace.Dir, b.spec.Run, b.again),
	}
	var l *launch
	defer func() {
		if err != nil {
			if l != nil {
				err = errors.Join(err, l.abandon())
			}
			err = errors.Join(err, t.Close(context.WithoutCancel(ctx)))
		}
	}()
	plan, err := t.makeFiles(ctx)
	if err != nil {
		return nil, err
	}
	if l, err = p.machine.prepare(plan); err != nil {
		return nil, err
	}
	t.how = l.how + b.slow
	if t.process, err = startJail(p.Program, l.passed); err != nil {
		return nil, err
	}
	if err := l.started(); err != nil {
		return nil, fmt.Errorf("starting the machine: %w", err)
	}
	if t.Confinement, err = confine.New(t.names.group, b.backstop()); err != nil {
		return nil, err
	}
	pid := t.process.pid()
	if err := errors.Join(confine.Record(t.names.record, pid), t.Confinement.Take(pid)); err != nil {
		return nil, err
	}
	if err := t.process.order(l.order); err != nil {
		return nil, err
	}
	if err := t.boot(ctx, l); err != nil {
		return nil, err
	}
	// The Stoma answers only after the emulator has put its filter up and opened all that
	// it ever opens: what is read now is what the Sprout will meet.
	if t.state, err = p.readBack(t.process.pid(), plan, l); err != nil {
		return nil, err
	}
	if err := t.checkInside(); err != nil {
		return nil, err
	}
	t.startWatching()
	return t, nil
}

// makeFiles makes what the machine is started with.
func (t *open) makeFiles(ctx context.Context) (plan, error) {
	b := t.blueprint
	failed := func(err error) error {
		return fault.New(fault.Unavailable, "making the machine's files: %w", err).WithHint("free some disk, or make the site's directory writable")
	}
	if err := os.Mkdir(t.names.dir, 0o700); err != nil {
		return plan{}, failed(err)
	}
	if err := b.files.write(t.names.files); err != nil {
		return plan{}, failed(err)
	}
	scratch := filepath.Join(b.spec.Workspace.Dir, scratchFile)
	if !b.again {
		format, err := formatter()
		if err != nil {
			return plan{}, err
		}
		if err := makeScratch(ctx, format, scratch, b.limits.Disk); err != nil {
			return plan{}, failed(err)
		}
	}
	uid, err := accountFor(t.names.group)
	if err != nil {
		return plan{}, err
	}
	return plan{
		id: b.spec.Run, dir: t.names.dir, guest: b.guest, memoryMiB: b.memoryMiB(), cpus: b.processors(), uid: uid, kvm: b.kvm,
		maxFile: b.limits.Disk,
		drives: []drive{
			{"root", b.spec.Rootfs.Image.Path, false}, {"base", b.spec.Workspace.Image, false},
			{"files", t.names.files, false}, {"scratch", scratch, true},
		},
	}, nil
}

// boot waits until the Stoma speaks. Whatever the guest does instead ends at the deadline.
func (t *open) boot(ctx context.Context, l *launch) error {
	callers := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, l.boot, fmt.Errorf("the guest did not start within %s", l.boot))
	defer cancel()
	stream, err := l.connect(ctx, t.process.pid())
	l.closers = nil // connect has them
	if err == nil {
		t.Client, err = stoma.Connect(ctx, &carrier{stream, t.process}, stoma.Options{Conn: t.spec.ServeConn, MaxConns: maxConns})
	}
	if err == nil {
		if t.inside, err = t.Client.Stat(ctx); err == nil {
			return nil
		}
		err = fmt.Errorf("reading back the limits that are kept inside: %w", err)
	}
	switch {
	case callers.Err() != nil:
		return fmt.Errorf("opening the machine: %w", context.Cause(callers))
	case fault.Is(err, fault.BrokenBoundary):
		return err
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if refusal := t.process.refusal(); refusal != "" {
		return fault.New(fault.BrokenBoundary, "the Stoma does not work in what was made for it: %q: %w", refusal, err)
	}
	var ended *over
	if !errors.As(err, &ended) { // then it says so itself
		err = fmt.Errorf("%w (%s)", err, t.process.lastWords())
	}
	return fault.New(fault.Unavailable, "the machine did not start (%s): %w", t.how, err)
}

// Close implements [terrarium.Terrarium].
func (t *open) Close(ctx context.Context) error {
	return t.Shut(ctx, func() error {
		if t.process == nil {
			return nil
		}
		return t.process.end(ctx)
	}, func() error {
		return errors.Join(t.names.remove(), os.RemoveAll(filepath.Join(t.spec.Workspace.Dir, scratchFile)))
	})
}

// endMachine ends what a Terrarium of the run left running.
func endMachine(ctx context.Context, run, dir string) error {
	var errs []error
	for _, again := range []bool{false, true} {
		n := namesIn(dir, run, again)
		errs = append(errs, confine.Sweep(ctx, n.group, n.record))
	}
	return errors.Join(errs...)
}

// remove removes the files of one machine.
func (n names) remove() error {
	return errors.Join(os.RemoveAll(n.dir), os.RemoveAll(n.record), os.RemoveAll(n.files))
}

// removeRemains removes what the wall wrote in the run's directory.
func removeRemains(dir string) error {
	return errors.Join(namesIn(dir, "", false).remove(), namesIn(dir, "", true).remove(), os.RemoveAll(filepath.Join(dir, scratchFile)))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
