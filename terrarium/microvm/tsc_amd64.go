//go:build linux

package microvm

import (
	"sync"
	"time"
)

// readTSC is the processor's time stamp counter.
func readTSC() uint64

// tscWindow is over how long the counter's rate is measured.
const tscWindow = 20 * time.Millisecond

// hostKHz measures at what rate the counter goes, in kHz. An emulated machine shows this
// counter to its guest, whose own way of measuring it, against a timer chip that is
// emulated too, fails on a busy host, and with it the boot.
var hostKHz = sync.OnceValue(func() uint64 {
	before, start := stamp()
	time.Sleep(tscWindow)
	after, end := stamp()
	return (end - start) * uint64(time.Millisecond) / uint64(after.Sub(before))
})

// stamp reads both clocks as close together as they can be.
func stamp() (at time.Time, counter uint64) {
	best := ^uint64(0)
	for range 16 {
		before := readTSC()
		now := time.Now()
		after := readTSC()
		if after-before < best {
			best, at, counter = after-before, now, before+(after-before)/2
		}
	}
	return at, counter
}
