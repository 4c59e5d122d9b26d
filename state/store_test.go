package state_test

import (
	"context"
	"path/filepath"
	"testing"

	"tendril/run"
	"tendril/state"
)

func open(t testing.TB, path string) *state.Store {
	t.Helper()
	s, err := state.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newRun() run.Run {
	return run.Run{
		ID:        run.NewID(),
		State:     run.Queued,
		Pollen:    "botanist",
		Substrate: run.Substrate{Path: "/src/handbook\xff"},
	}
}

func create(t testing.TB, s *state.Store) run.Run {
	t.Helper()
	r := newRun()
	if err := s.CreateRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// to moves a run to a state by the states that lead there.
func to(t testing.TB, s *state.Store, id run.ID, states ...run.State) run.Run {
	t.Helper()
	var r run.Run
	for _, next := range states {
		var err error
		r, _, err = s.UpdateRun(t.Context(), id, func(r *run.Run) error { r.State = next; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "state.db")
	open(b, path)
	for b.Loop() {
		s, err := state.Open(context.Background(), path)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

func BenchmarkAppendOutput(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "state.db"))
	r := create(b, s)
	chunk := make([]byte, 32<<10)
	batch := make([]run.Event, 16)
	for i := range batch {
		batch[i].Data = run.OutputChunk{FD: 1, Bytes: chunk}
	}
	b.SetBytes(int64(len(batch) * len(chunk)))
	for b.Loop() {
		if _, err := s.AppendEvents(context.Background(), r.ID, batch...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "state.db"))
	r := create(b, s)
	for b.Loop() {
		if _, _, err := s.UpdateRun(context.Background(), r.ID, func(r *run.Run) error { r.Changed++; return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
