// Package ledger is the form of the site's record of decisions: what a row is, the
// Merkle tree over the rows, the signed checkpoints of that tree, and their
// verification. It touches nothing; package state keeps the rows.
//
// It promises that a row has exactly one spelling, so that its bytes can be hashed;
// that a row is one line of printable ASCII of at most [LargestRow] bytes, whatever was
// asked for; and that [Verify] notices every change, removal, insertion and exchange of
// rows that a checkpoint covers.
//
// It cannot tell what was never recorded. Whoever holds the signing key can write
// another history than the one that was, and only a checkpoint that was kept out of his
// reach shows it. What goes into an [Entry] is up to the caller: digests of secrets and
// of output belong there, secrets and output never do. Only the tokens of Pollen, which
// have a form of their own, are kept out of rows here.
package ledger

import (
	"maps"
	"math"
	"strings"
	"time"

	"tendril/fault"
	"tendril/pollen"
	"tendril/spelling"
)

// Kind says what a row is about.
type Kind string

// The kinds.
const (
	Open     Kind = "open"     // the first row of each ledger, and only that one
	Decision Kind = "decision" // a permit or a denial, recorded before anything acts on it
	Outcome  Kind = "outcome"  // what a permitted call that can change something came to
	Change   Kind = "change"   // a change of state, recorded in the transaction that made it
)

// How an actor proved who he is.
const (
	ByProcess = "process" // he owns the process
	ByPeer    = "peer"    // the kernel named the account at the other end of the socket
	ByToken   = "token"   // he presented a Pollen's token
	ByNothing = "none"
)

// What was decided.
const (
	Permit = "permit"
	Deny   = "deny"
)

// Entry is what a caller records. An empty field is not there and becomes null. Text
// longer than its bound is cut, and ends in "…" then; the bounds count bytes as they are
// in the row, where a character beyond printable ASCII takes 6 or 12.
type Entry struct {
	Kind Kind

	Actor string // canonical name of the Pollen, or "" for one who proved nothing
	Proof string // one of ByProcess, ByPeer, ByToken and ByNothing; a decision has one
	UID   *int   // account of the process or the peer, where it is known

	Capability string // as it was asked for, so it may be unknown; at most 64 bytes
	Subject    string // name or path of the Substrate; a path may be no UTF-8; at most 3072 bytes
	Run        string // at most 64 bytes

	Decision string // Permit or Deny for a decision, otherwise ""
	Fault    string // kind of the fault that a denial or a failed outcome ended with
	Rule     string // what decided, in words; at most 512 bytes
	Of       *int64 // the decision that an outcome (always), a change (mostly) or a decision within its work belongs to

	// Digests names what was decided on without holding it: "input", "grant",
	// "evidence", …, each as "sha256:", "hmac-sha256:" (see [Key.Digest]) or "gitCommit:" and lower case hexadecimal. At
	// most 16.
	Digests map[string]string

	Change string // for a change, and only there: what changed, as in "pollen.issued"
	Target string // what it changed, where neither Subject nor Run say it; at most 256 bytes
	State  string // what it is now, or what an outcome came to; at most 64 bytes

	Opening *Opening // for the kind open, and only there
}

// Opening is what the first row says of the ledger. Its checkpoints have the same
// origin and are signed with the same key.
type Opening struct {
	Format int    `json:"format"` // [Format]
	Origin string `json:"origin"`
	Key    string `json:"key"` // verifier key, as [Key.Verifier] returns it
}

// Format is the version of the form of rows that this package knows.
const Format = 1

// Row is one row of the ledger. [NewRow] and [ParseRow] make them.
type Row struct {
	Seq  int64     // 0, 1, 2, …
	Time time.Time // in UTC, to the millisecond; it goes back when the host's clock does
	Entry
}

// The bounds, in bytes of the row. TestTheLongestRowFits adds them up.
const (
	// LargestRow is the most bytes that a row has, without the newline.
	LargestRow = 8 << 10

	mostCapability = 64
	mostSubject    = 3072
	mostRun        = 64
	mostFault      = 32
	mostRule       = 512
	mostChange     = 64
	mostTarget     = 256
	mostState      = 64
	mostDigests    = 16
	mostDigestName = 32
	mostDigest     = len("hmac-sha256:") + 64
	mostOrigin     = 128
	mostVerifier   = 256
)

// NewRow makes the row of an entry. Text that is too long is cut, and what has the form
// of a Pollen's token is left out of it: somebody gave a token where a name belongs, and
// a row stays for good. What no caller should
// hand over is a fault of the kind internal: another kind, a decision that decides
// nothing, an outcome of nothing, a digest that is none.
func NewRow(seq int64, at time.Time, e Entry) (Row, error) {
	for _, text := range e.texts() {
		*text = pollen.Redact(*text)
	}
	return newRow(seq, at, e)
}

