package capability

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"tendril/fault"
	"tendril/run"
	"tendril/spelling"
)

// Work is a command for a Sprout, or a task for an agent. Only Substrate and either Argv or
// Agent and Ask are needed.
type Work struct {
	Substrate run.Substrate `json:"substrate"`
	Base      string        `json:"base"`  // a commit or what names one; empty: HEAD
	Dirty     bool          `json:"dirty"` // start from a snapshot of the working tree instead
	Argv      []string      `json:"argv"`  // the command and its arguments; no shell is put before it

	// Agent is the name of an agent that the site knows, Ask what it is to do, and Model the
	// model that it asks; empty: the first that the grant names for the agent's route.
	Agent string `json:"agent"`
	Ask   string `json:"ask"`
	Model string `json:"model"`

	// Env is further environment, NAME=value. Nothing of the caller's own
	// environment is passed, and no secret belongs here.
	Env      []string `json:"env"`
	Provider string   `json:"provider"` // empty: the strongest wall that is ready; named: that one or none
	Limits   Limits   `json:"limits"`

	// Image is an OCI image whose tree is the root file system inside, as package
	// rootfs/image reads references; empty: a view of this host's toolchain.
	Image string `json:"image"`

	// Override is the name of the provider whose boundary the Botanist takes for this one
	// run although the policy denies it: "host", which has none. Empty: nothing is overridden.
	Override string `json:"override"`

	// Terminal gives the Sprout a terminal of this size instead of pipes; its
	// stdout and stderr are then one stream.
	Terminal *Size `json:"terminal"`

	// Fetch are files from outside that are put into the workspace before the command
	// starts, each as the grant permits.
	Fetch []FetchedFile `json:"fetch"`
}

// FetchedFile is a file that is to be fetched.
type FetchedFile struct {
	URL    string `json:"url"`
	Path   string `json:"path"`   // in the workspace
	Digest string `json:"digest"` // "sha256:" and 64 hexadecimal digits that it has to have; empty: any
}

// GrowInput asks for one run whose work becomes a Fruit.
type GrowInput struct {
	Work

	// RequireClean makes any verdict but clean a failure of the call's exit
	// status. It changes nothing about the run.
	RequireClean bool `json:"require_clean"`
}

// PassInput asks for one command whose output is the result. What it changes goes
// with its Terrarium.
type PassInput struct {
	Work
}

// MostPassed is the most output that a pass can return.
const MostPassed = Bytes(16 << 20)

// Validate refuses what no answer could hold, and what [Work.Validate] refuses.
func (in PassInput) Validate() error {
	if most := in.Limits.Output; most != nil && *most > MostPassed {
		return fault.New(fault.Invalid, "the output limit of %v is more than a pass returns (%v)", *most, MostPassed).
			WithHint("write the rest to a file, and grow instead of passing")
	}
	return in.Work.Validate()
}

// Size is the size of a terminal in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// The bounds of a command line, which Linux would refuse much later and less
// clearly: MAX_ARG_STRLEN of execve(2), and a total well below its stack limit.
const (
	longestArgument = 128<<10 - 1
	largestCommand  = 1 << 20
	longestName     = 4096 // of a path, a ref or a provider
)

// Validate refuses what no wall and no repository could honour.
func (in Work) Validate() error {
	if err := validSubstrate(in.Substrate); err != nil {
		return err
	}
	if err := in.validTask(); err != nil {
		return err
	}
	if in.Dirty && in.Base != "" {
		return fault.New(fault.Invalid, "both a base and a dirty working tree were asked for").
			WithHint("a dirty base is HEAD and the changes of the working tree; leave one of the two out")
	}
	if err := validName("base", in.Base); err != nil {
		return err
	}
	if strings.HasPrefix(in.Base, "-") {
		return fault.New(fault.Invalid, "a base cannot begin with a dash: %q", in.Base)
	}
	if err := validName("provider", in.Provider); err != nil {
		return err
	}
	if err := firstError(ValidImage(in.Image), in.validOverride()); err != nil {
		return err
	}
	if err := validCommand(in.Argv, in.Env); err != nil {
		return err
	}
	if err := validFetch(in.Fetch); err != nil {
		return err
	}
	if in.Terminal != nil && (in.Terminal.Rows == 0 || in.Terminal.Cols == 0) {
		return fault.New(fault.Invalid, "a terminal of %d rows and %d columns shows nothing", in.Terminal.Rows, in.Terminal.Cols)
	}
	return in.Limits.Validate()
}

