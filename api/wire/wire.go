// Package wire is what the two ends of the local socket say to each other: one call per
// connection, in lines of JSON. docs/identities.md has it in prose.
//
// It promises that a line from a client is understood whole or refused, as
// [capability.Decode] has it, and that neither end holds more of a line than it has a
// bound for. It knows nothing of who is at the other end.
package wire

import (
	"encoding/json"

	"tendril/capability"
	"tendril/fault"
	"tendril/run"
)

// Version is the only version of the wire that there is.
const Version = 1

// The bounds of lines, in bytes without their end.
const (
	LargestCall    = capability.LargestInput // the client's first line
	LargestMessage = 128 << 10               // each further line of the client
	LargestReply   = 64 << 20                // each line of the server
)

// StdinWindow is how many bytes of stdin a client may send that it has not been told
// were taken, and StdinChunk the most that fit one line. So the server can always read
// on and sees a cancellation or the end of the connection behind stdin that nobody
// reads.
const (
	StdinWindow = 256 << 10
	StdinChunk  = 64 << 10 // in base64 below LargestMessage
)

// longestCapability is more than the name of any capability has.
const longestCapability = 64

// Call is the client's first line.
type Call struct {
	Version    int             `json:"version"`
	Capability string          `json:"capability"`
	Token      *string         `json:"token"` // null: the client is judged by its uid alone
	Input      json.RawMessage `json:"input"`
}

// ParseCall parses a client's first line. Whether there is such a capability, and
// whether the input fits it, is the kernel's to say.
func ParseCall(line []byte) (Call, error) {
	var c Call
	if err := capability.Decode(line, &c); err != nil {
		return Call{}, err
	}
	if c.Version != Version {
		return Call{}, fault.New(fault.Invalid, "version %d of the wire is not one that this program knows", c.Version).
			WithHint("it knows version %d; use the same tendril at both ends", Version)
	}
	if c.Capability == "" || len(c.Capability) > longestCapability {
		return Call{}, fault.New(fault.Invalid, "a capability's name has 1 to %d bytes, not %d", longestCapability, len(c.Capability))
	}
	if c.Input == nil {
		c.Input = json.RawMessage("{}")
	}
	return c, nil
}

// Message is a further line of the client. Exactly one field is set.
type Message struct {
	Stdin    []byte           `json:"stdin_b64,omitempty"` // at most StdinChunk bytes
	StdinEnd bool             `json:"stdin_end,omitempty"`
	Resize   *capability.Size `json:"resize,omitempty"`
	Cancel   bool             `json:"cancel,omitempty"` // end the call in order; its answer still comes
}

// ParseMessage parses a further line of a client.
func ParseMessage(line []byte) (Message, error) {
	var m Message
	if err := capability.Decode(line, &m); err != nil {
		return Message{}, err
	}
	if count(m.Stdin != nil, m.StdinEnd, m.Resize != nil, m.Cancel) != 1 {
		return Message{}, fault.New(fault.Invalid, "a line after the first says exactly one thing").
			WithHint("it has one of the keys stdin_b64, stdin_end, resize and cancel")
	}
	if len(m.Stdin) > StdinChunk {
		return Message{}, fault.New(fault.Invalid, "a line holds %d bytes of stdin, more than %d", len(m.Stdin), StdinChunk)
	}
	return m, nil
}

// Progress is what is being done while a person waits.
type Progress struct {
	What  string `json:"what"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: not known
}

// Failure is a fault on its way.
type Failure struct {
	Kind   fault.Kind `json:"kind"`
	Detail string     `json:"detail"`
	Rule   string     `json:"rule"`
	Hint   string     `json:"hint"`
}

// The server's lines. Any number of the first three come, and one of the others at the
// end.
type (
	// EventLine says what happened.
	EventLine struct {
		Event run.Event `json:"event"`
	}
	// ProgressLine says what is being done.
	ProgressLine struct {
		Progress Progress `json:"progress"`
	}
	// TakenLine gives the client room for as many more bytes of stdin.
	TakenLine struct {
		StdinTaken int `json:"stdin_taken"`
	}
	// OutputLine is the answer. Row is the decision's in the ledger; nil if there is
	// none.
	OutputLine struct {
		Row    *int64          `json:"row"`
		Output json.RawMessage `json:"output"`
	}
	// FailureLine is the answer of a call that was refused or failed.
	FailureLine struct {
		Row   *int64  `json:"row"`
		Error Failure `json:"error"`
	}
)

// Reply is any line of the server, as a client reads it.
type Reply struct {
	Event      *run.Event      `json:"event"`
	Progress   *Progress       `json:"progress"`
	StdinTaken *int            `json:"stdin_taken"`
	Row        *int64          `json:"row"`
	Output     json.RawMessage `json:"output"`
	Error      *Failure        `json:"error"`
}

// ParseReply parses a line of the server. An unknown key is an error: what it means
// would be lost.
func ParseReply(line []byte) (Reply, error) {
	var r Reply
	if err := strict(line, &r); err != nil {
		return Reply{}, notUnderstood(err)
	}
	if count(r.Event != nil, r.Progress != nil, r.StdinTaken != nil, r.Output != nil, r.Error != nil) != 1 {
		return Reply{}, notUnderstood(errNotOneThing)
	}
	return r, nil
}

// DecodeOutput decodes the output of a reply into what into points to. An unknown key
// is an error here as well.
func DecodeOutput(output json.RawMessage, into any) error {
	if err := strict(output, into); err != nil {
		return notUnderstood(err)
	}
	return nil
}

func count(conditions ...bool) int {
	n := 0
	for _, condition := range conditions {
		if condition {
			n++
		}
	}
	return n
}
