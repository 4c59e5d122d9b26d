package grant

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tendril/capability"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func mustParse(t *testing.T, text string) File {
	t.Helper()
	f, err := Parse(FileName, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const decided = `version: 1
grants:
  - pollen: ci-docs
    substrates: [handbook]
    classes: [sprout.grow, run.get]
    providers: [runsc, gvisor]
    limits: {memory: 4GiB, wall: 1h}
    daily: {runs: 3}
    expires: 2027-06-30
  - pollen: ci-docs
    substrates: [site]
    classes: [run.list]
  - pollen: bench
    substrates: [handbook]
    classes: [sprout.grow, terrarium.probe]
`

func TestDecide(t *testing.T) {
	f := mustParse(t, decided)
	grow := Request{Pollen: "ci-docs", Class: "sprout.grow", Substrate: "handbook", Now: noon}
	with := func(change func(*Request)) Request { q := grow; change(&q); return q }
	memory := func(gib int64) *capability.Bytes { return new(capability.Bytes(gib << 30)) }
	for _, test := range []struct {
		name      string
		request   Request
		permitted bool
		rule      string
		missing   string
		add       string
	}{
		{"all of it", grow, true, "grants.yaml:3", "", ""},
		{"at its limits", with(func(q *Request) { q.Provider, q.Limits.Memory, q.RunsToday = "runsc", memory(4), 2 }), true, "grants.yaml:3", "", ""},
		{"the last moment", with(func(q *Request) { q.Now = time.Date(2027, 6, 29, 23, 59, 59, 0, time.UTC) }), true, "grants.yaml:3", "", ""},
		{"no Substrate where there need be none", with(func(q *Request) { q.Class, q.Substrate = "run.list", "" }), true, "grants.yaml:10", "", ""},
		{"about no Substrate", Request{Pollen: "bench", Class: "terrarium.probe", Now: noon}, true, "grants.yaml:13", "", ""},
		{"any wall", with(func(q *Request) { q.Pollen, q.Provider = "bench", "docker" }), true, "grants.yaml:13", "", ""},
		{"up to the site's default", with(func(q *Request) { q.Pollen, q.Limits.Memory, q.Defaults.Memory = "bench", memory(2), memory(2) }), true, "grants.yaml:13", "", ""},
		{"above the site's default, but granted", with(func(q *Request) { q.Limits.Memory, q.Defaults.Memory = memory(4), memory(1) }), true, "grants.yaml:3", "", ""},

		{"at its end", with(func(q *Request) { q.Now = time.Date(2027, 6, 30, 0, 0, 0, 0, time.UTC) }), false, ruleDefault,
			"grants.yaml:3: it ended at 2027-06-30T00:00:00Z", "tendril grant add --pollen ci-docs --class sprout.grow --substrate handbook"},
		{"another class", with(func(q *Request) { q.Class = "run.cancel" }), false, ruleDefault,
			"grants.yaml:3: it does not name the class run.cancel", "tendril grant add --pollen ci-docs --class run.cancel --substrate handbook"},
		{"the Substrate of one and the class of another", with(func(q *Request) { q.Substrate = "site" }), false, ruleDefault,
			"grants.yaml:3: it does not name the Substrate site", "tendril grant add --pollen ci-docs --class sprout.grow --substrate site"},
		{"another wall", with(func(q *Request) { q.Provider = "docker" }), false, ruleDefault,
			"grants.yaml:3: it does not accept the provider docker", "tendril grant add --pollen ci-docs --class sprout.grow --substrate handbook --allow-provider docker"},
		{"no wall", with(func(q *Request) { q.Pollen, q.Provider = "bench", "host" }), false, ruleDefault,
			"grants.yaml:13: it does not accept the provider host", "tendril grant add --pollen bench --class sprout.grow --substrate handbook --allow-provider host"},
		{"above its limits", with(func(q *Request) {
			q.Limits = capability.Limits{Memory: memory(5), Wall: new(capability.Duration(2 * time.Hour))}
		}), false, ruleDefault,
			"grants.yaml:3: memory of 5GiB is above its 4GiB, and wall of 2h0m0s is above its 1h0m0s",
			"tendril grant add --pollen ci-docs --class sprout.grow --substrate handbook --memory 5GiB --wall 2h0m0s"},
		{"a limit that nobody names", with(func(q *Request) { q.Limits.CPUs = new(0.5) }), false, ruleDefault,
			"grants.yaml:3: it does not name a limit of cpus", "tendril grant add --pollen ci-docs --class sprout.grow --substrate handbook --cpus 0.5"},
		{"above the site's default", with(func(q *Request) { q.Limits.Pids, q.Defaults.Pids = new(600), new(512) }), false, ruleDefault,
			"grants.yaml:3: it does not name a limit of pids, and 600 is above the site's 512", "tendril grant add --pollen ci-docs --class sprout.grow --substrate handbook --pids 600"},
		{"one run more", with(func(q *Request) { q.RunsToday = 3 }), false, ruleDefault,
			"grants.yaml:3: its 3 runs of today are used up", "tendril grant add --pollen ci-docs --class sprout.grow --substrate handbook"},
		{"nobody's grant", with(func(q *Request) { q.Pollen = "ci" }), false, ruleDefault, "ci has no grant", "tendril grant add --pollen ci --class sprout.grow --substrate handbook"},
		{"no Substrate where there has to be one", with(func(q *Request) { q.Substrate = "" }), false, ruleDefault, "the request names no Substrate", ""},
		{"a run of no Substrate", with(func(q *Request) { q.Class, q.Substrate = "run.get", "" }), false, ruleDefault, "the request names no Substrate", ""},
		{"the Botanist's", with(func(q *Request) { q.Class = "fruit.accept" }), false, ruleControl, "fruit.accept is the Botanist's alone", ""},
		{"no class", with(func(q *Request) { q.Class = "run.forget" }), false, ruleUnknown, `there is no capability "run.forget"`, ""},
		{"no wall of that name", with(func(q *Request) { q.Provider = "podman" }), false, ruleUnknown, `there is no provider "podman"`, ""},
		{"nobody", with(func(q *Request) { q.Pollen = "" }), false, ruleUnknown, `"" is not the name of a Pollen`, ""},
		{"a path", with(func(q *Request) { q.Substrate = "/srv/handbook" }), false, ruleUnknown, `"/srv/handbook" is not the name of a Substrate`, ""},
		{"a limit out of range", with(func(q *Request) { q.Limits.Pids = new(0) }), false, ruleUnknown, "the pids limit of 0 is out of range", ""},
		{"no time", with(func(q *Request) { q.Now = time.Time{} }), false, ruleUnknown, "the time of the request is not known", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := f.Decide(test.request)
			if got.Permitted != test.permitted || got.Rule != test.rule || got.Missing != test.missing || got.Add != test.add {
				t.Errorf("got  %v, %s; %s; %s\nwant %v, %s; %s; %s", got.Permitted, got.Rule, got.Missing, got.Add,
					test.permitted, test.rule, test.missing, test.add)
			}
			if got.Permitted != (got.Grant != nil) || got.Permitted != (got.Index >= 0) || got.Permitted == (got.Missing != "") {
				t.Errorf("the decision contradicts itself: %+v", got)
			}
		})
	}
}

