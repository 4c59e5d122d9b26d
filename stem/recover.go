//go:build linux

package stem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
	"tendril/substrate"
)

// sweepTime bounds the removal of what one dead run left.
const sweepTime = 30 * time.Second

// recover ends every run whose owner is gone, and removes what it left: on the
// next start nothing is stuck. Runs that live keep their lock and are not touched.
func (s *Stem) recover(ctx context.Context) error {
	unended, err := s.state.Unended(ctx)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(s.runs)
	if err != nil {
		return fmt.Errorf("looking for abandoned runs: %w", err)
	}
	open := map[run.ID]bool{}
	for _, r := range unended {
		open[r.ID] = true
	}
	for _, e := range entries {
		if id, err := run.ParseID(e.Name()); err == nil {
			open[id] = true
		}
	}
	if len(open) == 0 {
		return nil
	}
	birth, err := lockFile(filepath.Join(s.runs, birthLock), true)
	if err != nil {
		return err
	}
	defer birth.Close()
	var errs []error
	for id := range open {
		if err := s.recoverRun(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("recovering run %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Stem) recoverRun(ctx context.Context, id run.ID) error {
	p, err := takeOver(s.runs, id)
	if err != nil || p == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	if err := s.sweep(ctx, id, p); err != nil {
		return errors.Join(err, p.lock.Close())
	}
	if err := s.settle(ctx, id); err != nil {
		return errors.Join(err, p.lock.Close())
	}
	return p.remove()
}

// sweep removes what the run's wall left, if it came to one.
func (s *Stem) sweep(ctx context.Context, id run.ID, p *plot) error {
	name, err := p.wall()
	if err != nil || name == "" {
		return err
	}
	for _, provider := range s.providers {
		if provider.Name() == name {
			return provider.Sweep(ctx, string(id), p.dir)
		}
	}
	return fault.New(fault.Unavailable, "its wall %q is not one of this tendril's", clip(name))
}

// settle gives a dead run its end: what its branch shows, or lost.
func (s *Stem) settle(ctx context.Context, id run.ID) error {
	r, err := s.state.Get(ctx, id)
	if err != nil || r.State.Ended() {
		return ignoreNotFound(err)
	}
	left := s.remainsOf(ctx, r)
	_, _, err = s.state.UpdateRun(ctx, id, func(r *run.Run) error {
		if r.State.Ended() {
			return nil
		}
		r.Verdict = new(run.Inconclusive)
		if r.Started != nil {
			r.DurationMS = new(time.Since(r.Started.Time).Milliseconds())
		}
		if left.commit == "" {
			r.State = run.Lost
			r.Error = &run.Error{Kind: fault.Internal, Detail: "the Stem that ran it was killed", Hint: new("run it again; nothing was left behind")}
			if left.err != nil {
				r.Error.Hint = new(fmt.Sprintf("run it again; its repository could not be looked at for what was left: %v", left.err))
			}
			return nil
		}
		r.State = run.Fruited
		if r.Stop != nil {
			r.State = run.Stopped
		}
		r.Commit, r.Branch = &left.commit, new(r.ID.Branch())
		r.Changed, r.Flags = left.changed, left.flags
		return nil
	}, func(r run.Run) ledger.Entry {
		// Nobody asked for it: the Stem found the run without its owner.
		return endOf(ledger.Entry{Kind: ledger.Change, Subject: r.Substrate.String()}, "run.recovered", r)
	})
	return err
}

// remains is what a dead run has left in its repository: a whole Fruit, or
// nothing.
type remains struct {
	commit  string // of the Fruit; "" if there is none
	changed int
	flags   []run.Flag
	err     error // why nobody knows
}

// remainsOf looks for the run's Fruit, since its owner may have died between making
// and recording it, and removes what it was half-way through.
func (s *Stem) remainsOf(ctx context.Context, r run.Run) remains {
	if r.State != run.Collecting {
		return remains{} // nothing is written into a repository before
	}
	repository, err := s.open(ctx, r.Substrate)
	if err != nil {
		return remains{err: err}
	}
	defer repository.Close()
	if err := repository.CleanUp(string(r.ID)); err != nil {
		return remains{err: err}
	}
	commit, err := repository.Resolve(ctx, "refs/heads/"+r.ID.Branch())
	if err != nil {
		return remains{err: ignoreNotFound(err)}
	}
	diff, err := repository.Diff(ctx, *r.Base, commit.ID, substrate.DiffOptions{FileBytes: 1, Bytes: 1}) // only what has changed is asked
	if err != nil {
		return remains{err: err}
	}
	left := remains{commit: commit.ID, changed: len(diff.Files), flags: recordFlags(diff.Flags)}
	for _, f := range diff.Files {
		if f.RenamedFrom != "" {
			left.changed++ // two paths
		}
	}
	return left
}
