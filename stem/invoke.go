//go:build linux

package stem

import (
	"context"
	"reflect"

	"tendril/capability"
	"tendril/fault"
)

// Actor is who asks. The only one now is the Botanist at this machine.
type Actor struct{ name string }

// Name is the actor's name in records.
func (a Actor) Name() string { return a.name }

// LocalBotanist is the person who owns the Stem's process, which proves it.
func LocalBotanist() Actor { return Actor{name: "botanist"} }

// handler does the work of one capability, on an input that has been validated.
type handler struct {
	input, output reflect.Type
	do            func(s *Stem, ctx context.Context, actor Actor, input any) (any, error)
}

// handlers has one for each capability, of the types that its definition says; a
// test compares the two.
var handlers = map[string]handler{
	"sprout.grow":     handle((*Stem).grow),
	"run.list":        handle((*Stem).listRuns),
	"run.get":         handle((*Stem).getRun),
	"run.watch":       handle((*Stem).watchRun),
	"run.logs":        handle((*Stem).logsOfRun),
	"run.cancel":      handle((*Stem).cancelRun),
	"fruit.diff":      handle((*Stem).diffFruit),
	"fruit.accept":    handle((*Stem).acceptFruit),
	"fruit.reject":    handle((*Stem).rejectFruit),
	"terrarium.list":  handle((*Stem).listTerrariums),
	"terrarium.probe": handle((*Stem).probeTerrarium),
}

func handle[In, Out any](do func(*Stem, context.Context, Actor, In) (Out, error)) handler {
	return handler{reflect.TypeFor[In](), reflect.TypeFor[Out](), func(s *Stem, ctx context.Context, actor Actor, input any) (any, error) {
		return do(s, ctx, actor, input.(In))
	}}
}

// validator is what every input is.
type validator interface{ Validate() error }

// Invoke does what actor asks. It is the only way to a handler: who may do what
// is decided here, and nowhere else. input has to be of the capability's input
// type; the output is of its output type.
//
// A Streams capability emits events through the context while it works, see
// [capability.WithEvents].
func (s *Stem) Invoke(ctx context.Context, actor Actor, name string, input any) (any, error) {
	definition, err := capability.Lookup(name)
	if err != nil {
		return nil, err
	}
	if actor.name == "" {
		return nil, fault.New(fault.Denied, "nobody asks for %s", name).WithRule("every request has an actor")
	}
	if got := reflect.TypeOf(input); got != definition.Input {
		return nil, fault.New(fault.Internal, "%s takes %v, not %v", name, definition.Input, got)
	}
	if err := input.(validator).Validate(); err != nil {
		return nil, err
	}
	return handlers[name].do(s, ctx, actor, input)
}
