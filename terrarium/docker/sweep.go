//go:build linux

package docker

import (
	"context"
	"errors"
	"os"

	"tendril/fault"
)

// Sweep implements [terrarium.Provider]. A container ends by itself when its Stem is gone,
// because its stream does; this is for what is left of it.
func (p *provider) Sweep(ctx context.Context, run, dir string) error {
	if p.unusable != nil {
		return p.unusable
	}
	found, err := p.daemon.labelled(ctx, map[string]string{labelSite: p.Site, labelRun: run})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range found {
		// Whatever the daemon takes for a match.
		if c.Labels[labelSite] == p.Site && c.Labels[labelRun] == run {
			errs = append(errs, p.end(ctx, c.ID))
		}
	}
	return errors.Join(append(errs, removeRemains(dir))...)
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
