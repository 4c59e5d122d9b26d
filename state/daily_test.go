package state_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"tendril/fault"
	"tendril/run"
	"tendril/state"
)

func begun(pollen, substrate string) run.Run {
	return run.Run{ID: run.NewID(), State: run.Queued, Pollen: pollen, Substrate: run.Substrate{Name: substrate}}
}

// However many ask at once, no more begin than may.
func TestNoMoreRunsADayThanMay(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state", "state.db"))
	const most = 5
	var wg sync.WaitGroup
	var mu sync.Mutex
	kinds := map[fault.Kind]int{}
	for range 3 * most {
		wg.Go(func() {
			err := s.CreateRunWithin(t.Context(), begun("ci-docs", "handbook"), most)
			mu.Lock()
			defer mu.Unlock()
			kinds[fault.KindOf(err)]++
		})
	}
	wg.Wait()
	if kinds[""] != most || kinds[fault.Denied] != 2*most {
		t.Errorf("%v; %d may begin", kinds, most)
	}
	if err := s.CreateRunWithin(t.Context(), begun("another", "handbook"), most); err != nil {
		t.Errorf("another Pollen's runs are counted: %v", err)
	}
}

// A run that is forgotten has still been one of that day.
func TestForgottenRunsCount(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state", "state.db"))
	r := begun("ci-docs", "handbook")
	if err := s.CreateRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.UpdateRun(t.Context(), r.ID, func(r *run.Run) error {
		r.State = run.Lost
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if pruned, err := s.Prune(t.Context(), 0); err != nil || len(pruned) != 1 {
		t.Fatal(pruned, err)
	}
	if n, err := s.RunsOn(t.Context(), "ci-docs", time.Now()); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := s.RunsOn(t.Context(), "ci-docs", time.Now().Add(24*time.Hour)); n != 0 || err != nil {
		t.Errorf("tomorrow: %d, %v", n, err)
	}
}

func TestOnlyVisibleRunsAreListed(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state", "state.db"))
	for _, r := range []run.Run{begun("a", "one"), begun("b", "one"), begun("a", "two"), begun("b", "two"), begun("a", "three")} {
		if err := s.CreateRun(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		visible []state.Visible
		want    int
	}{
		"all":                      {nil, 5},
		"none":                     {[]state.Visible{}, 0},
		"those that one began":     {[]state.Visible{{"one", "a"}}, 1},
		"those of a Substrate":     {[]state.Visible{{"one", ""}}, 2},
		"some and some":            {[]state.Visible{{"one", "a"}, {"two", ""}}, 3},
		"a Substrate without runs": {[]state.Visible{{"four", ""}}, 0},
	} {
		list, err := s.List(t.Context(), state.Filter{Visible: c.visible}, 10, "")
		if err != nil || len(list) != c.want {
			t.Errorf("%s: %d runs, %v; want %d", name, len(list), err, c.want)
		}
	}
}