func TestADenialSaysWhatEveryGrantLacks(t *testing.T) {
	d := mustParse(t, decided).Decide(Request{Pollen: "ci-docs", Class: "run.list", Substrate: "handbook", Now: noon})
	reasons := []string{
		"grants.yaml:3 (grant 1) holds sprout.grow, run.get on handbook, but it does not name the class run.list",
		"grants.yaml:10 (grant 2) holds run.list on site, but it does not name the Substrate handbook",
	}
	if diff := cmp.Diff(reasons, d.Reasons); diff != "" {
		t.Error(diff)
	}
}

// TestWhatNeedsASubstrate is the list as a person would write it, so that a new capability is
// looked at.
func TestWhatNeedsASubstrate(t *testing.T) {
	var free []string
	for _, definition := range capability.All() {
		if definition.Branch != capability.Control && !needsSubstrate(definition) {
			free = append(free, definition.Name)
		}
	}
	slices.Sort(free)
	if diff := cmp.Diff([]string{"run.list", "substrate.list", "terrarium.list", "terrarium.probe"}, free); diff != "" {
		t.Error(diff)
	}
}

// TestWhatBeginsARun: what takes a command counts against the runs of a day.
func TestWhatBeginsARun(t *testing.T) {
	for _, definition := range capability.All() {
		_, takesCommand := definition.Input.FieldByName("Argv")
		if beginsRun(definition.Name) != takesCommand {
			t.Errorf("%s: %v", definition.Name, takesCommand)
		}
	}
}

