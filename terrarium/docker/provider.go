//go:build linux

// Package docker is the walls that a Docker daemon of this host makes.
package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
)

// Config says where the wall finds its parts.
type Config struct {
	Host  string // the daemon's socket, as unix:///PATH
	Stoma string // the guest half of the Stoma, a static binary
	Site  string // whose Terrariums these are: nobody else's are touched
}

// New returns the wall of namespaces and control groups.
func New(c Config) terrarium.Provider { return newProvider(c, "docker", "") }

func newProvider(c Config, name, runtime string) *provider {
	d, err := dial(c.Host)
	return &provider{Config: c, name: name, runtime: runtime, daemon: d, unusable: err}
}

type provider struct {
	Config
	name     string
	runtime  string // the daemon's name of it; "": its default
	daemon   *daemon
	unusable error // why there is no daemon
}

func (p *provider) Name() string { return p.name }

func (*provider) Capabilities() terrarium.Capabilities { return terrarium.Capabilities{} }

// Ready implements [terrarium.Provider].
func (p *provider) Ready(ctx context.Context) error {
	if p.unusable != nil {
		return p.unusable
	}
	return p.daemon.ping(ctx)
}

// Open implements [terrarium.Provider].
func (p *provider) Open(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	if p.unusable != nil {
		return nil, p.unusable
	}
	b, err := p.draw(spec)
	if err != nil {
		return nil, err
	}
	return p.build(ctx, b)
}

// maxConns is how many connections a Terrarium may have open to the outside of it.
const maxConns = 1024

func (p *provider) build(ctx context.Context, b blueprint) (_ terrarium.Terrarium, err error) {
	t := &open{provider: p, spec: b.spec, limits: b.limits, dir: b.spec.Workspace.Dir, exceeded: make(chan terrarium.LimitName, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := writeFiles(b); err != nil {
		return nil, err
	}
	if t.id, err = p.create(ctx, b); err != nil {
		return nil, err
	}
	conn, out, err := p.daemon.attach(ctx, t.id)
	if err != nil {
		return nil, err
	}
	t.carrier = &carrier{conn: conn, out: out, stderr: &tail{}}
	if err := p.daemon.start(ctx, t.id); err != nil {
		return nil, err
	}
	if t.stoma, err = stoma.Connect(ctx, t.carrier, stoma.Options{Conn: b.spec.ServeConn, MaxConns: maxConns}); err != nil {
		return nil, t.diagnose(ctx, err)
	}
	if err := t.plant(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// create makes the container, of an image that the daemon has by then.
func (p *provider) create(ctx context.Context, b blueprint) (string, error) {
	id, err := p.daemon.create(ctx, b.name, b.config, b.host)
	if !errors.Is(err, errNoImage) {
		return id, err
	}
	if err := p.bring(ctx, b.image); err != nil {
		return "", err
	}
	return p.daemon.create(ctx, b.name, b.config, b.host)
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
	provider *provider
	spec     terrarium.Spec
	limits   limits
	dir      string
	id       string
	carrier  *carrier
	stoma    *stoma.Client
	exceeded chan terrarium.LimitName

	closing  sync.Once
	closeErr error
}

func (t *open) Stoma() *stoma.Client                 { return t.stoma }
func (t *open) Exceeded() <-chan terrarium.LimitName { return t.exceeded }
func (t *open) Usage() terrarium.Usage               { return terrarium.Usage{} }
func (t *open) Boundary() []terrarium.Row            { return nil }

// plant brings the base into the workspace.
func (t *open) plant(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	written := make(chan error, 1)
	go func() { written <- errors.Join(writeTree(w, t.spec.Workspace.Image), w.Close()) }()
	err = t.stoma.Plant(ctx, r)
	r.Close()
	return errors.Join(err, <-written)
}

// diagnose turns a failure to start into what a person can act on.
func (t *open) diagnose(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("opening the container: %w", context.Cause(ctx))
	}
	said := strings.TrimSpace(t.carrier.stderr.String())
	return fault.New(fault.Unavailable, "the container did not start: %w (it said: %q)", err, said)
}

// Close implements [terrarium.Terrarium].
func (t *open) Close(ctx context.Context) error {
	t.closing.Do(func() {
		if t.stoma != nil {
			t.stoma.Close()
		} else if t.carrier != nil {
			t.carrier.Close()
		}
		var err error
		if t.id != "" {
			err = t.provider.daemon.remove(ctx, t.id)
		}
		t.closeErr = errors.Join(err, removeRemains(t.dir))
	})
	return t.closeErr
}

// Sweep implements [terrarium.Provider].
func (p *provider) Sweep(ctx context.Context, run, dir string) error {
	found, err := p.daemon.labelled(ctx, map[string]string{labelSite: p.Site, labelRun: run})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range found {
		errs = append(errs, p.daemon.remove(ctx, c.ID))
	}
	return errors.Join(append(errs, removeRemains(dir))...)
}

func removeRemains(dir string) error { return os.RemoveAll(filepath.Join(dir, "docker")) }
