package terrarium

import (
	"context"
	"time"

	"tendril/stoma"
)

// Provider makes Terrariums of one kind. Its methods are safe for concurrent
// use. An implementation owes what the comments here say; terrariumtest holds
// it to that.
type Provider interface {
	// Name is the provider's name in grants, records and flags.
	Name() string

	// Capabilities is what the provider can do on any host that it is ready
	// on. It is constant.
	Capabilities() Capabilities

	// Ready returns nil when a Terrarium can be opened here and now. Otherwise
	// it returns a fault.Unavailable that says why and what to do.
	Ready(ctx context.Context) error

	// Open makes a Terrarium as spec asks, reads back what was applied, and
	// returns with the Stoma connected and nothing of the Sprout run yet. On an
	// error nothing is left. ctx bounds the opening only.
	Open(ctx context.Context, spec Spec) (Terrarium, error)

	// Sweep ends and removes whatever earlier Terrariums of the run left, in
	// dir (the Workspace.Dir that they were given) and elsewhere. The caller
	// holds the run's lock, so nobody uses them.
	Sweep(ctx context.Context, run, dir string) error
}

// Recoverer is a provider whose Terrariums leave work that can still be read when they ended
// without a word.
type Recoverer interface {
	// Recover makes a Terrarium over the work that an earlier one of spec's run left in its
	// Workspace.Dir, after it ended whatever of that one still runs. Its Stoma collects, and
	// starts nothing. Spec is the one that the earlier Terrarium was opened with, which may
	// be open still and is closed as ever. The error is a fault.NotFound when there is no
	// such work.
	Recover(ctx context.Context, spec Spec) (Terrarium, error)
}

// Terrarium is one open boundary.
type Terrarium interface {
	// Stoma is the one way in and out.
	Stoma() *stoma.Client

	// Boundary is what was really applied, one row a field of Spec.
	Boundary() []Row

	// Exceeded delivers the first limit that was reached, and stays silent
	// about any further one. It is never closed.
	Exceeded() <-chan LimitName

	// Usage is what the boundary uses now, as seen from outside.
	Usage() Usage

	// Close ends everything inside and gives back all that the Terrarium held
	// on the host. It can be called more than once and from any goroutine.
	Close(ctx context.Context) error
}

// LimitName names a limit in records: `stop: {"limit": …}`.
type LimitName string

// The limits that a boundary keeps.
const (
	LimitCPU    LimitName = "cpu"
	LimitMemory LimitName = "memory"
	LimitPids   LimitName = "pids"
	LimitDisk   LimitName = "disk"
	LimitWall   LimitName = "wall"
	LimitIdle   LimitName = "idle"
	LimitOutput LimitName = "output"
)

// Usage is a reading from outside the wall. Zero means nothing was read yet.
type Usage struct {
	CPU       time.Duration // processor time since the start
	Memory    int64         // bytes now
	Processes int           // inside, now
}

// Capabilities declare what a provider honours. What is not declared is
// refused.
type Capabilities struct {
	Primitive    string                 // what the wall is made of, for a person
	Runtime      string                 // policy's word: container, microvm or [RuntimeHost]
	OnlyNamed    bool                   // a run that names no wall never gets this one
	SharedKernel bool                   // whether the Sprout's system calls reach the host's kernel
	Seals        []string               // what a Terrarium of this kind closes off: seals of package probe, each proven by terrariumtest
	Fields       map[string]Enforcement // by the path of a Spec field, see [Fields]
}

// RuntimeHost is the runtime of a provider whose Terrariums are no wall.
const RuntimeHost = "host"

// Keeps reports whether a field of Spec is declared to be honoured.
func (c Capabilities) Keeps(field string) bool {
	by := c.Fields[field]
	return by != "" && by != NotKept
}

// Enforcement says who keeps a bound.
type Enforcement string

// Who keeps a bound, strongest first.
const (
	ByHost  Enforcement = "host"    // the host's kernel, the wall or the Stem
	ByGuest Enforcement = "guest"   // something inside that the Sprout cannot reach
	Sampled Enforcement = "sampled" // looked at from outside every so often
	NotKept Enforcement = "no"
)
