package bench

import (
	"testing"
	"time"
)

// Idle reports what something idle holds of the host's memory, and how many of it a gibibyte
// has room for. used reads its bytes, and is zero until something was read.
func Idle(b *testing.B, used func() int64) {
	b.Helper()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	bytes := used()
	for bytes == 0 {
		select {
		case <-b.Context().Done():
			b.Fatal("nothing was read of it")
		case <-look.C:
			bytes = used()
		}
	}
	const mebibyte, gibibyte = 1 << 20, 1 << 30
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(bytes)/mebibyte, "resident-MiB")
	b.ReportMetric(gibibyte/float64(bytes), "idle/GiB")
}
