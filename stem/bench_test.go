//go:build linux

package stem

import (
	"sync/atomic"
	"testing"

	"tendril/capability"
)

// BenchmarkInvoke is one permitted request of a Pollen, from its token to its answer, with
// its row durable in between. What bounds it is the disk: the one wait for it that a commit
// in SQLite's write-ahead log with synchronous=FULL is. BenchmarkDecide is what the rest
// takes, a small part of it.
func BenchmarkInvoke(b *testing.B) {
	s, who := granted(b, oneGrant)
	for b.Loop() {
		if _, err := s.Invoke(b.Context(), who, "run.list", capability.ListInput{Limit: 1}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInvokeParallel is the same with 64 callers, who share the wait: rows per second
// are bounded by the one connection to SQLite, which serves the reads of each decision and of
// its handler between the commits.
func BenchmarkInvokeParallel(b *testing.B) {
	s, who := granted(b, oneGrant)
	var next atomic.Int64
	b.ResetTimer()
	done := make(chan error, callers)
	for range callers {
		go func() {
			for next.Add(1) <= int64(b.N) {
				if _, err := s.Invoke(b.Context(), who, "run.list", capability.ListInput{Limit: 1}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

const callers = 64

// BenchmarkDecide is what comes before the row: who, whether, and the policy.
func BenchmarkDecide(b *testing.B) {
	s, who := granted(b, oneGrant)
	for b.Loop() {
		c := &call{name: "run.list"}
		if err := s.decide(b.Context(), c, who, func(capability.Definition) (capability.Request, error) {
			return capability.ListInput{Limit: 1}, nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}
