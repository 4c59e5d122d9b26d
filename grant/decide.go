package grant

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"tendril/capability"
	"tendril/spelling"
)

// Request is what a decision is about.
type Request struct {
	Pollen    string // who asks, proven
	Class     string // the capability's name
	Substrate string // by name; empty if the request is about none
	Provider  string // the wall that was asked for by name; empty if none was
	Image     string // the OCI image that was asked for; empty if none was
	Limits    capability.Limits

	Defaults  capability.Limits // the site's, for what a request or a grant leaves out
	RunsToday int               // how many runs this Pollen began since 00:00Z
	Now       time.Time
}

// Decision is the answer to a request and why it is so.
type Decision struct {
	Request   Request
	Permitted bool
	Grant     *Grant // the one that permits; nil if none does
	Index     int    // its place in the file, from 0; -1 if none permits

	Rule    string   // what decided: a line of the file, or the law that denies
	Missing string   // what is missing or wrong, in words; empty if permitted
	Add     string   // the command that would grant it; empty if permitted or if none can
	Reasons []string // what the file's grants for this Pollen say, in their order
}

// The laws that deny by themselves.
const (
	ruleDefault = "what no single grant covers is denied"
	ruleControl = "the control Branch cannot be granted"
	ruleUnknown = "what is not known is denied"
)

// Decide permits the request if one grant covers all of it: the first in the file's
// order. Grants are not added up. Everything else is denied.
func (f File) Decide(q Request) Decision {
	d := Decision{Request: q, Index: -1, Rule: ruleDefault}
	if rule, missing := q.undecidable(); rule != "" {
		d.Rule, d.Missing = rule, missing
		return d
	}
	d.Missing = q.Pollen + " has no grant"
	fewest := -1
	for i, g := range f.Grants {
		if string(g.Pollen) != q.Pollen {
			continue
		}
		gaps := g.gaps(q)
		if len(gaps) == 0 {
			return Decision{
				Request: q, Permitted: true, Grant: &g, Index: i, Rule: g.Where(),
				Reasons: append(d.Reasons, g.describe(i)+" covers all of it"),
			}
		}
		reason := g.describe(i) + ", but " + strings.Join(gaps, ", and ")
		d.Reasons = append(d.Reasons, reason)
		if fewest < 0 || len(gaps) < fewest {
			fewest, d.Missing = len(gaps), g.Where()+": "+strings.Join(gaps, ", and ")
		}
	}
	d.Add = commandToAdd(q)
	return d
}

// undecidable returns the law that denies a request that no grant could permit, and
// what is wrong with it.
func (q Request) undecidable() (rule, why string) {
	definition, err := capability.Lookup(q.Class)
	switch {
	case err != nil:
		return ruleUnknown, fmt.Sprintf("there is no capability %q", clip(q.Class))
	case definition.Branch == capability.Control:
		return ruleControl, q.Class + " is the Botanist's alone"
	case spelling.CheckName("Pollen", q.Pollen) != nil:
		return ruleUnknown, spelling.CheckName("Pollen", q.Pollen).Error()
	case q.Substrate == "" && needsSubstrate(definition):
		return ruleDefault, "the request names no Substrate"
	case q.Substrate != "" && spelling.CheckName("Substrate", q.Substrate) != nil:
		return ruleUnknown, spelling.CheckName("Substrate", q.Substrate).Error()
	case q.Provider != "" && !slices.Contains(capability.Providers(), q.Provider):
		return ruleUnknown, fmt.Sprintf("there is no provider %q", clip(q.Provider))
	case q.Image != "" && capability.ValidImage(q.Image) != nil:
		return ruleUnknown, capability.ValidImage(q.Image).Error()
	case q.Limits.Validate() != nil:
		return ruleUnknown, q.Limits.Validate().Error()
	case q.Now.IsZero():
		return ruleUnknown, "the time of the request is not known"
	}
	return "", ""
}

// needsSubstrate reports whether a request of the capability is always about a Substrate:
// its input has one that cannot be left out, or a run, which works on one.
func needsSubstrate(d capability.Definition) bool {
	for _, field := range reflect.VisibleFields(d.Input) {
		key := field.Tag.Get("json")
		if (key == "substrate" || key == "run") && field.Type.Kind() != reflect.Pointer {
			return true
		}
	}
	return false
}

// gaps returns what of the request the grant does not cover, in words.
func (g Grant) gaps(q Request) []string {
	var gaps []string
	add := func(format string, args ...any) { gaps = append(gaps, fmt.Sprintf(format, args...)) }
	if g.Expires != nil && g.Expires.Passed(q.Now) {
		add("it ended at %s", time.Time(*g.Expires).Format(time.RFC3339))
	}
	if !slices.Contains(g.Classes, Class(q.Class)) {
		add("it does not name the class %s", q.Class)
	}
	if q.Substrate != "" && !slices.Contains(g.Substrates, SubstrateName(q.Substrate)) {
		add("it does not name the Substrate %s", q.Substrate)
	}
	if q.Provider != "" && !g.Accepts(q.Provider) {
		add("it does not accept the provider %s", q.Provider)
	}
	if q.Image != "" && !slices.Contains(g.Images, ImageName(q.Image)) {
		add("it does not name the image %s", clip(q.Image))
	}
	gaps = append(gaps, g.limitGaps(q)...)
	if g.Daily.Runs != nil && beginsRun(q.Class) && int64(q.RunsToday) >= int64(*g.Daily.Runs) {
		add("its %d runs of today are used up", *g.Daily.Runs)
	}
	return gaps
}

