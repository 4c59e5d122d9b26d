package run

import (
	"encoding/json"
	"fmt"
)

// Event is one thing that happened in a run. In JSON it is
//
//	{"id":17,"run":"r-…","time":"…","kind":"output","data":{"fd":1,"b64":"…"}}
//
// The kind follows from the type of Data, so the two cannot disagree.
type Event struct {
	ID   int64 // 1, 2, 3, … per run; 0 until the store has given one
	Run  ID
	Time Time
	Data Data
}

// Kind names what an [Event] is about.
type Kind string

// The kinds of events.
const (
	KindState   Kind = "state"
	KindOutput  Kind = "output"
	KindEgress  Kind = "egress"
	KindLimit   Kind = "limit"
	KindWarning Kind = "warning"
	KindVerdict Kind = "verdict"
)

// Data is what an event says: one of the types of this package that
// [Event.Data] can hold, and no other.
type Data interface {
	Kind() Kind
	event()
}

// StateChange says that the run is now in State.
type StateChange struct {
	State State `json:"state"`
}

// OutputChunk is what the Sprout wrote: bytes, and hostile ones.
type OutputChunk struct {
	FD    int    `json:"fd"` // 1 or 2
	Bytes []byte `json:"b64"`
}

// EgressDecision says what became of one attempt to reach something outside.
type EgressDecision struct {
	Destination string `json:"destination"` // scheme, host and port; what else was asked for is the Sprout's own
	Method      string `json:"method"`      // CONNECT for a connection
	Allowed     bool   `json:"allowed"`
	Rule        string `json:"rule"`     // what decided
	Status      int    `json:"status"`   // of the answer; 0 if there was none
	Sent        int64  `json:"sent"`     // bytes of messages with their heads, or of a tunnel
	Received    int64  `json:"received"` // the same
	Failure     string `json:"failure"`  // why there is no answer, or less than all of it; empty if all went well
}

// LimitReached says which bound ended the run.
type LimitReached struct {
	Limit Limit `json:"limit"`
}

// Warning is for the Botanist: something is weaker than it could be.
type Warning struct {
	Detail string  `json:"detail"`
	Hint   *string `json:"hint"`
}

// VerdictGiven says what the evidence shows.
type VerdictGiven struct {
	Verdict Verdict  `json:"verdict"`
	Reasons []string `json:"reasons"`
}

// Kind implements [Data].
func (StateChange) Kind() Kind    { return KindState }
func (OutputChunk) Kind() Kind    { return KindOutput }
func (EgressDecision) Kind() Kind { return KindEgress }
func (LimitReached) Kind() Kind   { return KindLimit }
func (Warning) Kind() Kind        { return KindWarning }
func (VerdictGiven) Kind() Kind   { return KindVerdict }

func (StateChange) event()    {}
func (OutputChunk) event()    {}
func (EgressDecision) event() {}
func (LimitReached) event()   {}
func (Warning) event()        {}
func (VerdictGiven) event()   {}

type wireEvent struct {
	ID   int64           `json:"id"`
	Run  ID              `json:"run"`
	Time Time            `json:"time"`
	Kind Kind            `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// MarshalJSON implements [json.Marshaler].
func (e Event) MarshalJSON() ([]byte, error) {
	if e.Data == nil {
		return nil, fmt.Errorf("an event of run %s has no data", e.Run)
	}
	data, err := json.Marshal(e.Data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(wireEvent{ID: e.ID, Run: e.Run, Time: e.Time, Kind: e.Data.Kind(), Data: data})
}

// UnmarshalJSON implements [json.Unmarshaler]. An unknown kind or key is an
// error.
func (e *Event) UnmarshalJSON(text []byte) error {
	var wire wireEvent
	if err := decodeStrict(text, &wire); err != nil {
		return err
	}
	if _, err := ParseID(string(wire.Run)); err != nil { // the key may be missing
		return err
	}
	data, err := DecodeData(wire.Kind, wire.Data)
	if err != nil {
		return err
	}
	*e = Event{ID: wire.ID, Run: wire.Run, Time: wire.Time, Data: data}
	return nil
}

// DecodeData decodes the JSON of an event's data. An unknown kind or key is an
// error.
func DecodeData(kind Kind, text []byte) (Data, error) {
	switch kind {
	case KindState:
		return decodeData[StateChange](text)
	case KindOutput:
		return decodeData[OutputChunk](text)
	case KindEgress:
		return decodeData[EgressDecision](text)
	case KindLimit:
		return decodeData[LimitReached](text)
	case KindWarning:
		return decodeData[Warning](text)
	case KindVerdict:
		return decodeData[VerdictGiven](text)
	}
	return nil, fmt.Errorf("%q is not a kind of event", string(kind))
}

func decodeData[T Data](text []byte) (Data, error) {
	var data T
	if err := decodeStrict(text, &data); err != nil {
		return nil, fmt.Errorf("data of a %s event: %w", data.Kind(), err)
	}
	return data, nil
}
