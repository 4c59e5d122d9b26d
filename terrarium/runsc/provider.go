//go:build linux

// Package runsc is the embedded wall: gVisor's user-space kernel, linked into
// tendril itself, which re-executes as the sandbox. It needs no daemon, no image
// and no privilege, and works as root and as an ordinary user.
//
// What it promises: the Sprout's system calls are served by a kernel of its own,
// in processes of the host that hold no capability over it and are filtered by
// seccomp; it has no network but a loopback of its own; it sees the host's
// toolchain read-only and nothing else of the host; the Stoma on a pipe pair is
// the one way in and out. All of that is read back before the first exec.
//
// What it does not protect against: a defect in gVisor's kernel together with one
// in the host's; covert channels through shared hardware; and, for an ordinary
// user without a delegated cgroup, short peaks of memory and processor use between
// two looks from outside.
package runsc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"tendril/fault"
	"tendril/probe"
	"tendril/rootfs"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
	"tendril/terrarium/runsc/keeper"
)

// Config says where the wall finds its parts.
type Config struct {
	Program string // the static binary that re-executes as the sandbox: tendril itself
	Stoma   string // the guest half of the Stoma, a static binary
}

// New returns the provider.
func New(c Config) terrarium.Provider { return &provider{c} }

type provider struct{ Config }

func (*provider) Name() string { return "runsc" }

func (*provider) Capabilities() terrarium.Capabilities {
	return terrarium.Capabilities{
		Primitive: "gVisor's user-space kernel, linked in",
		Runtime:   "container",
		Seals: []string{
			probe.Network, probe.HostFiles, probe.Descriptors, probe.Environment, probe.User, probe.Capabilities,
			probe.RootReadonly, probe.PID1, probe.Devices, probe.Kernel, probe.KernelSurface, probe.Processes, probe.Limits,
		},
		Fields: map[string]terrarium.Enforcement{
			"Run":                 terrarium.ByHost,
			"Rootfs.Host.Dirs":    terrarium.ByHost,
			"Rootfs.Image.Path":   terrarium.ByHost,
			"Rootfs.Image.Digest": terrarium.ByHost,
			"Rootfs.Authority":    terrarium.ByHost,
			"Rootfs.Programs":     terrarium.ByHost,
			"Workspace.Image":     terrarium.ByHost,
			"Workspace.Dir":       terrarium.ByHost,
			"Env":                 terrarium.ByHost,
			"User":                terrarium.ByHost,
			"CPUs":                terrarium.ByHost,
			"Memory":              terrarium.ByHost,
			"Disk":                terrarium.ByHost,
			"Output":              terrarium.ByHost,
			"Pids":                terrarium.ByHost,
			"Wall":                terrarium.ByHost,
			"Idle":                terrarium.ByHost,
			"Network":             terrarium.ByHost,
			"Listeners":           terrarium.ByHost,
			"WritableRoot":        terrarium.NotKept,
		},
	}
}

// Ready implements [terrarium.Provider].
func (p *provider) Ready(context.Context) error {
	if _, err := os.Stat(p.Stoma); err != nil {
		return fault.New(fault.Unavailable, "the Stoma is missing: %w", err).WithHint("build tendril with `make`")
	}
	return confine.UserNamespacesWork()
}

// Open implements [terrarium.Provider].
func (p *provider) Open(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	b, err := p.draw(spec)
	if err != nil {
		return nil, err
	}
	return p.build(ctx, b)
}

// blueprint is everything that one Terrarium is made from, before anything of it
// exists.
type blueprint struct {
	spec     terrarium.Spec
	limits   confine.Limits
	view     rootfs.View
	bundle   bundle
	oci      *specs.Spec
	settings map[string]string // gVisor's flags, by name
}

