// Package keeper is what the Stem and its sandbox keeper say to each other: one
// order down the control pipe, reports up the status pipe. It links no gVisor,
// so the Stem's side can be built and tested without it.
package keeper

import "time"

// Name is the keeper's argv[0].
const Name = "runsc-keeper"

// The descriptors that the Stem gives the keeper, besides the Terrarium's
// stdio on 0 to 2.
const (
	ControlFD = 3 // read: the order, then nothing; its end ends the sandbox
	StatusFD  = 4 // written: reports, one JSON object a line
)

// SproutGroup is the control group inside that holds all of the Sprout, as the Stoma
// makes it.
const SproutGroup = "/sprout"

// MaxOrder is the longest order, in bytes.
const MaxOrder = 64 << 10

// Order says what to keep.
type Order struct {
	ID       string            // the sandbox's name
	Bundle   string            // directory with config.json and the root file system
	Settings map[string]string // gVisor's flags, by name
}

// Report is what the keeper knows. Pids are the host's.
type Report struct {
	Sentry  int    `json:"sentry,omitempty"`
	Gofer   int    `json:"gofer,omitempty"`
	Started bool   `json:"started,omitempty"`
	Tasks   *Tasks `json:"tasks,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Tasks is what the sandbox's kernel counts in the Sprout's group. The keeper
// reports it every [Look] when it has changed.
type Tasks struct {
	Now     int   `json:"now"`     // processes and threads
	Refused int64 `json:"refused"` // how often the limit refused one
}

// Look is how often the keeper looks at the Sprout's group.
const Look = 100 * time.Millisecond
