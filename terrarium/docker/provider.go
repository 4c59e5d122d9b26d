//go:build linux

// Package docker is the walls that a Docker daemon of this host makes: of namespaces and
// control groups, and, with gVisor as the daemon's runtime, of a kernel of its own.
//
// What it promises: the container has no network but a loopback of its own, a root that is
// the host's toolchain or an image and cannot be written, scratch of a limited size in
// memory, and no way to the daemon. Behind docker it has no capability, and its system
// calls are filtered more strictly than Docker's own containers' are; behind gvisor they are
// served by gVisor's kernel, and the Stoma has an account and three capabilities of
// that kernel. What the daemon was asked for is compared, before anything of the Sprout
// runs, with what it says that it made, what the host's kernel keeps its processes in, and
// what is met inside. A Sweep takes what bears the labels of this site and the run, and
// nothing else.
//
// What it does not protect against: whoever may use the daemon's socket, who is root here;
// a defect in the host's kernel that a filtered system call reaches, behind docker; that the
// Sprout has the account of its Stoma there, whom it cannot trace or speak for, but can
// end, by lowering the limits of one of its threads, and whose number is the same on the
// host unless the daemon maps accounts. Limits are those
// that the daemon can keep: without delegated control groups a rootless one keeps none, and
// the rows say so.
package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// Config says where the wall finds its parts.
type Config struct {
	Host  string // the daemon's socket, as unix:///PATH
	Stoma string // the guest half of the Stoma, a static binary
	Site  string // whose Terrariums these are: nobody else's are touched
	Store string // a directory for what is remembered of a daemon; "": nothing is
}

// New returns the wall of namespaces and control groups.
func New(c Config) terrarium.Provider { return newProvider(c, runc) }

// NewGVisor returns the wall of gVisor's kernel, which the daemon has to have as a runtime.
func NewGVisor(c Config) terrarium.Provider { return newProvider(c, gvisor) }

func newProvider(c Config, k kind) *provider {
	d, err := dial(c.Host)
	return &provider{Config: c, kind: k, daemon: d, unusable: err}
}

type provider struct {
	Config
	kind     kind
	daemon   *daemon
	unusable error // why there is no daemon
	asked    asked
}

func (p *provider) Name() string { return p.kind.name }

func (p *provider) Capabilities() terrarium.Capabilities { return p.kind.capabilities() }

// Ready implements [terrarium.Provider].
func (p *provider) Ready(ctx context.Context) error {
	if _, err := os.Stat(p.Stoma); err != nil {
		return fault.New(fault.Unavailable, "the Stoma is missing: %w", err).WithHint("build tendril with `make`")
	}
	s, err := p.supports(ctx)
	if err != nil || !p.kind.own {
		return err
	}
	return p.tried(ctx, s)
}

// Open implements [terrarium.Provider].
func (p *provider) Open(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	s, err := p.supports(ctx)
	if err != nil {
		return nil, err
	}
	b, err := p.draw(spec, s)
	if err != nil {
		return nil, err
	}
	return p.build(ctx, b)
}

// maxConns is how many connections a Terrarium may have open to the outside of it.
const maxConns = 1024

// build makes the Terrarium and reads back what became of it.
func (p *provider) build(ctx context.Context, b blueprint) (_ terrarium.Terrarium, err error) {
	t := &open{Opened: confine.NewOpened(), provider: p, print: b}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := writeFiles(b); err != nil {
		return nil, err
	}
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	if err := terrarium.Plant(ctx, t.Client, b.spec.Workspace.Image); err != nil {
		return nil, t.diagnose(ctx, err)
	}
	if err := t.readBack(ctx); err != nil {
		return nil, err
	}
	t.startWatching()
	return t, nil
}

func writeFiles(b blueprint) error {
	if err := os.Mkdir(below(b.spec.Workspace.Dir), 0o755); err != nil {
		return fmt.Errorf("making the wall's files: %w", err)
	}
	for path, content := range b.files {
		if err := os.WriteFile(path, content, 0o444); err != nil {
			return fmt.Errorf("making the wall's files: %w", err)
		}
	}
	return nil
}

// open is one Terrarium of this wall.
type open struct {
	confine.Opened
	provider *provider
	print    blueprint
	id       string // of the container; "" before there is one
	carrier  *carrier
	meter    meter
	first    *confine.Held // PID 1 inside, or the sandbox; nil when it could not be held
}

func (t *open) Boundary() []terrarium.Row { return t.boundary() }

