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
	mine, other := inTurn(b, ours, theirs)
	ratios := make([]float64, len(mine))
	for i := range mine {
		ratios[i] = mine[i] / other[i]
	}
	b.ReportMetric(quantile(ratios, 0.5), "ratio-p50")
	b.ReportMetric(quantile(ratios, 0.95), "ratio-p95")
	b.ReportMetric(quantile(mine, 0.5), "ours-ms")
	b.ReportMetric(quantile(mine, 0.95), "ours-p95-ms")
	b.ReportMetric(quantile(other, 0.5), "theirs-ms")
}

// Added runs them like [Pairs], and reports the median and the 99th percentile of what
// ours takes longer than theirs, and of each, in milliseconds. It is for what takes so
// little that a person would ask how much is added, not how many times; and it says
// something of the 99th percentile from some hundred rounds on.
func Added(b *testing.B, ours, theirs func() error) {
	b.Helper()
	mine, other := inTurn(b, ours, theirs)
	added := make([]float64, len(mine))
	for i := range mine {
		added[i] = mine[i] - other[i]
	}
	for name, values := range map[string][]float64{"added": added, "ours": mine, "theirs": other} {
		b.ReportMetric(quantile(values, 0.5), name+"-p50-ms")
		b.ReportMetric(quantile(values, 0.99), name+"-p99-ms")
	}
}

// inTurn returns how long each took in each round, in milliseconds.
func inTurn(b *testing.B, ours, theirs func() error) (mine, other []float64) {
	b.Helper()
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
		mine, other = append(mine, a), append(other, t)
	}
	b.ReportMetric(0, "ns/op") // the sum of both says nothing
	return mine, other
}

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}
