package state_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tendril/fault"
	"tendril/run"
	"tendril/state"
)

func TestARunComesBackAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	want := create(t, s)
	to(t, s, want.ID, run.Preparing)
	want, _, err := s.UpdateRun(t.Context(), want.ID, func(r *run.Run) error {
		r.State = run.Running
		r.Base = new("0123")
		r.Branch = new(r.ID.Branch())
		r.Commit = new("4567")
		r.Provider = new("runsc")
		r.Exit = &run.Exit{Signal: new(9)}
		r.Stop = &run.Stop{Cancel: "botanist"}
		r.Partial = true
		r.Verdict = new(run.Inconclusive)
		r.Changed, r.Ignored, r.Skipped, r.Dirty = 3, 4, 5, true
		r.Flags = []run.Flag{{Kind: "executable", Path: "a\xff\nb", Note: "it runs"}}
		r.Boundary = []run.Row{{Dimension: "resources", Field: "Memory", Asked: "4GiB", Applied: "4GiB", How: "inspect", Enforced: "host"}}
		r.Unenforced = []run.Limit{run.CPU}
		r.Review = new(run.Accepted)
		r.Error = run.ErrorOf(fault.New(fault.Invalid, "no such base").WithRule("base").WithHint("name another"))
		r.Started = new(run.At(time.Now()))
		r.DurationMS = new(int64(812))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	got, err := open(t, path).Get(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEveryTransitionIsChecked(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	ways := map[run.State][]run.State{
		run.Queued:     nil,
		run.Preparing:  {run.Preparing},
		run.Running:    {run.Preparing, run.Running},
		run.Collecting: {run.Preparing, run.Running, run.Collecting},
		run.Fruited:    {run.Preparing, run.Running, run.Collecting, run.Fruited},
		run.Unchanged:  {run.Preparing, run.Running, run.Collecting, run.Unchanged},
		run.Passed:     {run.Preparing, run.Running, run.Passed},
		run.Refused:    {run.Refused},
		run.Withered:   {run.Withered},
		run.Stopped:    {run.Stopped},
		run.Lost:       {run.Lost},
	}
	for _, from := range run.States() {
		for _, next := range run.States() {
			if from == next {
				continue
			}
			r := create(t, s)
			to(t, s, r.ID, ways[from]...)
			before := events(t, s, r.ID)
			_, _, err := s.UpdateRun(t.Context(), r.ID, func(r *run.Run) error { r.State = next; return nil })
			allowed := run.Transition(from, next) == nil
			if (err == nil) != allowed {
				t.Errorf("%s to %s: %v", from, next, err)
			}
			got, gotErr := s.Get(t.Context(), r.ID)
			if gotErr != nil {
				t.Fatal(gotErr)
			}
			added := events(t, s, r.ID)[len(before):]
			if !allowed {
				if got.State != from || len(added) != 0 {
					t.Errorf("%s to %s was refused and left %s and %d events", from, next, got.State, len(added))
				}
				continue
			}
			if got.State != next || len(added) != 1 || added[0].Data != (run.StateChange{State: next}) {
				t.Errorf("%s to %s left %s and %v", from, next, got.State, added)
			}
		}
	}
}

func events(t testing.TB, s *state.Store, id run.ID) []run.Event {
	t.Helper()
	var all []run.Event
	for after := int64(0); ; {
		page, err := s.Events(t.Context(), id, after, state.MostEvents)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		after = page[len(page)-1].ID
	}
}

func TestCreateRunRefuses(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	r := create(t, s)
	if err := s.CreateRun(t.Context(), r); err == nil {
		t.Error("a run was made twice")
	}
	for _, test := range []struct {
		name   string
		change func(*run.Run)
	}{
		{"no id", func(r *run.Run) { r.ID = "" }},
		{"an id that is a path", func(r *run.Run) { r.ID = "../../../etc/passwd" }},
		{"a state to begin with", func(r *run.Run) { r.State = run.Running }},
		{"no state", func(r *run.Run) { r.State = "" }},
	} {
		r := newRun()
		test.change(&r)
		if err := s.CreateRun(t.Context(), r); err == nil {
			t.Errorf("%s was taken", test.name)
		}
	}
}

func TestUpdateRunRefuses(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	living, ended := create(t, s), create(t, s)
	to(t, s, ended.ID, run.Refused)
	cause := errors.New("changed my mind")
	for _, test := range []struct {
		name   string
		id     run.ID
		change func(*run.Run) error
		want   string
	}{
		{"another id", living.ID, func(r *run.Run) error { r.ID = run.NewID(); return nil }, "cannot become another run"},
		{"another pollen", living.ID, func(r *run.Run) error { r.Pollen = "ann"; return nil }, "cannot become another run"},
		{"another Substrate", living.ID, func(r *run.Run) error { r.Substrate.Path = "/x"; return nil }, "cannot become another run"},
		{"an unknown state", living.ID, func(r *run.Run) error { r.State = "done"; return nil }, `"done" is not a state`},
		{"a change of mind", living.ID, func(r *run.Run) error { r.Changed = 9; return cause }, "changed my mind"},
		{"an end that is changed", ended.ID, func(r *run.Run) error { r.Changed = 9; return nil }, "only its review may change"},
		{"an end that is left", ended.ID, func(r *run.Run) error { r.State = run.Lost; return nil }, "cannot become lost"},
	} {
		_, _, err := s.UpdateRun(t.Context(), test.id, test.change)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
		if test.name == "a change of mind" && !errors.Is(err, cause) {
			t.Errorf("the caller's own error did not come back: %v", err)
		}
		got, err := s.Get(t.Context(), test.id)
		if err != nil {
			t.Fatal(err)
		}
		if got.Changed != 0 {
			t.Errorf("%s: part of it was stored", test.name)
		}
	}
	if r, _, err := s.UpdateRun(t.Context(), ended.ID, func(r *run.Run) error { r.Review = new(run.Rejected); return nil }); err != nil || *r.Review != run.Rejected {
		t.Errorf("the review of an ended run: %v", err)
	}
	if _, _, err := s.UpdateRun(t.Context(), run.NewID(), func(*run.Run) error { return nil }); !fault.Is(err, fault.NotFound) {
		t.Errorf("a run that there is not: %v", err)
	}
}

// TestUpdateRunKeepsWhatItGaveOut: a change that appends to a list of the
// record does not reach into a record that was returned before.
func TestUpdateRunKeepsWhatItGaveOut(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	id := create(t, s).ID
	add := func(limit run.Limit) run.Run {
		r, _, err := s.UpdateRun(t.Context(), id, func(r *run.Run) error { r.Unenforced = append(r.Unenforced, limit); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := add(run.CPU)
	add(run.Memory)
	if !slices.Equal(first.Unenforced, []run.Limit{run.CPU}) {
		t.Errorf("got %v", first.Unenforced)
	}
}

func TestList(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	var all []run.ID // the newest first
	for i := range 9 {
		r := newRun()
		if i%3 == 0 {
			r.Substrate = run.Substrate{Name: "handbook"}
		}
		if err := s.CreateRun(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if i >= 5 {
			to(t, s, r.ID, run.Refused)
		}
		all = append(all, r.ID)
	}
	slices.Sort(all)
	slices.Reverse(all)
	list := func(filter state.Filter, limit int, after run.ID) []run.ID {
		t.Helper()
		runs, err := s.List(t.Context(), filter, limit, after)
		if err != nil {
			t.Fatal(err)
		}
		ids := []run.ID{}
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		return ids
	}
	if got := list(state.Filter{}, 100, ""); !slices.Equal(got, all) {
		t.Errorf("all: %v, want %v", got, all)
	}
	var paged []run.ID
	for after := run.ID(""); ; after = paged[len(paged)-1] {
		page := list(state.Filter{}, 4, after)
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
	}
	if !slices.Equal(paged, all) {
		t.Errorf("by pages: %v, want %v", paged, all)
	}
	if got := list(state.Filter{State: run.Refused}, 100, ""); len(got) != 4 {
		t.Errorf("%d runs are refused, want 4", len(got))
	}
	if got := list(state.Filter{Substrate: run.Substrate{Name: "handbook"}}, 100, ""); len(got) != 3 {
		t.Errorf("%d runs on handbook, want 3", len(got))
	}
	if got := list(state.Filter{Substrate: run.Substrate{Path: "/src/handbook\xff"}, State: run.Refused}, 100, ""); len(got) != 3 {
		t.Errorf("%d refused runs on the path, want 3", len(got))
	}
	for _, limit := range []int{-1, 0, state.MostRuns + 1} {
		if _, err := s.List(t.Context(), state.Filter{}, limit, ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("a limit of %d: %v", limit, err)
		}
	}
	unended, err := s.Unended(t.Context())
	if err != nil || len(unended) != 5 {
		t.Errorf("%d runs have not ended, want 5 (%v)", len(unended), err)
	}
	if !slices.IsSortedFunc(unended, func(a, b run.Run) int { return strings.Compare(string(a.ID), string(b.ID)) }) {
		t.Error("the oldest does not come first")
	}
}

func TestEventsComeBackAsTheyWere(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	other, r := create(t, s), create(t, s)
	data := []run.Data{
		run.OutputChunk{FD: 1, Bytes: []byte("\x00\xff\x1b[2J\n")},
		run.OutputChunk{FD: 2, Bytes: []byte{}},
		run.OutputChunk{FD: 1, Bytes: bytes.Repeat([]byte{0xfe}, state.LargestChunk)},
		run.LimitReached{Limit: run.Disk},
		run.Warning{Detail: "a <b> & c", Hint: new("d")},
		run.Warning{Detail: "without"},
		run.EgressDecision{Destination: "example.com:443", Allowed: true, Rule: "grant"},
		run.VerdictGiven{Verdict: run.Inconclusive, Reasons: []string{"nothing measured it"}},
	}
	var batch []run.Event
	for _, d := range data {
		batch = append(batch, run.Event{Data: d})
	}
	stored, err := s.AppendEvents(t.Context(), r.ID, batch...)
	if err != nil {
		t.Fatal(err)
	}
	got := events(t, s, r.ID)[1:] // the first says that it is queued
	if diff := cmp.Diff(stored, got); diff != "" {
		t.Error(diff)
	}
	for i, e := range got {
		if e.ID != int64(i)+2 || e.Run != r.ID || e.Time.IsZero() {
			t.Errorf("event %d is %d of %s at %v", i, e.ID, e.Run, e.Time)
		}
		if diff := cmp.Diff(data[i], e.Data); diff != "" {
			t.Error(diff)
		}
	}
	if rest, err := s.Events(t.Context(), r.ID, got[4].ID, 2); err != nil || len(rest) != 2 || rest[0].ID != got[5].ID {
		t.Errorf("two after %d: %v, %v", got[4].ID, rest, err)
	}
	if len(events(t, s, other.ID)) != 1 {
		t.Error("another run got them")
	}
}

func TestAppendEventsRefuses(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	r := create(t, s)
	for _, data := range []run.Data{
		nil,
		run.OutputChunk{FD: 0, Bytes: []byte("x")},
		run.OutputChunk{FD: 3, Bytes: []byte("x")},
		run.OutputChunk{FD: 1, Bytes: make([]byte, state.LargestChunk+1)},
		run.Warning{Detail: strings.Repeat("x", 1<<20)},
	} {
		good := run.Event{Data: run.LimitReached{Limit: run.Disk}}
		if _, err := s.AppendEvents(t.Context(), r.ID, good, run.Event{Data: data}); err == nil {
			t.Errorf("%.40v was taken", data)
		}
	}
	if n := len(events(t, s, r.ID)); n != 1 {
		t.Errorf("part of a refused batch was stored: %d events", n)
	}
	if _, err := s.AppendEvents(t.Context(), run.NewID(), run.Event{Data: run.LimitReached{}}); !fault.Is(err, fault.NotFound) {
		t.Errorf("an event of no run: %v", err)
	}
}

// TestEventsBoundsAPage: a page stops at its size, and the pages together hold
// everything.
func TestEventsBoundsAPage(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	r := create(t, s)
	const chunks = 100
	batch := make([]run.Event, chunks)
	for i := range batch {
		batch[i].Data = run.OutputChunk{FD: 1, Bytes: bytes.Repeat([]byte{byte(i)}, state.LargestChunk)}
	}
	if _, err := s.AppendEvents(t.Context(), r.ID, batch...); err != nil {
		t.Fatal(err)
	}
	page, err := s.Events(t.Context(), r.ID, 0, state.MostEvents)
	if err != nil {
		t.Fatal(err)
	}
	if len(page) < 2 || len(page) > 4<<20/state.LargestChunk+2 {
		t.Errorf("a page has %d events", len(page))
	}
	if n := len(events(t, s, r.ID)); n != chunks+1 {
		t.Errorf("the pages hold %d events, want %d", n, chunks+1)
	}
}

func TestCancel(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	living, ended := create(t, s), create(t, s)
	to(t, s, ended.ID, run.Refused)
	if _, requested, err := s.CancelRequested(t.Context(), living.ID); requested || err != nil {
		t.Errorf("before: %v, %v", requested, err)
	}
	for _, actor := range []string{"botanist", "ann"} {
		if err := s.RequestCancel(t.Context(), living.ID, actor); err != nil {
			t.Fatal(err)
		}
	}
	if actor, requested, err := s.CancelRequested(t.Context(), living.ID); actor != "botanist" || !requested || err != nil {
		t.Errorf("after: %q, %v, %v", actor, requested, err)
	}
	if err := s.RequestCancel(t.Context(), ended.ID, "ann"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a run that has ended: %v", err)
	}
	if err := s.RequestCancel(t.Context(), run.NewID(), "ann"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a run that there is not: %v", err)
	}
}

func TestPruneForgetsTheOldestAndGivesRoomBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	living := create(t, s)
	var ids []run.ID
	for range 6 {
		r := create(t, s)
		ids = append(ids, r.ID)
		batch := make([]run.Event, 32)
		for i := range batch {
			batch[i].Data = run.OutputChunk{FD: 1, Bytes: make([]byte, state.LargestChunk)}
		}
		if _, err := s.AppendEvents(t.Context(), r.ID, batch...); err != nil {
			t.Fatal(err)
		}
		if err := s.RequestCancel(t.Context(), r.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		to(t, s, r.ID, run.Stopped)
	}
	slices.Sort(ids)
	pruned, err := s.Prune(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(pruned)
	if !slices.Equal(pruned, ids[:4]) {
		t.Errorf("pruned %v, want %v", pruned, ids[:4])
	}
	for i, id := range ids {
		_, err := s.Get(t.Context(), id)
		if gone := fault.Is(err, fault.NotFound); gone != (i < 4) {
			t.Errorf("run %d: %v", i, err)
		}
		if n := len(events(t, s, id)); (n == 0) != (i < 4) {
			t.Errorf("run %d has %d events", i, n)
		}
		if _, requested, _ := s.CancelRequested(t.Context(), id); requested != (i >= 4) {
			t.Errorf("the cancel of run %d: %v", i, requested)
		}
	}
	if _, err := s.Get(t.Context(), living.ID); err != nil {
		t.Errorf("a living run: %v", err)
	}
	if again, err := s.Prune(t.Context(), 2); err != nil || len(again) != 0 {
		t.Errorf("pruned %v again, %v", again, err)
	}
	s.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(3 * 32 * state.LargestChunk); info.Size() > most {
		t.Errorf("the file still has %d bytes, and two of six runs", info.Size())
	}
	if _, err := s.Prune(t.Context(), -1); !fault.Is(err, fault.Invalid) {
		t.Errorf("a negative number: %v", err)
	}
}

func TestACancelledCallStoresNothing(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	r := create(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, _, err := s.UpdateRun(ctx, r.ID, func(r *run.Run) error { cancel(); r.Changed = 9; return nil })
	if err == nil || fault.KindOf(err) != fault.Internal || !errors.Is(err, ctx.Err()) {
		t.Errorf("err = %v", err)
	}
	if got, err := s.Get(t.Context(), r.ID); err != nil || got.Changed != 0 {
		t.Errorf("it was stored: %v, %v", got.Changed, err)
	}
}
