package capability

import "tendril/run"

// Request is what every input of a capability is.
type Request interface {
	// Validate refuses what is malformed or out of range, as a fault of the kind
	// invalid.
	Validate() error

	// Subject says what the request is about. It is read before anything else of the
	// input is: whoever may not touch the subject learns nothing more.
	Subject() Subject
}

// Subject is what a request is about: a Substrate, a run (and through it the
// Substrate that it works on), or neither.
type Subject struct {
	Substrate *run.Substrate
	Run       run.ID // empty: none
}

// about is the Subject of a request for a Substrate.
func about(s run.Substrate) Subject { return Subject{Substrate: &s} }

// Subject is the Substrate to work on.
func (in Work) Subject() Subject { return about(in.Substrate) }

// Subject is the run.
func (in RunInput) Subject() Subject { return Subject{Run: in.Run} }

// Subject is the Substrate whose runs are asked for, if it is one.
func (in ListInput) Subject() Subject { return Subject{Substrate: in.Substrate} }

// Subject is the run.
func (in WatchInput) Subject() Subject { return Subject{Run: in.Run} }

// Subject is the run.
func (in LogsInput) Subject() Subject { return Subject{Run: in.Run} }

// Subject is the run.
func (in DiffInput) Subject() Subject { return Subject{Run: in.Run} }

// Subject is the run.
func (in AcceptInput) Subject() Subject { return Subject{Run: in.Run} }

// Subject is nothing in particular.
func (TerrariumListInput) Subject() Subject { return Subject{} }

// Subject is nothing in particular.
func (ProbeInput) Subject() Subject { return Subject{} }

// Subject is nothing in particular: identities are not of one Substrate.
func (PollenIssueInput) Subject() Subject { return Subject{} }

// Subject is nothing in particular.
func (PollenInput) Subject() Subject { return Subject{} }

// Subject is nothing in particular.
func (GrantAddInput) Subject() Subject { return Subject{} }

// Subject is nothing in particular.
func (GrantRevokeInput) Subject() Subject { return Subject{} }

// Subject is nothing in particular.
func (GrantCheckInput) Subject() Subject { return Subject{} }

// Subject is nothing in particular: the question is whether another may.
func (GrantExplainInput) Subject() Subject { return Subject{} }

// Subject is the Substrate's name.
func (in SubstrateAddInput) Subject() Subject { return about(run.Substrate{Name: in.Name}) }

// Subject is the Substrate's name.
func (in SubstrateInput) Subject() Subject { return about(run.Substrate{Name: in.Name}) }

// Subject is nothing in particular.
func (LedgerPageInput) Subject() Subject { return Subject{} }

// Subject is nothing in particular.
func (EmptyInput) Subject() Subject { return Subject{} }

// Wall is the boundary that a request asks for.
type Wall struct {
	Provider string // empty: the strongest that is ready
	Image    string // empty: none
	Limits   Limits
}

// Walled is a request whose work needs a Terrarium.
type Walled interface {
	Request
	Wall() Wall
}

// Wall is what the work is to run behind.
func (in Work) Wall() Wall { return Wall{in.Provider, in.Image, in.Limits} }

// Snapshot reports whether the work starts from a working tree as it lies there.
func (in Work) Snapshot() bool { return in.Dirty }

// Overrides names the provider whose boundary is taken although the policy denies it; empty:
// none is.
func (in Work) Overrides() string { return in.Override }

// Wall is what is to be probed.
func (in ProbeInput) Wall() Wall { return Wall(in) }
