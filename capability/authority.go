package capability

import (
	"encoding/json"
	"time"

	"tendril/fault"
	"tendril/run"
)

// EmptyInput asks for what there is.
type EmptyInput struct{}

// Validate has nothing to refuse.
func (EmptyInput) Validate() error { return nil }

// PollenIssueInput asks for a new identity.
type PollenIssueInput struct {
	Name string    `json:"name"`
	TTL  *Duration `json:"ttl"` // null: 90 days
	UID  *int      `json:"uid"` // only this account of the host may present it; null: any
}

// The range of a Pollen's life.
const (
	DefaultTTL        = Duration(90 * 24 * time.Hour)
	leastTTL, mostTTL = Duration(time.Minute), Duration(10 * 365 * 24 * time.Hour)
)

// Validate refuses an account that no host has, and a life out of range. The name
// is judged where names are.
func (in PollenIssueInput) Validate() error {
	if in.UID != nil && (*in.UID < 0 || *in.UID > 1<<32-2) { // (uid_t)-1 is nobody, chown(2)
		return fault.New(fault.Invalid, "uid %d is not one of an account", *in.UID)
	}
	return firstError(validName("name", in.Name), inRange("ttl", in.TTL, leastTTL, mostTTL))
}

// PollenInput names one Pollen.
type PollenInput struct {
	Name string `json:"name"`
}

// Validate refuses what is too long for any name.
func (in PollenInput) Validate() error { return validName("name", in.Name) }

// Pollen is an issued identity, without what proves it.
type Pollen struct {
	Name    string    `json:"name"`
	UID     *int      `json:"uid"`
	Issued  run.Time  `json:"issued"`
	Expires run.Time  `json:"expires"`
	Rotated *run.Time `json:"rotated"`
	Revoked *run.Time `json:"revoked"`
	Live    bool      `json:"live"` // neither revoked nor expired
}

// IssuedPollen is the one answer that holds a token. The Stem keeps a digest of
// it alone.
type IssuedPollen struct {
	Pollen Pollen `json:"pollen"`
	Token  string `json:"token"`
}

// GrantAddInput asks for one more grant. Its keys are those of the grants file, and
// what the file may hold is judged there.
type GrantAddInput struct {
	Pollen      string   `json:"pollen"`
	Substrates  []string `json:"substrates"`
	Classes     []string `json:"classes"`
	Providers   []string `json:"providers"`
	Provider    string   `json:"provider"`
	Images      []string `json:"images"`
	EgressHosts []string `json:"egress_hosts"` // each a rule of GET and HEAD on every path
	Credentials []string `json:"credentials"`
	Limits      Limits   `json:"limits"`
	Runs        string   `json:"runs"`       // own or substrate; empty: own
	DailyRuns   *int     `json:"daily_runs"` // null: no bound
	Expires     string   `json:"expires"`    // a date or an RFC 3339 time; empty: with the Pollen
}

// mostNamed bounds the lists of a request.
const mostNamed = 256

// Validate refuses lists that no file would hold.
func (in GrantAddInput) Validate() error {
	for field, list := range map[string][]string{
		"substrates": in.Substrates, "classes": in.Classes, "providers": in.Providers,
		"egress_hosts": in.EgressHosts, "credentials": in.Credentials, "images": in.Images,
	} {
		if len(list) > mostNamed {
			return fault.New(fault.Invalid, "%s names %d, more than %d", field, len(list), mostNamed)
		}
		for _, name := range list {
			if err := validName(field, name); err != nil {
				return err
			}
		}
	}
	return firstError(validName("pollen", in.Pollen), validName("provider", in.Provider), validName("runs", in.Runs),
		validName("expires", in.Expires), in.Limits.Validate())
}

// GrantRevokeInput says what to take from a Pollen's grants: a class, a Substrate,
// or with neither all of them.
type GrantRevokeInput struct {
	Pollen    string `json:"pollen"`
	Class     string `json:"class"`
	Substrate string `json:"substrate"`
}

// Validate refuses what is too long for any name.
func (in GrantRevokeInput) Validate() error {
	return firstError(validName("pollen", in.Pollen), validName("class", in.Class), validName("substrate", in.Substrate))
}

// GrantCheckInput asks whether a grants file would be taken: the one in force, or
// the text of another.
type GrantCheckInput struct {
	File string  `json:"file"` // the name that errors give the text
	Text *string `json:"text"` // null: the one in force
}

// Validate refuses a name that is too long; how large a file may be is judged where
// files are.
func (in GrantCheckInput) Validate() error { return validName("file", in.File) }

