//go:build linux

package stem

import (
	"os"
	"path/filepath"
	"sync"
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
	defer p.end()
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

// Whoever recovers looks at a run just while it ends: neither may stumble over the
// other.
func TestARunEndsWhileOthersRecover(t *testing.T) {
	runs := t.TempDir()
	ids := make(chan run.ID)
	var recovering sync.WaitGroup
	for range 4 {
		recovering.Go(func() {
			for id := range ids {
				if err := lookAtRun(runs, id); err != nil {
					t.Errorf("recovering: %v", err)
				}
			}
		})
	}
	for range 500 {
		id := run.NewID()
		p, err := claim(runs, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p.dir, "remains"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			ids <- id
		}
		if err := p.end(); err != nil {
			t.Errorf("ending: %v", err)
		}
	}
	close(ids)
	recovering.Wait()
	entries, err := os.ReadDir(runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != birthLock {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// lookAtRun does what recovery does with one run.
func lookAtRun(runs string, id run.ID) error {
	birth, err := lockFile(filepath.Join(runs, birthLock), true)
	if err != nil {
		return err
	}
	defer birth.Close()
	p, err := takeOver(runs, id)
	if err != nil || p == nil {
		return err
	}
	return p.remove()
}
