// Package run holds the run record, its states and its events: what REST, MCP
// and `--json` print of a run, and nothing else.
//
// It promises that a record says the same thing everywhere: every key is always
// there, null where there is no value, times are RFC 3339 in UTC, durations are
// whole milliseconds, and a path that is not valid UTF-8 survives the trip. It
// holds plain data and decides nothing but which state may follow which. Text
// in a record may come from a Sprout: whoever shows it to a person escapes it.
package run

import (
	"errors"

	"tendril/fault"
)

// Run is the record of one run.
//
// A nil pointer is a value that is not there (yet) and is printed as null.
// Slices are never printed as null. A Run is plain data: copy it freely, but
// do not write to one that several goroutines read.
type Run struct {
	ID        ID        `json:"run"`
	State     State     `json:"state"`
	Pollen    string    `json:"pollen"`    // the principal on whose behalf it runs
	Substrate Substrate `json:"substrate"` // the repository
	Base      *string   `json:"base"`      // object name of the base commit
	Branch    *string   `json:"branch"`    // short name of the Fruit's branch, once it exists
	Commit    *string   `json:"commit"`    // object name of the Fruit, once it exists
	Provider  *string   `json:"provider"`  // the wall, once one is chosen

	Exit    *Exit    `json:"exit"`    // how the Sprout's own command ended
	Stop    *Stop    `json:"stop"`    // what ended the run before its command did
	Partial bool     `json:"partial"` // the Fruit may lack some of the work
	Verdict *Verdict `json:"verdict"`

	Changed int  `json:"changed"` // entries that the Fruit changes
	Ignored int  `json:"ignored"` // entries left behind because Git ignores them
	Skipped int  `json:"skipped"` // entries left behind because Git cannot hold them
	Dirty   bool `json:"dirty"`   // the base is a snapshot of the working tree

	Flags      []Flag  `json:"flags"`      // what a reviewer of the Fruit must see
	Boundary   []Row   `json:"boundary"`   // what was asked of the wall and what was applied
	Unenforced []Limit `json:"unenforced"` // limits that this host could not enforce
	Egress     []Reach `json:"egress"`     // what was reached and what was refused, by destination
	Usage      *Usage  `json:"usage"`      // what its models came to; nil if it has none
	Review     *Review `json:"review"`     // what the Botanist decided about the Fruit

	Error      *Error `json:"error"`
	Started    *Time  `json:"started"`     // when the first thing was prepared
	DurationMS *int64 `json:"duration_ms"` // from Started to the end
}

// Exit is how the Sprout's command ended: exactly one field is set. It is what
// the guest half of the Stoma reported, and so a claim of the Sprout.
type Exit struct {
	Code   *int `json:"code"`   // 0 to 255
	Signal *int `json:"signal"` // number of the signal that ended it
}

// Failed reports whether the command ended in any other way than with status 0.
func (e Exit) Failed() bool {
	return e.Code == nil || *e.Code != 0
}

// Stop is what ended a run before its command did. Exactly one field is set,
// and only that one is printed.
type Stop struct {
	Limit  Limit  `json:"limit,omitempty"`
	Cancel string `json:"cancel,omitempty"` // the actor that asked for it
}

// Limit names a bound on a run.
type Limit string

// The limits.
const (
	Memory Limit = "memory"
	CPU    Limit = "cpu"
	Pids   Limit = "pids"
	Disk   Limit = "disk"
	Wall   Limit = "wall" // wall-clock time
	Idle   Limit = "idle" // time without output and without processor use
	Output Limit = "output"
	Tokens Limit = "tokens"
	Spend  Limit = "spend"
	Egress Limit = "egress"
)

// Verdict answers, for one run: was anything outside the boundary touched?
type Verdict string

// The verdicts. What could not be observed is Inconclusive, never Clean.
const (
	Clean        Verdict = "clean"
	Touched      Verdict = "touched"
	Inconclusive Verdict = "inconclusive"
)

// Review is the Botanist's decision about a Fruit.
type Review string

// The decisions.
const (
	Accepted Review = "accepted"
	Rejected Review = "rejected"
)

// Flag is one thing in a Fruit that a reviewer must see, such as a changed CI
// workflow or an executable bit.
type Flag struct {
	Kind string `json:"kind"` // a stable word, such as "ci-workflow"
	Path Path   `json:"path"`
	Note string `json:"note"` // why it matters, for a person
}

// Reach sums up what a run asked of one destination.
type Reach struct {
	Destination string `json:"destination"` // scheme, host and port; "other" for all beyond the first hundred
	Allowed     int64  `json:"allowed"`     // decisions
	Refused     int64  `json:"refused"`
	Sent        int64  `json:"sent"` // bytes of messages with their heads, or of tunnels
	Received    int64  `json:"received"`

	// Refusal is why the latest refusal was: the rule that decided, in a bounded number of
	// bytes. Nil if nothing was refused, and in records that are older than this key.
	Refusal *string `json:"refusal"`
}

// Usage is what the model requests of a run came to, with what is still set aside for
// those whose usage nobody reported.
type Usage struct {
	Tokens   int64 `json:"tokens"`    // in and out, cached ones too
	MicroUSD int64 `json:"micro_usd"` // by the site's price list
}

// Row is one property of the boundary: what was asked, what was applied, how
// that is known, and who enforces it.
type Row struct {
	Dimension string `json:"dimension"` // filesystem, network, process, …
	Field     string `json:"field"`     // the field of the specification
	Asked     string `json:"asked"`
	Applied   string `json:"applied"`
	How       string `json:"how"`      // inspect, probe or constructed
	Enforced  string `json:"enforced"` // host, guest, sampled or no
	Note      string `json:"note"`
}

// Error is why a run was refused, withered or was lost.
type Error struct {
	Kind   fault.Kind `json:"kind"`
	Detail string     `json:"detail"`
	Rule   *string    `json:"rule"` // what decided
	Hint   *string    `json:"hint"` // what to do next
}

// ErrorOf renders err for a record, and returns nil for nil. The text of an
// error that is not a fault is kept under the kind internal: it is for the
// Botanist's eyes, and an adapter that serves anybody else hides it.
func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	e := &Error{Kind: fault.KindOf(err), Detail: err.Error()}
	var f *fault.Error
	if errors.As(err, &f) {
		if f.Rule != "" {
			e.Rule = new(f.Rule)
		}
		if f.Hint != "" {
			e.Hint = new(f.Hint)
		}
	}
	return e
}
