//go:build linux

// Package host is the wall that is none: work runs on the host itself, as the account that
// runs the Stem, which can read and change whatever that account can.
//
// It is used only when somebody names it, and only where the Stem's own environment
// allows it. What it does for a run is to give it a workspace, a home and a /tmp of
// its own, to count what it uses, and to end all that descends from it. A PID namespace
// and a mount namespace are there for that and for nothing else.
//
// What it does not protect against: anything. It seals nothing and declares no seal. What
// a Sprout starts through a daemon of the host outlives the run, and every process of the
// host reaches the ports that a run listens on.
package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// AllowedBy is the variable of the Stem's own environment that allows this provider when
// it is "true".
const AllowedBy = "TENDRIL_ALLOW_HOST_EXECUTION"

// Config says where the provider finds its parts, and whether it may be used.
type Config struct {
	Stoma   string // the guest half of the Stoma, a static binary
	Allowed bool   // by whoever started the Stem; never by a request
}

// New returns the provider.
func New(c Config) terrarium.Provider { return &provider{c} }

type provider struct{ Config }

func (*provider) Name() string { return "host" }

func (*provider) Capabilities() terrarium.Capabilities {
	return terrarium.Capabilities{
		Primitive:    "none: the host itself",
		Runtime:      terrarium.RuntimeHost,
		SharedKernel: true,
		OnlyNamed:    true,
		Fields: map[string]terrarium.Enforcement{
			"Run":                 terrarium.ByHost,
			"Rootfs.Host.Dirs":    terrarium.ByHost, // they are there, as all the rest is
			"Rootfs.Image.Path":   terrarium.NotKept,
			"Rootfs.Image.Digest": terrarium.NotKept,
			"Rootfs.Authority":    terrarium.ByHost,
			"Rootfs.Programs":     terrarium.ByHost,
			"Workspace.Image":     terrarium.ByHost,
			"Workspace.Dir":       terrarium.ByHost,
			"Env":                 terrarium.ByHost,
			"User":                terrarium.NotKept,
			"CPUs":                terrarium.ByHost,
			"Memory":              terrarium.ByHost,
			"Disk":                terrarium.Sampled,
			"Output":              terrarium.ByHost,
			"Pids":                terrarium.ByHost,
			"Wall":                terrarium.ByHost,
			"Idle":                terrarium.ByHost,
			"Network":             terrarium.NotKept,
			"Listeners":           terrarium.ByHost,
			"WritableRoot":        terrarium.NotKept,
		},
	}
}

// Ready implements [terrarium.Provider].
func (p *provider) Ready(context.Context) error {
	if !p.Allowed {
		return fault.New(fault.Unavailable, "the provider host runs work on this host without any isolation, and the Stem was not started with leave to do that").
			WithRule("execution on the host is off unless the Stem's own environment allows it").
			WithHint("start the Stem with %s=true: a Sprout can then read and change whatever your account can", AllowedBy)
	}
	if _, err := os.Stat(p.Stoma); err != nil {
		return fault.New(fault.Unavailable, "the Stoma is missing: %w", err).WithHint("build tendril with `make`")
	}
	return confine.UserNamespacesWork()
}

// smallest is what a run needs.
var smallest = confine.Smallest{Memory: 64 << 20, Disk: 1 << 20}

// maxConns is how many connections a Terrarium may have open to the outside of it.
const maxConns = 1024

// Open implements [terrarium.Provider].
func (p *provider) Open(ctx context.Context, spec terrarium.Spec) (_ terrarium.Terrarium, err error) {
	if err := p.Ready(ctx); err != nil {
		return nil, err
	}
	limits, err := confine.LimitsOf(spec, smallest)
	if err != nil {
		return nil, err
	}
	if err := portsAreFree(spec.Listeners); err != nil {
		return nil, err
	}
	t := &open{Opened: confine.NewOpened(), spec: spec, limits: limits, place: placeBelow(spec.Workspace.Dir)}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close(context.WithoutCancel(ctx)))
		}
	}()
	root, err := t.place.make(spec, p.Stoma)
	if err != nil {
		return nil, err
	}
	if t.process, err = start(p.Stoma, arguments(spec, limits)); err != nil {
		return nil, err
	}
	if t.Confinement, err = confine.New(spec.Run, backstop(limits)); err != nil {
		return nil, err
	}
	pid := t.process.cmd.Process.Pid
	if err := errors.Join(confine.Record(t.place.record, pid), t.Confinement.Take(pid)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, t.process.kill)
	defer stop() // a second time, at the end, changes nothing
	if err := t.process.order(root); err != nil {
		return nil, t.process.notStarted(ctx, err)
	}
	if t.Client, err = stoma.Connect(ctx, t.process.carrier, stoma.Options{Conn: spec.ServeConn, MaxConns: maxConns}); err != nil {
		return nil, t.process.notStarted(ctx, err)
	}
	if err := terrarium.Plant(ctx, t.Client, spec.Workspace.Image); err != nil {
		return nil, t.process.notStarted(ctx, err)
	}
	if err := t.startWatching(ctx); err != nil {
		return nil, err
	}
	if !stop() { // and so it was killed
		return nil, t.process.notStarted(ctx, context.Cause(ctx))
	}
	return t, nil
}

// arguments are those of the guest half.
func arguments(spec terrarium.Spec, l confine.Limits) []string {
	args := []string{"host", "--plain", workspace, "--disk", strconv.FormatInt(l.Disk, 10), "--writable", "/tmp", "--writable", home}
	for _, listener := range spec.Listeners {
		args = append(args, "--listen", listener.String())
	}
	return args
}

// portsAreFree tells a port that somebody has from other failures. Between this look and
// the guest's own somebody may take it; then the guest says so.
func portsAreFree(listeners []terrarium.Listener) error {
	for _, l := range listeners {
		probe, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(l.Port))))
		if err != nil {
			return fault.New(fault.Unavailable, "the port %d of this host's loopback, where the run would listen for %s: %w", l.Port, l.Name, err).
				WithHint("runs on the host share its ports: wait for the other run, end what listens there, or use another provider")
		}
		probe.Close()
	}
	return nil
}

// open is one Terrarium of this provider.
type open struct {
	confine.Opened
	spec    terrarium.Spec
	limits  confine.Limits
	place   place
	process *process
}

// Close implements [terrarium.Terrarium].
func (t *open) Close(ctx context.Context) error {
	return t.Shut(ctx, func() error {
		if t.process == nil {
			return nil
		}
		return t.process.end(ctx)
	}, t.place.remove)
}

// Sweep implements [terrarium.Provider]. The guest half ends by itself when its Stem is
// gone, and with it all that is in its PID namespace; this is for what was killed before it
// could.
func (p *provider) Sweep(ctx context.Context, run, dir string) error {
	place := placeBelow(dir)
	if err := confine.Sweep(ctx, run, place.record); err != nil {
		return err // what runs there still uses it
	}
	return place.remove()
}

// place is what the provider has in the run's directory.
type place struct {
	dir    string
	record string // names the guest half for whoever comes after a Stem that was killed
}

func placeBelow(dir string) place {
	dir = filepath.Join(dir, "host")
	return place{dir, filepath.Join(dir, "record")}
}

// remove removes it, with directories that the Sprout closed to its own account. Nothing
// runs in it any more.
func (p place) remove() error {
	if err := os.RemoveAll(p.dir); err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	err := filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
	if err := errors.Join(err, os.RemoveAll(p.dir)); err != nil {
		return fmt.Errorf("removing what the run left: %w", err)
	}
	return nil
}
