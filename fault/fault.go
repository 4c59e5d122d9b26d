// Package fault is the one error type that crosses a room's door.
//
// A fault says what happened, to what, by which rule, and what to do next. It
// is rendered at the edges only: the command line, and later the wire. An
// error that is not a fault is internal; its text stays on this machine.
package fault

import (
	"errors"
	"fmt"
)

// Kind is the coarse class of a fault. It decides the exit status.
type Kind string

// The kinds. Compare with [Is], never by text.
const (
	Denied         Kind = "denied"          // the actor may not
	NeedsApproval  Kind = "needs-approval"  // a person has to say yes first
	NotFound       Kind = "not-found"       // the thing that was named does not exist
	Invalid        Kind = "invalid"         // the request itself is wrong
	Unavailable    Kind = "unavailable"     // the host cannot do it (now)
	BrokenBoundary Kind = "broken-boundary" // the boundary is not what was asked for
	Internal       Kind = "internal"        // a defect, or an error nobody classified
)

// Error is a fault. Detail is lower case, without a full stop. Rule names what
// decided; Hint says what to do next; both may be empty.
type Error struct {
	Kind   Kind
	Detail string
	Rule   string
	Hint   string
	Err    error // the cause, for errors.Is and errors.As; Detail already holds its text
}

func (e *Error) Error() string { return e.Detail }

func (e *Error) Unwrap() error { return e.Err }

// New returns a fault of the kind with a formatted detail. A %w verb keeps the
// cause for errors.Is and errors.As.
func New(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Detail: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint returns the fault with what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// WithRule returns the fault with the rule that decided.
func (e *Error) WithRule(rule string) *Error {
	e.Rule = rule
	return e
}

// Is reports whether err is, or wraps, a fault of the kind.
func Is(err error, kind Kind) bool {
	return KindOf(err) == kind
}

// KindOf returns the kind of the outermost fault in err's chain, and Internal
// for any other non-nil error. It returns "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
