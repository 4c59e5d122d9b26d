//go:build linux

package stem

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"tendril/run"
)

// kept is a store of events in memory.
type kept struct {
	mu     sync.Mutex
	events []run.Event
}

func (k *kept) store(_ context.Context, events ...run.Event) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, events...)
	return nil
}

func (k *kept) stream(fd int) []byte {
	var all []byte
	for _, e := range k.events {
		if chunk := e.Data.(run.OutputChunk); chunk.FD == fd {
			all = append(all, chunk.Bytes...)
		}
	}
	return all
}

func noise(t *testing.T, size int) []byte {
	t.Helper()
	data := make([]byte, size)
	if _, err := io.ReadFull(rand.NewChaCha8([32]byte{}), data); err != nil {
		t.Fatal(err)
	}
	return data
}

// trickle hands data out in pieces of odd sizes.
func trickle(data []byte, seed uint64) io.Reader {
	r, w := io.Pipe()
	go func() {
		sizes := rand.New(rand.NewPCG(seed, 0))
		for len(data) > 0 {
			n := min(len(data), 1+sizes.IntN(50_000))
			w.Write(data[:n])
			data = data[n:]
		}
		w.Close()
	}()
	return r
}

func TestRecorderKeepsBothStreamsInTheirOrder(t *testing.T) {
	out, errs := noise(t, 3<<20), noise(t, 1<<20)
	var k kept
	if err := newRecorder(0, k.store).record(t.Context(), trickle(out, 1), trickle(errs, 2)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(k.stream(1), out) || !bytes.Equal(k.stream(2), errs) {
		t.Error("what was recorded is not what was written")
	}
}

func TestRecorderStopsAtTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		written, limit, recorded int
		full                     bool
	}{
		"no limit":       {100_000, 0, 100_000, false},
		"below":          {99_999, 100_000, 99_999, false},
		"exactly":        {100_000, 100_000, 100_000, false},
		"one byte above": {100_001, 100_000, 100_000, true},
		"far above":      {5 << 20, 100_000, 100_000, true},
		"one byte":       {10, 1, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			data := noise(t, c.written)
			var k kept
			r := newRecorder(int64(c.limit), k.store)
			// What comes after the limit is read: nobody inside blocks for good.
			if err := r.record(t.Context(), trickle(data, 3), bytes.NewReader(nil)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(k.stream(1), data[:c.recorded]) {
				t.Errorf("%d bytes were recorded, or others; want the first %d", len(k.stream(1)), c.recorded)
			}
			select {
			case <-r.full:
				if !c.full {
					t.Error("it says that the limit was reached")
				}
			default:
				if c.full {
					t.Error("it does not say that the limit was reached")
				}
			}
		})
	}
}

// The limit is on both streams together.
func TestRecorderCountsBothStreams(t *testing.T) {
	var k kept
	r := newRecorder(100, k.store)
	if err := r.record(t.Context(), bytes.NewReader(noise(t, 80)), bytes.NewReader(noise(t, 80))); err != nil {
		t.Fatal(err)
	}
	<-r.full
	if got := len(k.stream(1)) + len(k.stream(2)); got != 100 {
		t.Errorf("%d bytes were recorded", got)
	}
}

// A store that does not come along makes the Sprout wait; nothing piles up here.
func TestRecorderHoldsLittleWhenTheStoreIsSlow(t *testing.T) {
	const total = 24 << 20
	var taken, stored atomic.Int64
	reader := readerFunc(func(p []byte) (int, error) {
		if taken.Load() >= total {
			return 0, io.EOF
		}
		taken.Add(int64(len(p)))
		return len(p), nil
	})
	// A batch, the chunks that wait for it, and one in each reader's hands.
	const most = outputBatch + outputChunk + 8*outputChunk + 2*outputChunk
	var worst int64
	r := newRecorder(0, func(_ context.Context, events ...run.Event) error {
		// The readers go on until they have to wait: then two looks are the same.
		for before := int64(-1); before != taken.Load(); {
			before = taken.Load()
			for range 1000 {
				if taken.Load() != before {
					break
				}
				runtime.Gosched()
			}
		}
		worst = max(worst, taken.Load()-stored.Load())
		for _, e := range events {
			stored.Add(int64(len(e.Data.(run.OutputChunk).Bytes)))
		}
		return nil
	})
	if err := r.record(t.Context(), reader, bytes.NewReader(nil)); err != nil {
		t.Fatal(err)
	}
	if worst > most || stored.Load() != taken.Load() {
		t.Errorf("up to %d bytes were held, at most %d should be; %d of %d were stored", worst, int64(most), stored.Load(), taken.Load())
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A store that fails ends the recording, says so at once, and lets the readers go.
func TestRecorderFailsWithTheStore(t *testing.T) {
	broken := errors.New("the disk is full")
	r := newRecorder(0, func(context.Context, ...run.Event) error { return broken })
	stdout, sprout := io.Pipe()
	stderr, other := io.Pipe()
	ended := make(chan error)
	go func() { ended <- r.record(t.Context(), stdout, stderr) }()
	sprout.Write([]byte("something"))
	<-r.failed // although neither stream has ended
	sprout.Close()
	other.Close()
	if err := <-ended; !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestRecorderKnowsHowLongNothingCame(t *testing.T) {
	var k kept
	r := newRecorder(0, k.store)
	r.last.Store(0)
	if err := r.record(t.Context(), bytes.NewReader([]byte("x")), bytes.NewReader(nil)); err != nil {
		t.Fatal(err)
	}
	if r.last.Load() == 0 {
		t.Error("what came was not noticed")
	}
}
