package run

import (
	"slices"

	"tendril/fault"
)

// State is where a run is. See [Transition] for what may follow what.
type State string

// The states of a run that is not over.
const (
	Queued     State = "queued"     // recorded, nothing done yet
	Preparing  State = "preparing"  // base, wall and aperture are being made
	Running    State = "running"    // the Sprout works
	Collecting State = "collecting" // the work is becoming a Fruit
)

// The states that a run ends in.
const (
	Fruited   State = "fruited"   // there is a branch
	Unchanged State = "unchanged" // the Sprout ended and changed nothing
	Passed    State = "passed"    // the command ended, and no Fruit was asked for
	Refused   State = "refused"   // the request was not sane or not allowed; nothing ran
	Withered  State = "withered"  // the boundary or the Stem broke
	Stopped   State = "stopped"   // a limit or a cancel ended it; what there was is handed over
	Lost      State = "lost"      // its owner died and could not be asked
)

// transitions lists what may follow each state. Nothing follows an end.
//
// The work is handed over only by way of Collecting; a run that was never asked for a
// Fruit has Passed. Stopped follows Running
// directly when the wall had to be killed and nothing could be collected.
// Refused is for requests, and says that nothing ran: it follows Running only when
// the command turned out not to exist inside.
var transitions = map[State][]State{
	Queued:     {Preparing, Refused, Withered, Stopped, Lost},
	Preparing:  {Running, Refused, Withered, Stopped, Lost},
	Running:    {Collecting, Passed, Refused, Withered, Stopped, Lost},
	Collecting: {Fruited, Unchanged, Withered, Stopped, Lost},
	Fruited:    nil,
	Unchanged:  nil,
	Passed:     nil,
	Refused:    nil,
	Withered:   nil,
	Stopped:    nil,
	Lost:       nil,
}

// States lists every state: those of a living run first, in their order, then
// the ends.
func States() []State {
	return []State{Queued, Preparing, Running, Collecting,
		Fruited, Unchanged, Passed, Refused, Withered, Stopped, Lost}
}

// Valid reports whether s is one of the states.
func (s State) Valid() bool {
	_, known := transitions[s]
	return known
}

// Ended reports whether a run in this state is over. A word that is not a state
// is not an end.
func (s State) Ended() bool {
	next, known := transitions[s]
	return known && len(next) == 0
}

// Transition returns nil if a run may go from one state to the other, and a
// fault of the kind internal if not: only a defect asks for one that is refused.
func Transition(from, to State) error {
	if !from.Valid() {
		return fault.New(fault.Internal, "%q is not a state of a run", string(from))
	}
	if !to.Valid() {
		return fault.New(fault.Internal, "%q is not a state of a run", string(to))
	}
	if !slices.Contains(transitions[from], to) {
		return fault.New(fault.Internal, "a run that is %s cannot become %s", from, to)
	}
	return nil
}

// The exit statuses of a command that waited for a run.
const (
	ExitCompleted = 0 // fruited, unchanged or passed
	ExitInternal  = 1 // an internal error, or no end that can be told
	ExitRefused   = 2 // bad input or a refusal
	ExitFailed    = 3 // the Sprout's own command failed
	ExitStopped   = 4 // a limit or a cancel
	ExitTouched   = 5 // touched; with requireClean, whatever is not clean
)

// ExitStatus is the exit status that reports a run's end. When several apply,
// the gravest wins: 5, then 4, 3 and 1. With requireClean, a run that could
// have executed anything and is not [Clean] yields 5, a missing verdict included; a
// refused one stays 2, because nothing ran. A run that has not ended yields 1.
func ExitStatus(r Run, requireClean bool) int {
	verdict := Inconclusive
	if r.Verdict != nil {
		verdict = *r.Verdict
	}
	switch {
	case verdict == Touched:
		return ExitTouched
	case r.State == Refused:
		return ExitRefused
	case !r.State.Ended():
		return ExitInternal
	case requireClean && verdict != Clean:
		return ExitTouched
	case r.State == Withered && r.Commit == nil:
		return ExitInternal // also if its command failed: nothing of it is handed over
	case r.State == Stopped:
		return ExitStopped
	case r.Exit != nil && r.Exit.Failed():
		return ExitFailed
	case r.State == Fruited, r.State == Unchanged, r.State == Passed:
		return ExitCompleted
	default: // withered, lost
		return ExitInternal
	}
}
