//go:build linux

package stem

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tendril/capability"
	"tendril/run"
	"tendril/terrarium"
)

// stubborn is a wall whose daemon is gone: it opens nothing and removes nothing, until it
// is back.
type stubborn struct {
	*facade
	back  bool
	swept []string
}

func (w *stubborn) Open(context.Context, terrarium.Spec) (terrarium.Terrarium, error) {
	return nil, errors.New("the daemon went away")
}

func (w *stubborn) Sweep(_ context.Context, run, _ string) error {
	if !w.back {
		return errors.New("there is no daemon")
	}
	w.swept = append(w.swept, run)
	return nil
}

// What a wall could not remove is removed at the next start, by that wall alone.
func TestWhatStaysIsSweptAtTheNextStart(t *testing.T) {
	s := bare(t)
	wall := &stubborn{facade: &facade{name: "docker", runtime: "container"}}
	other := &stubborn{facade: &facade{name: "other", runtime: "container"}} // never back
	s.providers = []terrarium.Provider{wall, other}
	if _, err := s.Invoke(t.Context(), ByProcess(), "terrarium.probe", capability.ProbeInput{Provider: "docker"}); err == nil {
		t.Fatal("a wall that does not open was probed")
	}
	left := plots(t, s)
	if len(left) != 1 {
		t.Fatalf("of a wall that could not be removed %q is left", left)
	}
	if err := s.recover(t.Context()); err == nil || len(plots(t, s)) != 1 {
		t.Errorf("recovered without the wall: %v, and %q is left", err, plots(t, s))
	}
	wall.back = true
	if err := s.recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(wall.swept) != 1 || wall.swept[0] != left[0] || len(plots(t, s)) != 0 {
		t.Errorf("swept %q of %q, and %q is left", wall.swept, left, plots(t, s))
	}
}

// plots are the directories of runs.
func plots(t *testing.T, s *Stem) []string {
	t.Helper()
	entries, err := os.ReadDir(s.runs)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if _, err := run.ParseID(filepath.Base(e.Name())); err == nil {
			names = append(names, e.Name())
		}
	}
	return names
}