// GrantExplainInput asks whether a Pollen may, and why.
type GrantExplainInput struct {
	Pollen    string `json:"pollen"`
	Class     string `json:"class"`
	Substrate string `json:"substrate"` // empty: none in particular
	Provider  string `json:"provider"`
	Image     string `json:"image"`
	Limits    Limits `json:"limits"`
}

// Validate refuses what is too long for any name, and limits out of range.
func (in GrantExplainInput) Validate() error {
	return firstError(validName("pollen", in.Pollen), validName("class", in.Class), validName("substrate", in.Substrate),
		validName("provider", in.Provider), validName("image", in.Image), in.Limits.Validate())
}

// Grant is one grant of the file, as it is written there.
type Grant struct {
	Line   int             `json:"line"`   // where it stands in the file
	Digest string          `json:"digest"` // of its content, as the ledger names it
	Grant  json.RawMessage `json:"grant"`  // its keys and values
	Live   bool            `json:"live"`   // it has not expired, and its Pollen is live
}

// GrantChange is what became of the grants file.
type GrantChange struct {
	File    string `json:"file"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"` // grants, or classes and Substrates of grants

	Notes []string `json:"notes"` // what keeps what was added from giving anything yet
}

// GrantCheck is what a grants file holds.
type GrantCheck struct {
	File   string `json:"file"`
	Grants int    `json:"grants"`
}

// Explanation says whether a Pollen may, and why or why not.
type Explanation struct {
	Permitted bool     `json:"permitted"`
	Rule      string   `json:"rule"`    // what decided
	Missing   string   `json:"missing"` // what would have to be there; empty if nothing
	Reasons   []string `json:"reasons"` // for each grant of the Pollen, what it says
}

// SubstrateAddInput binds a name to a repository. Exactly one of Path and URL is
// set.
type SubstrateAddInput struct {
	Name     string    `json:"name"`
	Path     *run.Path `json:"path"`
	URL      string    `json:"url"`
	Branch   string    `json:"branch"`   // what a run without a base starts from; empty: HEAD
	Provider string    `json:"provider"` // the wall of runs that name none; empty: the strongest
}

// Validate refuses what names no repository, or two.
func (in SubstrateAddInput) Validate() error {
	if (in.Path == nil) == (in.URL == "") {
		return fault.New(fault.Invalid, "a Substrate is bound to a path or to a URL").WithHint("give exactly one of --path and --url")
	}
	if in.Path != nil {
		if err := validName("path", string(*in.Path)); err != nil {
			return err
		}
	}
	return firstError(validName("name", in.Name), validName("url", in.URL), validName("branch", in.Branch), validName("provider", in.Provider))
}

// SubstrateInput names one Substrate.
type SubstrateInput struct {
	Name string `json:"name"`
}

// Validate refuses what is too long for any name.
func (in SubstrateInput) Validate() error { return validName("name", in.Name) }

// Substrate is a name and what it is bound to.
type Substrate struct {
	Name     string    `json:"name"`
	Path     *run.Path `json:"path"` // null for one that is bound to a URL, and for whoever is not the Botanist
	URL      *string   `json:"url"`
	Branch   *string   `json:"branch"`
	Provider *string   `json:"provider"`
}

// LedgerPageInput asks for rows of the ledger.
type LedgerPageInput struct {
	From  *int64 `json:"from"`  // the first row; null: the last Limit rows
	Limit int    `json:"limit"` // 1 to 1000; 0 means 100
}

// MostRows is the most rows that one page holds.
const MostRows = 1000

// Validate refuses a page out of range.
func (in LedgerPageInput) Validate() error {
	if in.Limit < 0 || in.Limit > MostRows {
		return fault.New(fault.Invalid, "a limit of %d rows is not between 1 and %d", in.Limit, MostRows)
	}
	if in.From != nil && *in.From < 0 {
		return fault.New(fault.Invalid, "there is no row %d: the first is row 0", *in.From)
	}
	return nil
}

// LedgerPage is some rows in their order. Each is one line, byte for byte as the
// tree holds it.
type LedgerPage struct {
	Rows []string `json:"rows"`
	Size int64    `json:"size"` // how many the ledger has
}

// LedgerCheckpoint is what to keep elsewhere: with it nobody can rewrite or shorten
// what the ledger holds by now without being found out.
type LedgerCheckpoint struct {
	Checkpoint string `json:"checkpoint"` // a signed note, c2sp.org/tlog-checkpoint
	Key        string `json:"key"`        // verifies its signature
}

// Pass is what a command without a Fruit came to.
type Pass struct {
	Run    run.Run `json:"run"`
	Stdout []byte  `json:"stdout_b64"`
	Stderr []byte  `json:"stderr_b64"`
}