// ValidImage refuses what names no OCI image on any host. Which one it names is for the
// Stem to find out. An empty name is none.
func ValidImage(name string) error {
	for _, r := range name {
		if r <= ' ' || r == 0x7f {
			return fault.New(fault.Invalid, "the image %q holds a blank or a control character", clip(name)).
				WithHint("name it as in oci:/path:tag, docker-archive:/path.tar or registry.example/name:tag")
		}
	}
	return validName("image", name)
}

func (in Work) validOverride() error {
	switch {
	case in.Override == "":
		return nil
	case in.Override != Host:
		return fault.New(fault.Invalid, "the policy cannot be overridden for %q", clip(in.Override)).WithHint("only for host, which is no wall")
	case in.Provider != in.Override:
		return fault.New(fault.Invalid, "an override for the provider %s is only for a request that names it", in.Override).WithHint("add --provider %s, or leave the override out", in.Override)
	}
	return nil
}

// mostFiles is how many files a run may fetch before its work.
const mostFiles = 64

func validFetch(files []FetchedFile) error {
	if len(files) > mostFiles {
		return fault.New(fault.Invalid, "%d files are more than %d", len(files), mostFiles)
	}
	for _, file := range files {
		if file.Path == "" || len(file.Path) > longestName || path.IsAbs(file.Path) || path.Clean(file.Path) != file.Path ||
			file.Path == "." || strings.HasPrefix(file.Path, "..") || strings.ContainsRune(file.Path, 0) || strings.EqualFold(strings.Split(file.Path, "/")[0], ".git") {
			return fault.New(fault.Invalid, "%q is not a path in the workspace", clip(file.Path)).
				WithHint("write a relative, clean path outside of .git, such as vendor/data.json")
		}
		if err := firstError(validURL(file.URL), validDigest(file.Digest)); err != nil {
			return err
		}
	}
	return nil
}

// validTask refuses work that is not exactly one of a command and an agent's task.
func (in Work) validTask() error {
	switch {
	case in.Agent == "" && (in.Ask != "" || in.Model != ""):
		return fault.New(fault.Invalid, "there is something to ask, and no agent").
			WithHint(`name one, as in: tendril grow --agent codex "make the failing test pass"`)
	case in.Agent != "" && len(in.Argv) > 0:
		return fault.New(fault.Invalid, "both a command and an agent were given").WithHint("leave one of the two out")
	case in.Agent != "" && strings.TrimSpace(in.Ask) == "":
		return fault.New(fault.Invalid, "there is nothing for the agent to do").
			WithHint(`say it, as in: tendril grow --agent codex "make the failing test pass"`)
	case in.Agent != "":
		return firstError(validName("agent", in.Agent), validName("model", in.Model), validCommand([]string{in.Ask}, nil))
	case len(in.Argv) == 0:
		return fault.New(fault.Invalid, "there is no command to run").
			WithHint("put it after --, as in: tendril grow -- make test")
	case in.Argv[0] == "":
		return fault.New(fault.Invalid, "the command is an empty string")
	}
	return nil
}

func validSubstrate(s run.Substrate) error {
	switch {
	case s == run.Substrate{}:
		return fault.New(fault.Invalid, "no Substrate was named").
			WithHint("name a Git repository, as in: --substrate .")
	case s.Name != "" && s.Path != "":
		return fault.New(fault.Invalid, "a Substrate is named by a name or by a path, not by both")
	case s.Path != "" && s.Path[0] != '/':
		return fault.New(fault.Invalid, "the path of the Substrate is not absolute: %q", string(s.Path))
	}
	return validName("substrate", s.String())
}

func validName(field, value string) error {
	if len(value) > longestName {
		return fault.New(fault.Invalid, "%s is longer than %d bytes", field, longestName)
	}
	if strings.ContainsRune(value, 0) {
		return fault.New(fault.Invalid, "%s holds a NUL byte", field)
	}
	return nil
}

func validCommand(argv, env []string) error {
	total := 0
	for _, word := range slices.Concat(argv, env) {
		if len(word) > longestArgument {
			return fault.New(fault.Invalid, "an argument of %d bytes is longer than the kernel takes (%d)", len(word), longestArgument).
				WithHint("put it into a file of the Substrate")
		}
		if strings.ContainsRune(word, 0) {
			return fault.New(fault.Invalid, "an argument or a variable holds a NUL byte")
		}
		total += len(word) + 1
	}
	if total > largestCommand {
		return fault.New(fault.Invalid, "arguments and environment of %d bytes are larger than %d", total, largestCommand).
			WithHint("put them into a file of the Substrate")
	}
	seen := make(map[string]bool, len(env))
	for _, variable := range env {
		name, _, ok := strings.Cut(variable, "=")
		if !ok || name == "" {
			return fault.New(fault.Invalid, "a variable of the environment is not NAME=value: %q", name).
				WithHint("nothing of your own environment is passed on; write the value out")
		}
		if seen[name] {
			return fault.New(fault.Invalid, "the variable %q is set twice", name)
		}
		seen[name] = true
	}
	return nil
}

