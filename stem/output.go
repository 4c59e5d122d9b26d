//go:build linux

package stem

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"tendril/run"
)

const (
	// outputBatch is how many bytes are recorded in one transaction at most, and
	// outputPause how long the first of them waits for company.
	outputBatch = 1 << 20
	outputPause = 40 * time.Millisecond
	outputChunk = 32 << 10
)

// recorder makes a Sprout's two streams into events, in the order in which they
// arrived, and stops at the output limit. It holds at most a few chunks: when the
// store is slow, the Sprout waits.
type recorder struct {
	store  func(ctx context.Context, events ...run.Event) error
	limit  int64         // bytes; 0 for none
	last   atomic.Int64  // when something arrived, in Unix nanoseconds
	full   chan struct{} // closed when the limit is reached
	failed chan struct{} // closed when the store has failed
	chunks chan run.OutputChunk
	once   sync.Once
}

func newRecorder(limit int64, store func(context.Context, ...run.Event) error) *recorder {
	r := &recorder{store: store, limit: limit, full: make(chan struct{}), failed: make(chan struct{}), chunks: make(chan run.OutputChunk, 8)}
	r.last.Store(time.Now().UnixNano())
	return r
}

// record copies both streams until they end, and returns when all of it is
// durable. It fails when the store does.
func (r *recorder) record(ctx context.Context, stdout, stderr io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var readers sync.WaitGroup
	for fd, stream := range map[int]io.Reader{1: stdout, 2: stderr} {
		readers.Go(func() { r.read(ctx, fd, stream) })
	}
	go func() { // ends with the readers, which end with the streams or ctx
		readers.Wait()
		close(r.chunks)
	}()
	err := r.write(ctx)
	if err != nil {
		close(r.failed)
		cancel(err)
	}
	for range r.chunks { // lets the readers end
	}
	return err
}

func (r *recorder) read(ctx context.Context, fd int, stream io.Reader) {
	for {
		chunk := make([]byte, outputChunk)
		n, err := stream.Read(chunk)
		if n > 0 {
			r.last.Store(time.Now().UnixNano())
			select {
			case r.chunks <- run.OutputChunk{FD: fd, Bytes: chunk[:n]}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return // the end, or a stream that ended with its sandbox
		}
	}
}

// write stores chunks in batches until the channel is closed.
func (r *recorder) write(ctx context.Context) error {
	var batch []run.Event
	var held, total int64
	due := time.NewTimer(0)
	due.Stop()
	defer due.Stop()
	flush := func() error {
		due.Stop()
		events := batch
		batch, held = nil, 0
		if len(events) == 0 {
			return nil
		}
		return r.store(context.WithoutCancel(ctx), events...)
	}
	for {
		select {
		case chunk, more := <-r.chunks:
			if !more {
				return flush()
			}
			if r.limit > 0 && total+int64(len(chunk.Bytes)) > r.limit {
				chunk.Bytes = chunk.Bytes[:r.limit-total]
				r.once.Do(func() { close(r.full) })
			}
			if len(chunk.Bytes) == 0 {
				continue // past the limit: read on, so that nobody inside blocks until the end
			}
			total += int64(len(chunk.Bytes))
			if held == 0 {
				due.Reset(outputPause)
			}
			batch = append(batch, run.Event{Data: chunk})
			if held += int64(len(chunk.Bytes)); held >= outputBatch {
				if err := flush(); err != nil {
					return err
				}
			}
		case <-due.C:
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

// quietFor is how long nothing has arrived.
func (r *recorder) quietFor() time.Duration {
	return time.Since(time.Unix(0, r.last.Load()))
}
