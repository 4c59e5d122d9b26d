//go:build linux

package docker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tendril/erofs"
	"tendril/fault"
	"tendril/terrarium"
)

// tried makes sure that a runtime is what it is called: a container of it has to be what
// the wall opens. That is asked once of a daemon with its configuration, also by several
// processes if there is a place to remember it; every Terrarium is looked at again.
func (p *provider) tried(ctx context.Context, s support) error {
	p.asked.mu.Lock()
	defer p.asked.mu.Unlock()
	if p.asked.tried == s.instance || p.remembers(s.instance) {
		p.asked.tried = s.instance
		return nil
	}
	if err := p.trial(ctx, s); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return fault.New(fault.Unavailable, "the Docker daemon's runtime %s makes no container that the wall %s could be: %w", p.kind.runtime, p.kind.name, err).
			WithHint("%s", p.kind.remedy)
	}
	p.asked.tried = s.instance
	return p.remember(s.instance)
}

// trial opens a Terrarium with nothing in it.
func (p *provider) trial(ctx context.Context, s support) (err error) {
	dir, err := os.MkdirTemp("", "tendril-trial-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	base := filepath.Join(dir, "base.erofs")
	f, err := os.Create(base)
	if err != nil {
		return err
	}
	if err := errors.Join(erofs.New(f, erofs.Options{Time: time.Unix(1, 0)}).Close(), f.Close()); err != nil {
		return err
	}
	b, err := p.draw(terrarium.Spec{
		Run:       strings.ToLower(filepath.Base(dir)),
		Rootfs:    terrarium.Rootfs{Host: &terrarium.HostView{}},
		Workspace: terrarium.Workspace{Image: base, Dir: dir},
	}, s)
	if err != nil {
		return err
	}
	opened, err := p.build(ctx, b)
	if err != nil {
		return err
	}
	return opened.Close(context.WithoutCancel(ctx))
}

// memory is the file in which a daemon that was tried is remembered.
func (p *provider) memory() string { return filepath.Join(p.Store, "docker-"+p.kind.name) }

func (p *provider) remembers(instance string) bool {
	if p.Store == "" {
		return false
	}
	text, err := os.ReadFile(p.memory())
	return err == nil && string(text) == instance
}

func (p *provider) remember(instance string) error {
	if p.Store == "" {
		return nil
	}
	return replaceFile(p.memory(), instance)
}

// instanceOf is what a daemon and its configuration of the runtime are known by.
func instanceOf(parts ...any) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, parts...)))
}