// beginsRun reports whether a class counts against the runs of a day.
func beginsRun(class string) bool { return class == "sprout.grow" || class == "stoma.pass" }

func (g Grant) limitGaps(q Request) []string {
	asked, granted, byDefault := q.Limits, g.Limits, q.Defaults
	return slices.Concat(
		limitGap("cpus", asked.CPUs, granted.CPUs, byDefault.CPUs),
		limitGap("memory", asked.Memory, granted.Memory, byDefault.Memory),
		limitGap("disk", asked.Disk, granted.Disk, byDefault.Disk),
		limitGap("output", asked.Output, granted.Output, byDefault.Output),
		limitGap("pids", asked.Pids, granted.Pids, byDefault.Pids),
		limitGap("wall", asked.Wall, granted.Wall, byDefault.Wall),
		limitGap("idle", asked.Idle, granted.Idle, byDefault.Idle),
	)
}

type limit interface {
	float64 | int | capability.Bytes | capability.Duration
}

// limitGap is written so that NaN is above every bound.
func limitGap[T limit](name string, asked, granted, byDefault *T) []string {
	switch {
	case asked == nil:
		return nil
	case granted != nil && !(*asked <= *granted):
		return []string{fmt.Sprintf("%s of %v is above its %v", name, *asked, *granted)}
	case granted == nil && byDefault == nil:
		return []string{fmt.Sprintf("it does not name a limit of %s", name)}
	case granted == nil && !(*asked <= *byDefault):
		return []string{fmt.Sprintf("it does not name a limit of %s, and %v is above the site's %v", name, *asked, *byDefault)}
	}
	return nil
}

// Effective returns the limits of a request that the grant permits: what was asked
// for, and for the rest the site's default, or the grant's limit where that is
// lower or there is no default.
func (g Grant) Effective(asked, defaults capability.Limits) capability.Limits {
	granted := g.Limits
	return capability.Limits{
		CPUs:   effective(asked.CPUs, granted.CPUs, defaults.CPUs),
		Memory: effective(asked.Memory, granted.Memory, defaults.Memory),
		Disk:   effective(asked.Disk, granted.Disk, defaults.Disk),
		Output: effective(asked.Output, granted.Output, defaults.Output),
		Pids:   effective(asked.Pids, granted.Pids, defaults.Pids),
		Wall:   effective(asked.Wall, granted.Wall, defaults.Wall),
		Idle:   effective(asked.Idle, granted.Idle, defaults.Idle),
	}
}

func effective[T limit](asked, granted, byDefault *T) *T {
	least := asked
	if least == nil {
		least = byDefault
	}
	if least == nil || (granted != nil && *granted < *least) {
		least = granted
	}
	return least
}

// describe says which grant it is and what it holds.
func (g Grant) describe(index int) string {
	return fmt.Sprintf("%s (grant %d) holds %s on %s", g.Where(), index+1, join(g.Classes), join(g.Substrates))
}

func join[T ~string](words []T) string {
	var text []string
	for _, word := range words {
		text = append(text, string(word))
	}
	return strings.Join(text, ", ")
}

// commandToAdd is the command that adds a grant which covers the request.
func commandToAdd(q Request) string {
	substrate := q.Substrate
	if substrate == "" {
		substrate = "NAME" // a grant is on a Substrate, also where a request is not
	}
	words := []string{"tendril grant add", "--pollen", q.Pollen, "--class", q.Class, "--substrate", substrate}
	if q.Provider != "" {
		words = append(words, "--allow-provider", q.Provider)
	}
	if q.Image != "" {
		words = append(words, "--image", q.Image)
	}
	l := q.Limits
	words = slices.Concat(words, flag("cpus", l.CPUs), flag("memory", l.Memory), flag("disk", l.Disk), flag("output", l.Output),
		flag("pids", l.Pids), flag("wall", l.Wall), flag("idle", l.Idle))
	return strings.Join(words, " ")
}

func flag[T limit](name string, value *T) []string {
	if value == nil {
		return nil
	}
	return []string{"--" + name, fmt.Sprint(*value)}
}

// Scope is what a Pollen may see through one class: by Substrate, whose runs.
type Scope map[string]Runs

// Scope returns what the Pollen may see through the class at now. What one grant shows
// of a Substrate and another does not is shown.
func (f File) Scope(pollen, class string, now time.Time) Scope {
	scope := Scope{}
	if definition, err := capability.Lookup(class); err != nil || definition.Branch == capability.Control || now.IsZero() {
		return scope
	}
	for _, g := range f.Grants {
		if string(g.Pollen) != pollen || !slices.Contains(g.Classes, Class(class)) || (g.Expires != nil && g.Expires.Passed(now)) {
			continue
		}
		for _, name := range g.Substrates {
			if g.Runs == SubstrateRuns {
				scope[string(name)] = SubstrateRuns
			} else if scope[string(name)] == "" {
				scope[string(name)] = OwnRuns
			}
		}
	}
	return scope
}

// Sees reports whether a run on the Substrate is in the scope; own says whether the
// Pollen began it. A Substrate without a name is in no scope.
func (s Scope) Sees(substrate string, own bool) bool {
	whose, ok := s[substrate]
	return ok && (own || whose == SubstrateRuns)
}
