package terrarium

// Row says of one field of Spec what was asked and what was applied. The rows
// of a Terrarium are evidence: Applied is read back or probed where that is
// possible, and How says which.
type Row struct {
	Dimension string      `json:"dimension"`
	Field     string      `json:"field"`
	Asked     string      `json:"asked"`
	Applied   string      `json:"applied"`
	How       How         `json:"how"`
	Enforced  Enforcement `json:"enforced"`
	Required  bool        `json:"required"`
	Note      string      `json:"note,omitempty"`
}

// How a row's Applied was learnt.
type How string

// The ways, strongest first.
const (
	Probed      How = "probe"       // tried from inside
	Inspected   How = "inspect"     // read back from what keeps it
	Constructed How = "constructed" // it follows from how the boundary was made
)

// The dimensions of a boundary.
const (
	DimensionFilesystem = "filesystem"
	DimensionNetwork    = "network"
	DimensionProcess    = "process"
	DimensionResources  = "resources"
)