// start makes and starts the container, and shakes hands with the Stoma in it.
func (t *open) start(ctx context.Context) (err error) {
	d := t.provider.daemon
	if err := os.WriteFile(asking(t.print.spec.Workspace.Dir), nil, 0o600); err != nil {
		return fmt.Errorf("making the wall's files: %w", err)
	}
	if t.id, err = t.provider.create(ctx, t.print); err != nil {
		return err
	}
	if err := os.WriteFile(identity(t.print.spec.Workspace.Dir), []byte(t.id), 0o600); err != nil {
		return fmt.Errorf("making the wall's files: %w", err)
	}
	asked, err := d.inspect(ctx, t.id)
	if err != nil {
		return err
	}
	if err := t.print.readBackAsked(asked); err != nil {
		return err
	}
	if err := t.provider.readBackImage(ctx, asked.Image, t.print.image); err != nil {
		return err
	}
	conn, out, err := d.attach(ctx, t.id)
	if err != nil {
		return err
	}
	t.carrier = &carrier{conn: conn, out: out, stderr: &confine.Tail{}}
	// As with the making, a start that nobody waits for would go on beside the removal.
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
	defer cancel()
	if err := d.start(starting, t.id); err != nil {
		return t.print.notStarted(err)
	}
	if err := os.Remove(asking(t.print.spec.Workspace.Dir)); err != nil {
		return fmt.Errorf("removing the wall's files: %w", err)
	}
	if t.Client, err = stoma.Connect(ctx, t.carrier, stoma.Options{Conn: t.print.spec.ServeConn, MaxConns: maxConns}); err != nil {
		return t.diagnose(ctx, err)
	}
	return nil
}

// notStarted knows the one thing that a daemon with accounts of its own is likely to lack.
func (b blueprint) notStarted(err error) error {
	if !b.support.userns || !strings.Contains(err.Error(), "invalid argument") {
		return err
	}
	return fault.New(fault.Unavailable, "%w", err).
		WithHint("the daemon maps accounts, and perhaps not as many as the Sprout's number needs: give its user %d or more in /etc/subuid and /etc/subgid, and restart it", b.limits.User.UID+1)
}

// createTime bounds the making and the starting of a container. It is not given up with the caller: whether
// there is one has to be known, or nobody would remove it.
const createTime = 30 * time.Second

// create makes the container, of an image that the daemon has by then.
func (p *provider) create(ctx context.Context, b blueprint) (string, error) {
	make := func() (string, error) {
		if err := ctx.Err(); err != nil {
			return "", fmt.Errorf("opening the container: %w", context.Cause(ctx))
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
		defer cancel()
		return p.daemon.create(ctx, b.name, b.config, b.host)
	}
	id, err := make()
	if errors.Is(err, errNoImage) {
		if err := p.bring(ctx, b.image); err != nil {
			return "", err
		}
		id, err = make()
	}
	if err != nil && b.spec.WritableRoot && strings.Contains(err.Error(), "storage-opt") {
		err = fault.New(fault.Unavailable, "the provider %s cannot honour WritableRoot: the daemon's storage %s bounds no container's writes: %w", p.Name(), b.support.driver, err).
			WithHint("leave it out, or let the daemon store on XFS with the mount option pquota")
	}
	return id, err
}

// readBack compares the container with what was asked for: as the daemon has it, as the
// host's kernel has it, and as it is met from inside.
func (t *open) readBack(ctx context.Context) error {
	got, err := t.provider.daemon.inspect(ctx, t.id)
	if err != nil {
		return err
	}
	if err := t.print.readBackMade(got); err != nil {
		return err
	}
	group, err := t.print.readBackOutside(t.id, got.State.Pid)
	if err != nil {
		return err
	}
	if t.meter = group; group == nil {
		t.meter = answers{t.provider.daemon, t.id}
	}
	// Without the right to signal it, only the daemon can end it.
	t.first, _ = confine.Hold(got.State.Pid)
	seen, err := t.look(ctx, t.print.places())
	if err != nil {
		return err
	}
	return t.print.compare(seen)
}

// diagnose turns a failure to start into what a person can act on. What the Stoma said is
// what it met inside and refused.
func (t *open) diagnose(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("opening the container: %w", context.Cause(ctx))
	}
	said := strings.TrimSpace(t.carrier.stderr.String())
	if _, refusal, ok := strings.Cut("\n"+said, "\nstoma: "); ok {
		return fault.New(fault.BrokenBoundary, "the Stoma does not work in what was made for it: %s: %w", refusal, err)
	}
	if said != "" {
		err = fmt.Errorf("%w (it said: %q)", err, said)
	}
	return fault.New(fault.Unavailable, "the container did not start: %w", err)
}

// kill ends the container's processes at once, with or without the daemon.
func (t *open) kill() {
	if t.first != nil {
		_ = t.first.Signal(unix.SIGKILL) // an ordinary user may not; then it ends with its stream
	}
	t.carrier.Close()
}

// Close implements [terrarium.Terrarium].
func (t *open) Close(ctx context.Context) error {
	return t.Shut(ctx, func() error { return t.end(ctx) }, func() error {
		return removeRemains(t.print.spec.Workspace.Dir)
	})
}

// end ends what runs in the container and removes it.
func (t *open) end(ctx context.Context) error {
	if t.carrier != nil {
		t.kill()
	}
	var err error
	if t.id != "" {
		err = t.provider.end(ctx, t.id)
		if err == nil && t.Client == nil {
			err = endForgotten(ctx, t.id) // its start may have been cut off
		}
	}
	if t.first != nil {
		// Without its daemon the container's end is only on its way.
		err = errors.Join(err, t.first.AwaitExit(ctx))
		t.first.Release()
	}
	return err
}
