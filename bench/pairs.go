// Package bench compares two ways of doing the same thing in interleaved pairs,
// so that a machine whose speed drifts slows down both alike.
package bench

import (
	"slices"
	"testing"
	"time"
)

// Pairs runs ours and theirs in turn, once a round of b, and reports the median
// and the 95th percentile of the ratio ours/theirs, and the median of each in
// milliseconds. Which of the two goes first alternates.
func Pairs(b *testing.B, ours, theirs func() error) {
	b.Helper()
	var ratios, mine, other []float64
	timed := func(do func() error) float64 {
		start := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(start).Nanoseconds()) / 1e6
	}
	for round := 0; b.Loop(); round++ {
		var a, t float64
		if round%2 == 0 {
			a = timed(ours)
			t = timed(theirs)
		} else {
			t = timed(theirs)
			a = timed(ours)
		}
		ratios, mine, other = append(ratios, a/t), append(mine, a), append(other, t)
	}
	b.ReportMetric(0, "ns/op") // the sum of both says nothing
	b.ReportMetric(quantile(ratios, 0.5), "ratio-p50")
	b.ReportMetric(quantile(ratios, 0.95), "ratio-p95")
	b.ReportMetric(quantile(mine, 0.5), "ours-ms")
	b.ReportMetric(quantile(mine, 0.95), "ours-p95-ms")
	b.ReportMetric(quantile(other, 0.5), "theirs-ms")
}

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}
