//go:build linux

package stem

import (
	"os"
	"path/filepath"
	"testing"

	"tendril/run"
)

func TestALivingRunIsNotTakenOver(t *testing.T) {
	runs := t.TempDir()
	id := run.NewID()
	mine, err := claim(runs, id)
	if err != nil {
		t.Fatal(err)
	}
	if taken, err := takeOver(runs, id); taken != nil || err != nil {
		t.Fatalf("it was taken over while its owner lives: %v, %v", taken, err)
	}
	if _, err := claim(runs, id); err == nil {
		t.Fatal("it was claimed twice")
	}
	mine.lock.Close() // as the kernel does for a dead owner
	taken, err := takeOver(runs, id)
	if taken == nil || err != nil {
		t.Fatalf("it was not taken over although its owner is gone: %v", err)
	}
	if again, err := takeOver(runs, id); again != nil || err != nil {
		t.Fatalf("two took it over: %v, %v", again, err)
	}
	if err := taken.remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(runs, string(id))); !os.IsNotExist(err) {
		t.Errorf("its directory is still there: %v", err)
	}
}

func TestRecoveryEndsWhatNobodyOwns(t *testing.T) {
	s := bare(t)
	lost, living, strange := run.NewID(), run.NewID(), filepath.Join(s.runs, "not-a-run")
	for _, id := range []run.ID{lost, living} {
		if err := s.state.CreateRun(t.Context(), run.Run{ID: id, State: run.Queued, Pollen: "botanist", Substrate: run.Substrate{Path: "/r"}}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := claim(s.runs, living)
	if err != nil {
		t.Fatal(err)
	}
	defer p.remove()
	if err := os.Mkdir(strange, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[run.ID]run.State{lost: run.Lost, living: run.Queued} {
		if r, err := s.state.Get(t.Context(), id); err != nil || r.State != want {
			t.Errorf("%s, %v; want %s", r.State, err, want)
		}
	}
	r, _ := s.state.Get(t.Context(), lost)
	if r.Error == nil || r.Error.Hint == nil || r.Verdict == nil || *r.Verdict != run.Inconclusive {
		t.Errorf("the lost run says %+v, verdict %v", r.Error, r.Verdict)
	}
	if _, err := os.Lstat(strange); err != nil {
		t.Errorf("what is no run's was touched: %v", err)
	}
}