// draw decides what a Terrarium consists of. It makes nothing.
func (p *provider) draw(spec terrarium.Spec) (blueprint, error) {
	limits, err := confine.LimitsOf(spec, smallest)
	if err != nil {
		return blueprint{}, err
	}
	var view rootfs.View // of an image: only what is laid over it
	if host := spec.Rootfs.Host; host != nil {
		view, err = rootfs.HostView(host.Dirs, rootfs.User{UID: limits.User.UID, GID: limits.User.GID, Name: "sprout", Home: "/home/sprout"})
		if err != nil {
			return blueprint{}, err
		}
	}
	if authority := spec.Rootfs.Authority; authority != nil {
		view = view.Trusting(authority)
	}
	for _, p := range spec.Rootfs.Programs {
		view = view.Showing(p.Source, p.Target)
	}
	dir := spec.Workspace.Dir
	b := bundleBelow(dir)
	if image := spec.Rootfs.Image; image != nil {
		b.root, view = image.Path, b.layOver(view)
	}
	return blueprint{
		spec: spec, limits: limits, view: view, bundle: b,
		oci:      ociSpec(spec, view, b, p.Stoma, limits),
		settings: settings(filepath.Join(dir, "gvisor")),
	}, nil
}

// maxConns is how many connections a Terrarium may have open to the outside of it.
const maxConns = 1024

// build makes the Terrarium and reads back what became of it.
func (p *provider) build(ctx context.Context, b blueprint) (_ terrarium.Terrarium, err error) {
	t := &open{Opened: confine.NewOpened(), provider: p, spec: b.spec, limits: b.limits, dir: b.spec.Workspace.Dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close(context.WithoutCancel(ctx)))
		}
	}()
	// The keeper waits for its order, and loads while the rest is made.
	if t.process, err = startKeeper(p.Program); err != nil {
		return nil, err
	}
	if err := b.bundle.write(b.view, b.oci); err != nil {
		return nil, err
	}
	if t.Confinement, err = confine.New(b.spec.Run, confine.Backstop(b.limits)); err != nil {
		return nil, err
	}
	pid := t.process.cmd.Process.Pid
	if err := errors.Join(confine.Record(filepath.Join(t.dir, keeperFile), pid), t.Confinement.Take(pid)); err != nil {
		return nil, err
	}
	err = t.process.order(ctx, keeper.Order{ID: b.spec.Run, Bundle: b.bundle.dir, Settings: b.settings})
	if err != nil {
		return nil, err
	}
	if t.Client, err = stoma.Connect(ctx, t.process.stream, stoma.Options{Conn: b.spec.ServeConn, MaxConns: maxConns}); err != nil {
		return nil, t.process.notStarted(ctx, err)
	}
	if t.inside, err = t.Client.Stat(ctx); err != nil {
		return nil, fmt.Errorf("reading back the limits that are kept inside: %w", err)
	}
	// The Stoma answers only after the sentry has installed its filters and
	// mounted everything: what is read now is what the Sprout will meet.
	if t.sentry, t.gofer, err = readBack(t.process.sentry, t.process.gofer, b.view, p.Stoma); err != nil {
		return nil, err
	}
	t.startWatching(b.bundle.scratch)
	return t, nil
}

// open is one Terrarium of this wall.
type open struct {
	confine.Opened
	provider *provider
	spec     terrarium.Spec
	limits   confine.Limits
	dir      string
	process  *process
	inside   stoma.Stat // before the first exec
	sentry   confine.State
	gofer    confine.State
}

// Close implements [terrarium.Terrarium].
func (t *open) Close(ctx context.Context) error {
	return t.Shut(ctx, func() error {
		if t.process == nil {
			return nil
		}
		return t.process.end(ctx)
	}, func() error { return removeRemains(t.dir) })
}

// removeRemains removes what the wall wrote in the run's directory.
func removeRemains(dir string) error {
	var errs []error
	for _, name := range []string{"bundle", "scratch", "gvisor", keeperFile} {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// Boundary implements [terrarium.Terrarium].
func (t *open) Boundary() []terrarium.Row {
	return boundary(t.spec, t.limits, t.Confinement, t.inside, t.sentry, t.gofer)
}