// RunInput names one run.
type RunInput struct {
	Run run.ID `json:"run"`
}

// Validate refuses what is not an id.
func (in RunInput) Validate() error { return validID(in.Run) }

func validID(id run.ID) error {
	_, err := run.ParseID(string(id))
	return err
}

// ListInput selects runs. Absent fields select all.
type ListInput struct {
	Limit     int            `json:"limit"` // 1 to 1000; 0 means 100
	State     run.State      `json:"state"`
	Substrate *run.Substrate `json:"substrate"`
	After     run.ID         `json:"after,omitempty"` // only runs older than this one
}

// MostListed is the most runs that one call lists, and DefaultListed how many
// it lists when nobody says.
const (
	MostListed    = 1000
	DefaultListed = 100
)

// Validate refuses a limit out of range and a state that does not exist.
func (in ListInput) Validate() error {
	if in.Limit < 0 || in.Limit > MostListed {
		return fault.New(fault.Invalid, "a limit of %d runs is not between 1 and %d", in.Limit, MostListed)
	}
	if in.State != "" && !in.State.Valid() {
		return unknownState(in.State)
	}
	if in.Substrate != nil {
		if err := validSubstrate(*in.Substrate); err != nil {
			return err
		}
	}
	if in.After != "" {
		return validID(in.After)
	}
	return nil
}

func unknownState(state run.State) error {
	var names []string
	for _, known := range run.States() {
		names = append(names, string(known))
	}
	hint := "states are " + strings.Join(names, ", ")
	if nearest, ok := spelling.Nearest(string(state), names); ok {
		hint = fmt.Sprintf("did you mean %s?", nearest)
	}
	return fault.New(fault.Invalid, "there is no state %q", string(state)).WithHint("%s", hint)
}

// WatchInput follows a run.
type WatchInput struct {
	Run   run.ID `json:"run"`
	After int64  `json:"after"` // only events with a greater id
}

// Validate refuses what is not an id and a negative place.
func (in WatchInput) Validate() error { return validPlace(in.Run, in.After) }

// LogsInput asks for a Sprout's output.
type LogsInput struct {
	Run    run.ID `json:"run"`
	After  int64  `json:"after"`  // only events with a greater id
	Follow bool   `json:"follow"` // wait for more until the run ends
}

// Validate refuses what is not an id and a negative place.
func (in LogsInput) Validate() error { return validPlace(in.Run, in.After) }

func validPlace(id run.ID, after int64) error {
	if after < 0 {
		return fault.New(fault.Invalid, "an event cannot have the id %d", after)
	}
	return validID(id)
}

// DiffInput asks what a Fruit changes.
type DiffInput struct {
	Run run.ID `json:"run"`
	// NoPatch leaves the patch out: only which entries changed, and the flags.
	NoPatch bool `json:"no_patch"`
}

// Validate refuses what is not an id.
func (in DiffInput) Validate() error { return validID(in.Run) }

// AcceptInput asks to merge a Fruit.
type AcceptInput struct {
	Run  run.ID `json:"run"`
	Into string `json:"into"` // short name of a branch; empty: the branch that was HEAD's when the run began
}

// Validate refuses what is not an id. Whether Into names a branch is for the
// repository to say.
func (in AcceptInput) Validate() error {
	if err := validName("into", in.Into); err != nil {
		return err
	}
	if strings.HasPrefix(in.Into, "-") {
		return fault.New(fault.Invalid, "a branch cannot begin with a dash: %q", in.Into)
	}
	return validID(in.Run)
}

// TerrariumListInput asks for the walls.
type TerrariumListInput struct{}

// Validate has nothing to refuse.
func (TerrariumListInput) Validate() error { return nil }

// ProbeInput asks to probe a wall.
type ProbeInput struct {
	Provider string `json:"provider"` // empty: the one that a run without a provider would get
	Image    string `json:"image"`    // empty: as a run without one; an empty root where that needs an image
	Limits   Limits `json:"limits"`
}

// Validate refuses limits out of range.
func (in ProbeInput) Validate() error {
	return firstError(validName("provider", in.Provider), ValidImage(in.Image), in.Limits.Validate())
}
