//go:build linux

package stem

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"tendril/ledger"
	"tendril/run"
	"tendril/substrate"
	"tendril/terrarium"
)

// eventLog appends to one run's events. What it hands on is durable, and in the
// order of the ids.
type eventLog struct {
	stem *Stem
	id   run.ID
	emit func(run.Event)
	mu   sync.Mutex
}

func (l *eventLog) append(ctx context.Context, events ...run.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	stored, err := l.stem.state.AppendEvents(ctx, l.id, events...)
	if err != nil {
		return err
	}
	for _, e := range stored {
		l.emit(e)
	}
	return nil
}

func (l *eventLog) emitAll(events []run.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.emit(e)
	}
}

// enter moves the run into the next state, durably, with what else is known.
func (g *growth) enter(ctx context.Context, next run.State, also func(*run.Run)) error {
	_, events, err := g.stem.state.UpdateRun(context.WithoutCancel(ctx), g.id, func(r *run.Run) error {
		r.State = next
		also(r)
		return nil
	})
	if err != nil {
		return err
	}
	g.events.emitAll(events)
	return nil
}

// warn tells the Botanist of something weaker than it could be. That the warning
// could not be stored shows in the next thing that is.
func (g *growth) warn(ctx context.Context, detail string) {
	_ = g.events.append(context.WithoutCancel(ctx), run.Event{Data: run.Warning{Detail: detail}})
}

// runChange is the ledger's row for a change of a run.
func (c *call) runChange(what string, r run.Run) ledger.Entry {
	return endOf(c.change(what, ""), what, r)
}

// endOf adds to a row what has become of a run: its state, and digests of what it made.
func endOf(e ledger.Entry, what string, r run.Run) ledger.Entry {
	e.Change, e.Run, e.State = what, string(r.ID), string(r.State)
	if r.Error != nil {
		e.Fault = string(r.Error.Kind)
	}
	e.Digests = map[string]string{}
	for name, commit := range map[string]*string{"base": r.Base, "commit": r.Commit} {
		if commit != nil {
			e.Digests[name] = "gitCommit:" + *commit
		}
	}
	return e
}

func recordRows(rows []terrarium.Row) []run.Row {
	list := make([]run.Row, len(rows))
	for i, r := range rows {
		list[i] = run.Row{Dimension: r.Dimension, Field: r.Field, Asked: r.Asked, Applied: r.Applied,
			How: string(r.How), Enforced: string(r.Enforced), Note: r.Note}
	}
	return list
}

// limitOf maps the fields of Spec to the words of the record.
var limitOf = map[string]run.Limit{
	"CPUs": run.CPU, "Memory": run.Memory, "Disk": run.Disk, "Pids": run.Pids,
	"Output": run.Output, "Wall": run.Wall, "Idle": run.Idle,
}

// unenforced says of a limit that was set and that nobody keeps as it is meant.
func unenforced(row terrarium.Row) string {
	limit, is := limitOf[row.Field]
	if !is || row.Asked == "0" || row.Asked == "0s" {
		return ""
	}
	switch row.Enforced {
	case terrarium.Sampled:
		return because(fmt.Sprintf("the %s limit is sampled, not enforced", limit), row.Note)
	case terrarium.NotKept:
		return because(fmt.Sprintf("the %s limit is not enforced", limit), row.Note)
	}
	return ""
}

func because(text, note string) string {
	if note == "" {
		return text
	}
	return text + ": " + note
}

func unenforcedLimits(rows []terrarium.Row) []run.Limit {
	list := []run.Limit{}
	for _, row := range rows {
		if unenforced(row) != "" {
			list = append(list, limitOf[row.Field])
		}
	}
	slices.Sort(list)
	return list
}

func recordFlags(flags []substrate.Flag) []run.Flag {
	list := make([]run.Flag, len(flags))
	for i, f := range flags {
		list[i] = run.Flag{Kind: string(f.Kind), Path: run.Path(f.Path), Note: f.Note}
	}
	return list
}
