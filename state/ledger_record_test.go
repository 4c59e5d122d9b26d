package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
)

func openStore(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func denial(capability string) ledger.Entry {
	return ledger.Entry{Kind: ledger.Decision, Proof: ledger.ByNothing, Capability: capability, Decision: ledger.Deny, Fault: "denied"}
}

// busy calls do while the store is in a transaction, so that nothing can be recorded.
func busy(t *testing.T, s *Store, do func()) {
	t.Helper()
	r := run.Run{ID: run.NewID(), State: run.Queued, Pollen: "botanist"}
	if err := s.CreateRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.UpdateRun(t.Context(), r.ID, func(*run.Run) error { do(); return nil }); err != nil {
		t.Fatal(err)
	}
}

// TestCallsShareATransaction queues more calls than one transaction takes, with one
// among the first that cannot be written: all those share its error, and only those.
func TestCallsShareATransaction(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "state.db"))
	var queued []*recording
	busy(t, s, func() {
		for i := range MostEntries + 10 {
			r := &recording{entries: []ledger.Entry{denial(strconv.Itoa(i))}, done: make(chan struct{})}
			if i == 7 {
				r.entries[0].Kind = "note" // Record would have refused it by itself
			}
			queued = append(queued, r)
			s.recorder.add(r, s.serveRecordings)
		}
	})
	for i, r := range queued {
		<-r.done
		switch {
		case i < MostEntries && (r.err == nil || r.err != queued[0].err || r.rows != nil):
			t.Fatalf("call %d did not share the error of the first: %v", i, r.err)
		case i >= MostEntries && (r.err != nil || len(r.rows) != 1 || r.rows[0].Capability != strconv.Itoa(i)):
			t.Fatalf("call %d got %v, %v", i, r.rows, r.err)
		}
	}
	if size, err := s.LedgerSize(t.Context()); size != 1+10 || err != nil {
		t.Errorf("%d rows, %v", size, err)
	}
}

// TestEachCallGetsItsOwnRows has calls of several entries, which stay together.
func TestEachCallGetsItsOwnRows(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "state.db"))
	var working sync.WaitGroup
	for caller := range 20 {
		working.Go(func() {
			name := strconv.Itoa(caller)
			rows, err := s.Record(t.Context(), denial(name+" a"), denial(name+" b"), denial(name+" c"))
			if err != nil || len(rows) != 3 {
				t.Errorf("got %d rows, %v", len(rows), err)
				return
			}
			for i, row := range rows {
				if row.Capability != name+" "+string("abc"[i]) || row.Seq != rows[0].Seq+int64(i) {
					t.Errorf("row %d of call %s is %+v", i, name, row)
				}
			}
		})
	}
	working.Wait()
	if size, err := s.LedgerSize(t.Context()); size != 1+60 || err != nil {
		t.Errorf("%d rows, %v", size, err)
	}
}

func TestWhoLeavesTheQueueRecordsNothing(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "state.db"))
	busy(t, s, func() {
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 5 {
			waiting.Go(func() {
				if _, err := s.Record(ctx, denial("gone")); !errors.Is(err, context.Canceled) {
					t.Errorf("err = %v", err)
				}
			})
		}
		cancel()
		waiting.Wait() // while nothing can be recorded
	})
	if rows, err := s.Record(t.Context(), denial("stays")); err != nil || rows[0].Seq != 1 {
		t.Errorf("got %v, %v", rows, err)
	}
	r := &recording{}
	if s.recorder.withdraw(r) {
		t.Error("a call whose turn has come was taken out of the queue")
	}
}

func TestTakeIsBounded(t *testing.T) {
	var q recorder
	for _, entries := range []int{200, 56, 1, 256, 1} {
		q.queue = append(q.queue, &recording{entries: make([]ledger.Entry, entries)})
	}
	for _, want := range []int{2, 1, 1, 1, 0} {
		if taken := q.take(); len(taken) != want {
			t.Errorf("took %d calls, want %d", len(taken), want)
		}
	}
}