func TestEffective(t *testing.T) {
	bytes := func(mib int64) *capability.Bytes {
		if mib == 0 {
			return nil
		}
		return new(capability.Bytes(mib << 20))
	}
	for _, test := range []struct{ asked, granted, byDefault, want int64 }{
		{0, 0, 0, 0}, {0, 0, 64, 64}, {0, 32, 0, 32}, {0, 32, 64, 32}, {0, 64, 32, 32},
		{16, 0, 64, 16}, {16, 32, 0, 16}, {16, 32, 64, 16}, {48, 64, 32, 48},
	} {
		g := Grant{Limits: Limits{Limits: capability.Limits{Memory: bytes(test.granted)}}}
		got := g.Effective(capability.Limits{Memory: bytes(test.asked)}, capability.Limits{Memory: bytes(test.byDefault)})
		if diff := cmp.Diff(capability.Limits{Memory: bytes(test.want)}, got); diff != "" {
			t.Errorf("%+v: %s", test, diff)
		}
	}
}

func TestScope(t *testing.T) {
	f := mustParse(t, `version: 1
grants:
  - {pollen: a, substrates: [one, two], classes: [run.get, run.list]}
  - {pollen: a, substrates: [two, three], classes: [run.get], runs: substrate}
  - {pollen: a, substrates: [two], classes: [run.get], runs: own}
  - {pollen: a, substrates: [four], classes: [run.get], expires: 2026-12-01}
  - {pollen: b, substrates: [five], classes: [run.get], runs: substrate}
`)
	for _, test := range []struct {
		pollen, class string
		now           time.Time
		want          Scope
	}{
		{"a", "run.get", noon, Scope{"one": OwnRuns, "two": SubstrateRuns, "three": SubstrateRuns}},
		{"a", "run.get", noon.Add(-24 * time.Hour), Scope{"one": OwnRuns, "two": SubstrateRuns, "three": SubstrateRuns, "four": OwnRuns}},
		{"a", "run.list", noon, Scope{"one": OwnRuns, "two": OwnRuns}},
		{"a", "run.logs", noon, Scope{}},
		{"a", "run.gte", noon, Scope{}},
		{"a", "run.get", time.Time{}, Scope{}},
		{"c", "run.get", noon, Scope{}},
		{"", "run.get", noon, Scope{}},
	} {
		t.Run(fmt.Sprintf("%s %s", test.pollen, test.class), func(t *testing.T) {
			if diff := cmp.Diff(test.want, f.Scope(test.pollen, test.class, test.now)); diff != "" {
				t.Error(diff)
			}
		})
	}
	scope := Scope{"one": OwnRuns, "two": SubstrateRuns}
	for _, test := range []struct {
		substrate string
		own, want bool
	}{{"one", true, true}, {"one", false, false}, {"two", true, true}, {"two", false, true}, {"three", true, false}, {"", true, false}} {
		if scope.Sees(test.substrate, test.own) != test.want {
			t.Errorf("%+v", test)
		}
	}
}
