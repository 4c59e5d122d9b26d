//go:build linux

package stem

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"tendril/capability"
	"tendril/fault"
	"tendril/run"
)

// What is in this file keeps from a Pollen what a grant does not give: where things lie on
// the host, what went wrong inside the Stem, and what was never committed.

// fit is an output as the actor may see it.
func (c *call) fit(output any) any {
	if c.actor.Botanist() {
		return output
	}
	switch o := output.(type) {
	case run.Run:
		return withoutInternals(o)
	case capability.Pass:
		o.Run = withoutInternals(o.Run)
		return o
	case []run.Run:
		for i := range o {
			o[i] = withoutInternals(o[i])
		}
	}
	return output
}

func withoutInternals(r run.Run) run.Run {
	if r.Error != nil && r.Error.Kind == fault.Internal {
		r.Error = &run.Error{Kind: fault.Internal, Detail: "an error inside the Stem", Hint: new("the Botanist can see more of it: tendril run get " + string(r.ID))}
	}
	rows := make([]run.Row, len(r.Boundary))
	for i, row := range r.Boundary {
		row.Note = "" // names groups and accounts of the host
		rows[i] = row
	}
	r.Boundary = rows
	return r
}

// hide is an error as the actor may see it: without paths of the host.
func (c *call) hide(s *Stem, err error) error {
	var f *fault.Error
	if c.actor.Botanist() || !errors.As(err, &f) {
		return err
	}
	hidden := *f
	for _, place := range c.places(s) {
		hidden.Detail = strings.ReplaceAll(hidden.Detail, place.path, place.word)
		hidden.Hint = strings.ReplaceAll(hidden.Hint, place.path, place.word)
	}
	hidden.Err = nil // its text has the paths
	return &hidden
}

type place struct{ path, word string }

// places are the paths that an error may name, and what is said instead.
func (c *call) places(s *Stem) []place {
	list := []place{{s.config.Site.State, "the state directory"}, {s.config.Site.Config, "the configuration directory"}}
	name := ""
	if c.input != nil && c.input.Subject().Substrate != nil {
		name = c.input.Subject().Substrate.Name
	}
	if bound, err := s.bound(name); err == nil && bound.Path != "" {
		if real, err := filepath.EvalSymlinks(string(bound.Path)); err == nil {
			list = append(list, place{real, name})
		}
		list = append(list, place{string(bound.Path), name})
	}
	// One may be the beginning of another.
	slices.SortFunc(list, func(a, b place) int { return len(b.path) - len(a.path) })
	return list
}

// ended is the error of a call whose context ended: what ended it, and not what that made
// of the work.
func (c *call) ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	if cause := context.Cause(ctx); fault.KindOf(cause) == fault.Denied {
		return c.deny(cause)
	}
	return fault.New(fault.Unavailable, "%s was cancelled before it was done", c.name)
}

// published refuses a Pollen what is not in a commit: a grant is on a repository, and not on
// what its owner has lying beside it.
func (c *call) published() error {
	if work, ok := c.input.(overriding); ok && work.Overrides() != "" && !c.actor.Botanist() {
		return fault.New(fault.Denied, "it overrides the policy").WithRule("the policy is overridden by the Botanist alone").WithHint("leave out --override")
	}
	work, ok := c.input.(interface{ Snapshot() bool })
	if ok && work.Snapshot() && !c.actor.Botanist() {
		return fault.New(fault.Denied, "it asks for the working tree as it is, uncommitted files included").
			WithRule("a grant gives commits; the working tree is the Botanist's alone").WithHint("leave out --dirty, and have the changes committed")
	}
	return nil
}