func TestRecordRefuses(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "state.db"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"one that is none": func() error { _, err := s.Record(t.Context(), denial("a"), ledger.Entry{Kind: "note"}); return err },
		"another first row": func() error {
			_, err := s.Record(t.Context(), ledger.Entry{Kind: ledger.Open, Opening: s.key.Opening()})
			return err
		},
		"an outcome of later": func() error {
			_, err := s.Record(t.Context(), ledger.Entry{Kind: ledger.Outcome, Of: new(int64(1))})
			return err
		},
		"too many":               func() error { _, err := s.Record(t.Context(), make([]ledger.Entry, MostEntries+1)...); return err },
		"one that nobody awaits": func() error { _, err := s.Record(ended, denial("a")); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("%s was recorded", name)
		}
	}
	// What is wrong with an entry is said at once, before it meets anybody else's.
	busy(t, s, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // if it waits
		defer cancel()
		if _, err := s.Record(ctx, ledger.Entry{Kind: "note"}); !fault.Is(err, fault.Internal) || ctx.Err() != nil {
			t.Errorf("while the store is busy: %v", err)
		}
	})
	if rows, err := s.Record(t.Context()); rows != nil || err != nil {
		t.Errorf("nothing: %v, %v", rows, err)
	}
	if size, err := s.LedgerSize(t.Context()); size != 1 || err != nil {
		t.Errorf("%d rows, %v", size, err)
	}
}

func TestCloseWaitsForWhatIsQueued(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "state.db"))
	r := &recording{entries: []ledger.Entry{denial("a")}, done: make(chan struct{})}
	busy(t, s, func() { s.recorder.add(r, s.serveRecordings) })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-r.done:
		if r.err != nil {
			t.Error(r.err)
		}
	default:
		t.Error("it is closed, and a call is still waiting")
	}
}

// TestRecordingWhileItIsClosed: a call is recorded or it returns an error, also while
// the store is closed.
func TestRecordingWhileItIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openStore(t, path)
	var acknowledged atomic.Int64
	var working sync.WaitGroup
	begun := make(chan struct{}, 8)
	for range 8 {
		working.Go(func() {
			for {
				if _, err := s.Record(t.Context(), denial("a")); err != nil {
					if !fault.Is(err, fault.Internal) {
						t.Errorf("err = %v", err)
					}
					return
				}
				if acknowledged.Add(1) <= 8 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range 8 {
		<-begun
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	working.Wait()
	if size, err := openStore(t, path).LedgerSize(t.Context()); size != 1+acknowledged.Load() || err != nil {
		t.Errorf("%d rows, %d were acknowledged, %v", size-1, acknowledged.Load(), err)
	}
}

// TestADatabaseFromBeforeTheLedger gets one when it is opened, and keeps its runs.
func TestADatabaseFromBeforeTheLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		migrations[0],
		fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = 1`, applicationID),
		`INSERT INTO runs VALUES ('r-01kb7q8m2v0000000000000000', 'lost', x'78', '{"run":"r-01kb7q8m2v0000000000000000","state":"lost"}')`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t, path)
	if rows, err := s.Record(t.Context(), denial("a")); err != nil || rows[0].Seq != 1 {
		t.Errorf("got %v, %v", rows, err)
	}
	if old, err := s.Get(t.Context(), "r-01kb7q8m2v0000000000000000"); err != nil || old.State != run.Lost {
		t.Errorf("got %v, %v", old.State, err)
	}
}

// BenchmarkRecord is one durable row after the other. What bounds it is the one fsync of
// the write-ahead log that each commit waits for.
func BenchmarkRecord(b *testing.B) {
	s := openStore(b, filepath.Join(b.TempDir(), "state.db"))
	for b.Loop() {
		if _, err := s.Record(context.Background(), denial("run.get")); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkRecordParallel is 64 callers, each of which waits for its row to be durable
// before it asks for the next. They share the fsync; what bounds them is the processor
// time of a row: three insertions, two hashes and its part of a signature.
func BenchmarkRecordParallel(b *testing.B) {
	s := openStore(b, filepath.Join(b.TempDir(), "state.db"))
	var left atomic.Int64
	left.Store(int64(b.N))
	var callers sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		callers.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := s.Record(context.Background(), denial("run.get")); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
