package capability

import (
	"context"
	"io"
	"sync"

	"tendril/run"
)

// What flows while a capability works travels in the context, so that Invoke
// has one signature for all of them: events and progress out, and for an interactive
// Sprout its stdin and its terminal's sizes in.
type (
	eventsKey   struct{}
	inputKey    struct{}
	resizesKey  struct{}
	progressKey struct{}
)

// WithEvents makes sink receive the events of the capability that is invoked
// with the context: each once, in the order of their ids, one call at a time.
// While sink does not return, the run goes on; the caller of [Emit] waits.
func WithEvents(ctx context.Context, sink func(run.Event)) context.Context {
	var mu sync.Mutex
	return context.WithValue(ctx, eventsKey{}, func(event run.Event) {
		mu.Lock()
		defer mu.Unlock()
		sink(event)
	})
}

// Emit hands an event to the sink, if there is one. It may be called from
// several goroutines; who does so sees to the order.
func Emit(ctx context.Context, event run.Event) {
	if sink, ok := ctx.Value(eventsKey{}).(func(run.Event)); ok {
		sink(event)
	}
}

// WithInput makes input the Sprout's stdin. It is read until its end, from
// another goroutine than the caller's, and may be read after the capability has
// returned if a Read does not return: what is not to be read from twice must
// give up when ctx ends.
func WithInput(ctx context.Context, input io.Reader) context.Context {
	return context.WithValue(ctx, inputKey{}, input)
}

// Input returns the Sprout's stdin; nil means that it has none.
func Input(ctx context.Context) io.Reader {
	input, _ := ctx.Value(inputKey{}).(io.Reader)
	return input
}

// WithResizes makes the Sprout's terminal follow the sizes that the channel
// yields, until it is closed.
func WithResizes(ctx context.Context, sizes <-chan Size) context.Context {
	return context.WithValue(ctx, resizesKey{}, sizes)
}

// Resizes returns the sizes that the Sprout's terminal follows; nil, which
// never yields one, if there are none.
func Resizes(ctx context.Context) <-chan Size {
	sizes, _ := ctx.Value(resizesKey{}).(<-chan Size)
	return sizes
}

// WithProgress makes sink learn what is being done while a person waits: what, and
// how much of how much, or 0 of 0 where that is not known. An empty what means that
// nothing is. It may be called from several goroutines, and must not block.
func WithProgress(ctx context.Context, sink func(what string, done, total int64)) context.Context {
	return context.WithValue(ctx, progressKey{}, sink)
}

// Progress tells the sink, if there is one.
func Progress(ctx context.Context, what string, done, total int64) {
	if sink, ok := ctx.Value(progressKey{}).(func(string, int64, int64)); ok {
		sink(what, done, total)
	}
}
