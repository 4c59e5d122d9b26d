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
	found, err := p.find(ctx, run, dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range found {
		errs = append(errs, p.end(ctx, id))
	}
	return errors.Join(append(errs, removeRemains(dir))...)
}

// asking is a file that is there while the daemon is asked for a container.
func asking(dir string) string { return filepath.Join(below(dir), "asking") }

const (
	// lateTime is how long a daemon may take to make a container that was asked for by
	// somebody who was killed then: it does not give up with the connection.
	lateTime = 3 * time.Second
	lateLook = 50 * time.Millisecond
)

// find lists the run's containers.
func (p *provider) find(ctx context.Context, run, dir string) ([]string, error) {
	late, cancel := context.WithTimeout(ctx, lateTime)
	defer cancel()
	again := time.NewTicker(lateLook)
	defer again.Stop()
	for {
		_, settled := os.Stat(asking(dir)) // an error: nobody is asking any more
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
		if len(ids) > 0 || settled != nil {
			return ids, nil
		}
		select {
		case <-late.Done():
			return nil, context.Cause(ctx)
		case <-again.C:
		}
	}
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
