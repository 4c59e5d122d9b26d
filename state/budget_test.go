package state_test

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tendril/budget"
	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
	"tendril/state"
)

func limit(n int64) *int64 { return &n }

func reservation(r run.Run, tokens int64, limits budget.Limits) state.Reservation {
	return state.Reservation{Run: r.ID, Pollen: r.Pollen, At: time.Now(), Bound: budget.Amount{Tokens: tokens, Spend: 3 * tokens}, Limits: limits}
}

func spent(t testing.TB, s *state.Store, id run.ID) state.Spending {
	t.Helper()
	sum, err := s.Spent(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func TestReserveAndSettle(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state", "state.db"))
	r := create(t, s)
	limits := budget.Limits{Run: budget.Limit{Tokens: limit(100)}, Day: budget.Limit{Spend: limit(450)}}
	reserve := func(tokens int64) int64 {
		t.Helper()
		id, err := s.Reserve(t.Context(), reservation(r, tokens, limits))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	refused := func(tokens int64) budget.Exceeded {
		t.Helper()
		before, size := spent(t, s, r.ID), ledgerSize(t, s)
		_, err := s.Reserve(t.Context(), reservation(r, tokens, limits), permit("model"))
		var exceeded *budget.Exceeded
		if !errors.As(err, &exceeded) || !fault.Is(err, fault.Denied) {
			t.Fatal(err)
		}
		if after := spent(t, s, r.ID); after != before || ledgerSize(t, s) != size {
			t.Errorf("a refusal changed %+v to %+v, or the ledger", before, after)
		}
		return *exceeded
	}

	first := reserve(60)
	if e := refused(41); e != (budget.Exceeded{Unit: budget.Tokens, Scope: budget.OfRun, Most: 100, Used: 60, Asked: 41}) {
		t.Errorf("%+v", e)
	}
	second := reserve(40)
	refused(1)

	// What was not used is free again; the second time changes nothing.
	for range 2 {
		if err := s.Settle(t.Context(), first, budget.Amount{Tokens: 10, Spend: 30}); err != nil {
			t.Fatal(err)
		}
	}
	want := state.Spending{Settled: budget.Amount{Tokens: 10, Spend: 30}, Reserved: budget.Amount{Tokens: 40, Spend: 120}}
	if got := spent(t, s, r.ID); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// Nobody reported, and nobody can any more.
	if err := s.Keep(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context(), second, budget.Amount{}); err != nil {
		t.Fatal(err)
	}
	if got := spent(t, s, r.ID); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	// More than was reserved is what it was.
	third := reserve(1)
	if err := s.Settle(t.Context(), third, budget.Amount{Tokens: 1000, Spend: 1}); err != nil {
		t.Fatal(err)
	}
	if e := refused(0); e.Used != 1050 {
		t.Errorf("%+v", e)
	}

	// Another run of the Pollen has the same day.
	r = create(t, s)
	limits.Run.Tokens = nil
	if e := refused(100); e != (budget.Exceeded{Unit: budget.Spend, Scope: budget.OfDay, Most: 450, Used: 151, Asked: 300}) {
		t.Errorf("%+v", e)
	}
	tomorrow := reservation(r, 100, limits)
	tomorrow.At = tomorrow.At.Add(24 * time.Hour)
	late, err := s.Reserve(t.Context(), tomorrow)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context(), late, budget.Amount{Tokens: 7}); err != nil {
		t.Fatal(err)
	}
	if sum, err := s.SpentOn(t.Context(), r.Pollen, tomorrow.At); err != nil || sum.Total().Tokens != 7 {
		t.Errorf("%+v, %v", sum, err)
	}
	if sum, err := s.SpentOn(t.Context(), r.Pollen, time.Now()); err != nil || sum.Total().Tokens != 1050 {
		t.Errorf("%+v, %v", sum, err)
	}
	if sum, err := s.SpentOn(t.Context(), "another", time.Now()); err != nil || sum != (state.Spending{}) {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestReservationsThatAreNone(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state", "state.db"))
	r := create(t, s)
	if _, err := s.Reserve(t.Context(), state.Reservation{Run: r.ID, Pollen: r.Pollen, Bound: budget.Amount{Spend: -1}}); !fault.Is(err, fault.Internal) {
		t.Error(err)
	}
	if _, err := s.Reserve(t.Context(), reservation(newRun(), 1, budget.Limits{})); err == nil {
		t.Error("a run that there is not has spent")
	}
	if err := s.Settle(t.Context(), 1, budget.Amount{}); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if err := s.Keep(t.Context(), 1); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	id, err := s.Reserve(t.Context(), reservation(r, 1, budget.Limits{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context(), id, budget.Amount{Tokens: -1}); !fault.Is(err, fault.Internal) {
		t.Error(err)
	}
	if got := spent(t, s, r.ID); got.Reserved.Tokens != 1 {
		t.Errorf("%+v", got)
	}
}

// The rows of the ledger and what they record are one transaction.
func TestSpendingIsRecorded(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state", "state.db"))
	r := create(t, s)
	size := ledgerSize(t, s)
	id, err := s.Reserve(t.Context(), reservation(r, 1, budget.Limits{}), permit("model"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call closes nothing and records nothing
		of := size
		if err := s.Settle(t.Context(), id, budget.Amount{}, ledger.Entry{Kind: ledger.Outcome, Of: &of}); err != nil {
			t.Fatal(err)
		}
	}
	if now := ledgerSize(t, s); now != size+2 {
		t.Errorf("%d rows more", now-size)
	}
	bad := ledger.Entry{Kind: ledger.Outcome} // of nothing
	before := spent(t, s, r.ID)
	if _, err := s.Reserve(t.Context(), reservation(r, 1, budget.Limits{}), bad); err == nil || spent(t, s, r.ID) != before {
		t.Errorf("%v, and %+v is reserved", err, spent(t, s, r.ID))
	}
}

func ledgerSize(t testing.TB, s *state.Store) int64 {
	t.Helper()
	size, err := s.LedgerSize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// What a day came to outlives the runs that made it.
func TestForgottenRunsHaveSpent(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state", "state.db"))
	r := create(t, s)
	id, err := s.Reserve(t.Context(), reservation(r, 5, budget.Limits{}))
	if err != nil {
		t.Fatal(err)
	}
	to(t, s, r.ID, run.Lost)
	if pruned, err := s.Prune(t.Context(), 0); err != nil || len(pruned) != 1 {
		t.Fatal(pruned, err)
	}
	if sum, err := s.SpentOn(t.Context(), r.Pollen, time.Now()); err != nil || sum.Total().Tokens != 5 {
		t.Errorf("%+v, %v", sum, err)
	}
	if err := s.Settle(t.Context(), id, budget.Amount{}); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// 64 requests race for a budget that has room for ten, over several handles of one file,
// against each limit there is.
func TestRacingRequestsNeverExceedALimit(t *testing.T) {
	const each, room, requests, handles = 7, 10, 64, 4
	for name, limits := range map[string]budget.Limits{
		"run tokens": {Run: budget.Limit{Tokens: limit(room*each + each - 1)}},
		"run spend":  {Run: budget.Limit{Spend: limit(room * each * 3)}},
		"day tokens": {Day: budget.Limit{Tokens: limit(room * each)}},
		"day spend":  {Day: budget.Limit{Spend: limit(room*each*3 + 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state", "state.db")
			var stores []*state.Store
			for range handles {
				stores = append(stores, open(t, path))
			}
			runs := []run.Run{create(t, stores[0])}
			if limits.Run == (budget.Limit{}) { // the runs of a day share its limit
				runs = append(runs, create(t, stores[0]), create(t, stores[0]))
			}
			var mu sync.Mutex
			var wg sync.WaitGroup
			kinds := map[fault.Kind]int{}
			for i := range requests {
				wg.Go(func() {
					_, err := stores[i%handles].Reserve(t.Context(), reservation(runs[i%len(runs)], each, limits), permit("model"))
					mu.Lock()
					defer mu.Unlock()
					kinds[fault.KindOf(err)]++
				})
			}
			wg.Wait()
			if kinds[""] != room || kinds[fault.Denied] != requests-room {
				t.Errorf("%v; there is room for %d", kinds, room)
			}
		})
	}
}

// Whatever happens in whatever order, what is settled and reserved never exceeds a limit,
// unless a provider reported more than was reserved; and the sums are those of a model.
func TestSpendingStaysWithinItsLimits(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state", "state.db"))
	rapid.Check(t, func(rt *rapid.T) {
		r := newRun()
		r.Pollen = "p" + string(r.ID[len(r.ID)-12:]) // a day of its own
		if err := s.CreateRun(t.Context(), r); err != nil {
			rt.Fatal(err)
		}
		most := rapid.Int64Range(1, 500).Draw(rt, "limit")
		limits := budget.Limits{Run: budget.Limit{Tokens: &most}, Day: budget.Limit{Tokens: &most}}
		open := map[int64]int64{}
		var settled, kept, beyond int64
		rt.Repeat(map[string]func(*rapid.T){
			"reserve": func(rt *rapid.T) {
				tokens := rapid.Int64Range(0, 200).Draw(rt, "tokens")
				used := settled + kept
				for _, n := range open {
					used += n
				}
				id, err := s.Reserve(t.Context(), reservation(r, tokens, limits))
				if (err == nil) != (used+tokens <= most) {
					rt.Fatalf("%d of %d are used, %d asked: %v", used, most, tokens, err)
				}
				if err == nil {
					open[id] = tokens
				}
			},
			"settle": func(rt *rapid.T) {
				for id, reserved := range open {
					came := rapid.Int64Range(0, reserved+5).Draw(rt, "came")
					if err := s.Settle(t.Context(), id, budget.Amount{Tokens: came, Spend: came}); err != nil {
						rt.Fatal(err)
					}
					settled, beyond = settled+came, beyond+max(0, came-reserved)
					delete(open, id)
					break
				}
			},
			"keep": func(rt *rapid.T) {
				for id, reserved := range open {
					if err := s.Keep(t.Context(), id); err != nil {
						rt.Fatal(err)
					}
					kept += reserved
					delete(open, id)
					break
				}
			},
			"": func(rt *rapid.T) {
				reserved := kept
				for _, n := range open {
					reserved += n
				}
				ofRun := spent(t, s, r.ID)
				ofDay, err := s.SpentOn(t.Context(), r.Pollen, time.Now())
				if err != nil || ofRun != ofDay || ofRun.Settled.Tokens != settled || ofRun.Reserved.Tokens != reserved {
					rt.Fatalf("run %+v, day %+v, %v; want %d settled, %d reserved", ofRun, ofDay, err, settled, reserved)
				}
				if total := ofRun.Total().Tokens; total > most+beyond {
					rt.Fatalf("%d of %d, and reports were %d beyond what was reserved", total, most, beyond)
				}
			},
		})
	})
}
