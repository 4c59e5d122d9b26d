//go:build linux

package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"tendril/fault"
)

// Sweep implements [terrarium.Provider]. A container ends by itself when its Stem is gone,
// because its stream does; this is for what is left of it.
func (p *provider) Sweep(ctx context.Context, run, dir string) error {
	if p.unusable != nil {
		return p.unusable
	}
	if err := p.sweep(ctx, run, dir); err != nil {
		return err
	}
	if id := recordedContainer(dir); id != "" {
		if err := endForgotten(ctx, id); err != nil {
			return err
		}
	}
	return removeRemains(dir)
}

// asking is a file that is there while the daemon is asked to make a container and to start
// it.
func asking(dir string) string { return filepath.Join(below(dir), "asking") }

const (
	// lateTime is how long a daemon may take to make or start a container that was asked for
	// by somebody who was killed then: it does not give up with the connection, and a
	// container that is removed meanwhile can come back to its list.
	lateTime = 2 * time.Second
	lateLook = 50 * time.Millisecond
)

// sweep removes the run's containers, and those that are still to come.
func (p *provider) sweep(ctx context.Context, run, dir string) error {
	_, settled := os.Stat(asking(dir)) // an error: nobody was asking
	late := time.NewTimer(lateTime)
	defer late.Stop()
	again := time.NewTicker(lateLook)
	defer again.Stop()
	for over := settled != nil; ; {
		found, err := p.find(ctx, run)
		if err != nil {
			return err
		}
		for _, id := range found {
			err = errors.Join(err, p.end(ctx, id))
		}
		if err != nil || over && len(found) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "the containers of the run %s do not go: %w", run, context.Cause(ctx))
		case <-late.C:
			over = true
		case <-again.C:
		}
	}
}

// find lists the run's containers.
func (p *provider) find(ctx context.Context, run string) ([]string, error) {
	found, err := p.daemon.labelled(ctx, map[string]string{labelSite: p.Site, labelRun: run})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, c := range found {
		// Whatever the daemon takes for a match.
		if c.Labels[labelSite] == p.Site && c.Labels[labelRun] == run {
			ids = append(ids, c.ID)
		}
	}
	return ids, nil
}

// end removes a container, with whatever runs in it.
func (p *provider) end(ctx context.Context, id string) error {
	if err := p.daemon.remove(ctx, id); err != nil {
		return fault.New(fault.KindOf(err), "the container %.12s is still there: %w", id, err).
			WithHint("it is removed when tendril is started again and the daemon answers")
	}
	return nil
}

func removeRemains(dir string) error { return os.RemoveAll(below(dir)) }