// texts are the fields in which there can be what a caller said.
func (e *Entry) texts() []*string {
	return []*string{&e.Capability, &e.Subject, &e.Run, &e.Fault, &e.Rule, &e.Change, &e.Target, &e.State}
}

// newRow is NewRow for text as it is: rows that were written stay what they are.
func newRow(seq int64, at time.Time, e Entry) (Row, error) {
	at = at.UTC().Truncate(time.Millisecond)
	if err := check(seq, at, e); err != nil {
		return Row{}, fault.New(fault.Internal, "row %d of the ledger: %w", seq, err)
	}
	e.Capability = clip(e.Capability, mostCapability)
	e.Subject = clipBytes(e.Subject, mostSubject)
	e.Run = clip(e.Run, mostRun)
	e.Fault = clip(e.Fault, mostFault)
	e.Rule = clip(e.Rule, mostRule)
	e.Change = clip(e.Change, mostChange)
	e.Target = clip(e.Target, mostTarget)
	e.State = clip(e.State, mostState)
	e.Digests = maps.Clone(e.Digests)
	return Row{Seq: seq, Time: at, Entry: e}, nil
}

// CheckEntry refuses an entry that [NewRow] would refuse in any place of a ledger but
// the first.
func CheckEntry(e Entry) error {
	return check(math.MaxInt64, time.Time{}, e)
}

func check(seq int64, at time.Time, e Entry) error {
	refuse := func(format string, args ...any) error { return fault.New(fault.Internal, format, args...) }
	switch {
	case seq < 0:
		return refuse("%d is not a number of a row", seq)
	case at.Year() < 1 || at.Year() > 9999:
		return refuse("its time has no form of four digits for the year")
	case e.Kind != Open && e.Kind != Decision && e.Kind != Outcome && e.Kind != Change:
		return refuse("%q is not a kind", e.Kind)
	case (e.Kind == Open) != (seq == 0):
		return refuse("the kind of the first row, and only of the first, is %q", Open)
	case (e.Kind == Open) != (e.Opening != nil):
		return refuse("the opening stands in the first row, and only there")
	case (e.Kind == Decision) != (e.Decision != ""):
		return refuse("a decision, and only a decision, decides")
	case e.Decision != "" && e.Decision != Permit && e.Decision != Deny:
		return refuse("%q decides nothing", e.Decision)
	case e.Kind == Decision && e.Proof == "":
		return refuse("a decision says how its actor proved who he is")
	case e.Proof != "" && e.Proof != ByProcess && e.Proof != ByPeer && e.Proof != ByToken && e.Proof != ByNothing:
		return refuse("%q proves nothing", e.Proof)
	case e.UID != nil && *e.UID < 0:
		return refuse("%d is not a uid", *e.UID)
	case e.Kind == Outcome && e.Of == nil:
		return refuse("an outcome says of which decision")
	case e.Of != nil && (e.Kind == Open || *e.Of < 1 || *e.Of >= seq):
		return refuse("it does not belong to row %d", *e.Of)
	case (e.Kind == Change) != (e.Change != ""):
		return refuse("a change, and only a change, says what changed")
	case len(e.Digests) > mostDigests:
		return refuse("it has %d digests, and the most are %d", len(e.Digests), mostDigests)
	}
	if e.Actor != "" {
		if err := spelling.CheckName("Pollen", e.Actor); err != nil {
			return err
		}
	}
	for name, digest := range e.Digests {
		if !isDigestName(name) || !isDigest(digest) {
			return refuse("%.100q is not a digest with the name %.40q", digest, name)
		}
	}
	if e.Opening != nil {
		return e.Opening.check()
	}
	return nil
}

func (o *Opening) check() error {
	if o.Format != Format {
		return fault.New(fault.Unavailable, "the ledger has the format %d, and this program knows %d", o.Format, Format).
			WithHint("use a newer tendril")
	}
	if err := checkOrigin(o.Origin); err != nil {
		return err
	}
	if len(o.Key) > mostVerifier {
		return fault.New(fault.Invalid, "the key of the ledger is too long")
	}
	_, err := verifierOf(o.Key, o.Origin)
	return err
}

func isDigestName(name string) bool {
	return name != "" && len(name) <= mostDigestName &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

// isDigest reports whether s is a digest as in-toto names them: algorithm, colon, hexadecimal.
func isDigest(s string) bool {
	algorithm, value, _ := strings.Cut(s, ":")
	if strings.Trim(value, "0123456789abcdef") != "" {
		return false
	}
	switch algorithm {
	case "sha256", "hmac-sha256":
		return len(value) == 64
	case "gitCommit":
		return len(value) == 40 || len(value) == 64
	}
	return false
}
