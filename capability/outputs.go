package capability

import "tendril/run"

// Diff is what a Fruit changes.
type Diff struct {
	Run       run.ID     `json:"run"`
	Base      string     `json:"base"`
	Commit    string     `json:"commit"`
	Changes   []Change   `json:"changes"`
	Flags     []run.Flag `json:"flags"`
	Truncated bool       `json:"truncated"` // some hunks were left out
}

// Change is one entry that differs between base and Fruit.
type Change struct {
	Path        run.Path  `json:"path"`
	Kind        string    `json:"kind"`         // added, modified or deleted
	RenamedFrom *run.Path `json:"renamed_from"` // null when it was not renamed
	OldMode     string    `json:"old_mode"`     // Git's six octal digits; 000000 where there is none
	NewMode     string    `json:"new_mode"`

	// Hunks is a unified diff, already escaped for a person. Truncated says that
	// it was cut.
	Hunks     string `json:"hunks"`
	Truncated bool   `json:"truncated"`
}

// Acceptance is how a Fruit came into a branch.
type Acceptance struct {
	Run    run.ID   `json:"run"`
	Into   run.Path `json:"into"`   // the full name of the ref
	Before string   `json:"before"` // what the ref held
	After  string   `json:"after"`  // what it holds now
	How    string   `json:"how"`    // fast-forward, merge, or already (nothing to do)
}

// Rejection is what became of a rejected Fruit's branch.
type Rejection struct {
	Run    run.ID `json:"run"`
	Branch string `json:"branch"`
	Commit string `json:"commit"` // where it was, for who wants it back
}

// Terrarium is one wall as this host has it.
type Terrarium struct {
	Provider  string  `json:"provider"`
	Primitive string  `json:"primitive"` // what the wall is made of
	Ready     bool    `json:"ready"`
	Reason    *string `json:"reason"` // why it is not ready
	Hint      *string `json:"hint"`   // what would make it ready
	Default   bool    `json:"default"`
	OnlyNamed bool    `json:"only_named"` // a run that names no wall never gets it

	Runtime      string   `json:"runtime"`       // the policy's word
	SharedKernel bool     `json:"shared_kernel"` // the Sprout's system calls reach the host's kernel
	Roots        []string `json:"roots"`         // what can be the root file system: toolchain, image
	Limits       []string `json:"limits"`        // what it can bound
	Keeps        []Kept   `json:"keeps"`         // for each thing that can be asked of a wall, who keeps it
	Seals        []string `json:"seals"`         // what it closes off, each proven by the conformance suite
	Unsealed     []string `json:"unsealed"`      // what it leaves open, or cannot prove
}

// Kept says who keeps what was asked of a wall: host, guest, sampled or no.
type Kept struct {
	Field string `json:"field"`
	By    string `json:"by"`
}

// ProbeReport is what tries to get out of a wall came to.
type ProbeReport struct {
	Provider string        `json:"provider"`
	Boundary []run.Row     `json:"boundary"`
	Probes   []ProbeResult `json:"probes"`
	Held     bool          `json:"held"` // every probe of a seal that the wall declares passed; one that cannot tell did not
}

// ProbeOpen is the result of a probe that got through where the wall claims no seal.
const ProbeOpen = "open"

// ProbeResult is what one try came to.
type ProbeResult struct {
	Probe     string `json:"probe"`
	Dimension string `json:"dimension"`
	Seal      string `json:"seal"`
	Tries     string `json:"tries"`    // what a sealed boundary answers
	Result    string `json:"result"`   // sealed, leak, open, unknown or not-applicable; open: it leaks, and the wall does not claim to seal it
	Observed  string `json:"observed"` // what was seen, in the probe's words: a claim from inside
}
