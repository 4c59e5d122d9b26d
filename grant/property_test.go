package grant

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tendril/capability"
	"tendril/destination"
	"tendril/spelling"
)

// The universe is small, so that requests and grants meet often.
var (
	pollens    = []string{"ann", "ben", "botanist"}
	substrates = []string{"handbook", "site", "tools"}
	unknowns   = []string{"", "*", "Ann", "zed", "site ", "run", "control", "..", "a/b", "\x00", strings.Repeat("a", 64)}
	instants   = []time.Time{noon.Add(-24 * time.Hour), noon, noon.Add(24 * time.Hour)}
)

func maybe[T any](t *rapid.T, label string, of *rapid.Generator[T]) *T {
	return rapid.Ptr(of, true).Draw(t, label)
}

func subset[T ~string](t *rapid.T, label string, of []string) Set[T] {
	words := rapid.SliceOfNDistinct(rapid.SampledFrom(of), 1, 3, rapid.ID).Draw(t, label)
	var set Set[T]
	for _, word := range words {
		set = append(set, T(word))
	}
	return set
}

func drawLimits(t *rapid.T, label string) capability.Limits {
	return capability.Limits{
		CPUs:   maybe(t, label+" cpus", rapid.SampledFrom([]float64{0.5, 1, 2})),
		Memory: maybe(t, label+" memory", rapid.SampledFrom([]capability.Bytes{1 << 30, 2 << 30, 4 << 30})),
		Pids:   maybe(t, label+" pids", rapid.SampledFrom([]int{64, 128})),
		Wall:   maybe(t, label+" wall", rapid.SampledFrom([]capability.Duration{capability.Duration(time.Minute), capability.Duration(time.Hour)})),
	}
}

func drawRule(t *rapid.T) destination.Rule {
	pattern, err := destination.ParsePattern(rapid.SampledFrom([]string{"a.example", "*.example.org"}).Draw(t, "host"))
	if err != nil {
		t.Fatal(err)
	}
	rule := destination.Rule{Host: pattern}
	if rapid.Bool().Draw(t, "methods") {
		rule.Methods = rapid.SampledFrom([]destination.Methods{{"GET"}, {"GET", "POST"}, {destination.Any}}).Draw(t, "method")
	}
	if !rule.Tunnel() && rapid.Bool().Draw(t, "paths") {
		rule.Paths = rapid.SampledFrom([][]destination.PathPattern{{"/v1/*"}, {"/v1/*", "/v2"}}).Draw(t, "path")
	}
	return rule
}

func drawGrant(t *rapid.T) Grant {
	g := Grant{
		Pollen:     Holder(rapid.SampledFrom(pollens).Draw(t, "pollen")),
		Substrates: subset[SubstrateName](t, "substrates", substrates),
		Classes:    subset[Class](t, "classes", []string{"sprout.grow", "stoma.pass", "run.list", "run.get", "terrarium.probe"}),
		Limits:     Limits{Limits: drawLimits(t, "granted")},
		Runs:       rapid.SampledFrom([]Runs{"", OwnRuns, SubstrateRuns}).Draw(t, "runs"),
		Daily:      Daily{Runs: maybe(t, "daily", rapid.SampledFrom([]Count{1, 3}))},
		Egress:     rapid.SliceOfN(rapid.Custom(drawRule), 0, 2).Draw(t, "egress"),
	}
	if len(g.Egress) == 0 {
		g.Egress = nil
	}
	if rapid.Bool().Draw(t, "some walls") {
		g.Providers = subset[Provider](t, "providers", capability.Providers())
	}
	if rapid.Bool().Draw(t, "credentials") {
		g.Credentials = subset[CredentialName](t, "credential", []string{"model-api", "git"})
	}
	if end := maybe(t, "expires", rapid.SampledFrom(instants)); end != nil {
		g.Expires = new(Expiry(*end))
	}
	return g
}

func drawFile(t *rapid.T) File {
	f := File{Version: 1, Grants: rapid.SliceOfN(rapid.Custom(drawGrant), 0, 4).Draw(t, "grants")}
	for i := range f.Grants {
		f.Grants[i].Line = 3 // told apart by their place alone
	}
	return f
}

// drawRequest draws a request that some grant of f may cover, and now and then one that cannot
// be.
func drawRequest(t *rapid.T, f File) Request {
	q := Request{
		Pollen: rapid.SampledFrom(pollens).Draw(t, "who"), Class: "sprout.grow", Substrate: rapid.SampledFrom(substrates).Draw(t, "on what"),
		Defaults: drawLimits(t, "default"), RunsToday: rapid.IntRange(0, 4).Draw(t, "runs today"), Now: rapid.SampledFrom(instants).Draw(t, "now"),
	}
	if len(f.Grants) > 0 {
		g := rapid.SampledFrom(f.Grants).Draw(t, "meant")
		q.Pollen, q.Class = string(g.Pollen), string(rapid.SampledFrom(g.Classes).Draw(t, "class"))
		q.Substrate = string(rapid.SampledFrom(g.Substrates).Draw(t, "substrate"))
	}
	if rapid.Bool().Draw(t, "asks for limits") {
		q.Limits = drawLimits(t, "asked")
	}
	if rapid.Bool().Draw(t, "asks for a wall") {
		q.Provider = rapid.SampledFrom(capability.Providers()).Draw(t, "wall")
	}
	var classes []string
	for _, definition := range capability.All() {
		classes = append(classes, definition.Name)
	}
	switch rapid.IntRange(0, 12).Draw(t, "slip") {
	case 0:
		q.Pollen = rapid.SampledFrom(append(unknowns, pollens...)).Draw(t, "other pollen")
	case 1:
		q.Class = rapid.SampledFrom(append(unknowns, classes...)).Draw(t, "other class")
	case 2:
		q.Substrate = rapid.SampledFrom(append(unknowns, substrates...)).Draw(t, "other substrate")
	case 3:
		q.Provider = rapid.SampledFrom(unknowns).Draw(t, "other wall")
	case 4:
		q.Now = time.Time{}
	}
	return q
}

// reaches reports whether a request is permitted and may reach a URL.
func reaches(f File, q Request, method, to string) bool {
	d := f.Decide(q)
	if !d.Permitted {
		return false
	}
	u, err := destination.Parse(to)
	return err == nil && destination.Decide(u, method, d.Grant.Egress).Allowed
}

// TestDecideIsTheRule compares Decide with the rule as one would say it.
func TestDecideIsTheRule(t *testing.T) {
	permitted := 0
	rapid.Check(t, func(t *rapid.T) {
		f := drawFile(t)
		q := drawRequest(t, f)
		definition, err := capability.Lookup(q.Class)
		free := slices.Contains([]string{"run.list", "substrate.list", "terrarium.list", "terrarium.probe"}, q.Class)
		want := false
		for _, g := range f.Grants {
			want = want || err == nil && definition.Branch != capability.Control &&
				string(g.Pollen) == q.Pollen && slices.Contains(g.Classes, Class(q.Class)) &&
				(slices.Contains(g.Substrates, SubstrateName(q.Substrate)) || q.Substrate == "" && free) &&
				!q.Now.IsZero() && (g.Expires == nil || q.Now.Before(time.Time(*g.Expires))) &&
				(q.Provider == "" || slices.Contains(g.Providers, Provider(q.Provider)) ||
					g.Providers == nil && q.Provider != "host" && slices.Contains(capability.Providers(), q.Provider)) &&
				below(q.Limits.CPUs, g.Limits.CPUs, q.Defaults.CPUs) && below(q.Limits.Memory, g.Limits.Memory, q.Defaults.Memory) &&
				below(q.Limits.Pids, g.Limits.Pids, q.Defaults.Pids) && below(q.Limits.Wall, g.Limits.Wall, q.Defaults.Wall) &&
				(g.Daily.Runs == nil || q.RunsToday < int(*g.Daily.Runs) || q.Class != "sprout.grow" && q.Class != "stoma.pass")
		}
		d := f.Decide(q)
		if d.Permitted != want {
			t.Fatalf("permitted: %v, want %v: %+v", d.Permitted, want, d)
		}
		if !d.Permitted {
			return
		}
		permitted++
		if d.Grant.Digest() != f.Grants[d.Index].Digest() {
			t.Fatalf("the grant is not the one at its place %d", d.Index)
		}
	})
	if permitted == 0 {
		t.Error("no request was permitted: the test says nothing")
	}
}

func below[T limit](asked, granted, byDefault *T) bool {
	bound := granted
	if bound == nil {
		bound = byDefault
	}
	return asked == nil || (bound != nil && *asked <= *bound)
}

// narrowings each take something away from a grant that permits, or report that there is nothing
// to take.
var narrowings = map[string]func(t *rapid.T, g *Grant) bool{
	"a substrate":  func(t *rapid.T, g *Grant) bool { return drop(t, &g.Substrates) },
	"a class":      func(t *rapid.T, g *Grant) bool { return drop(t, &g.Classes) },
	"a provider":   func(t *rapid.T, g *Grant) bool { return drop(t, &g.Providers) },
	"a credential": func(t *rapid.T, g *Grant) bool { return drop(t, &g.Credentials) },
	"an egress":    func(t *rapid.T, g *Grant) bool { return drop(t, &g.Egress) },
	"a method": func(t *rapid.T, g *Grant) bool {
		return len(g.Egress) > 0 && drop(t, &g.Egress[0].Methods)
	},
	"a path": func(t *rapid.T, g *Grant) bool {
		return len(g.Egress) > 0 && drop(t, &g.Egress[0].Paths)
	},
	"cpus":   func(t *rapid.T, g *Grant) bool { return halve(&g.Limits.CPUs) },
	"memory": func(t *rapid.T, g *Grant) bool { return halve(&g.Limits.Memory) },
	"pids":   func(t *rapid.T, g *Grant) bool { return halve(&g.Limits.Pids) },
	"wall":   func(t *rapid.T, g *Grant) bool { return halve(&g.Limits.Wall) },
	"the end": func(t *rapid.T, g *Grant) bool {
		end := noon
		if g.Expires != nil {
			end = time.Time(*g.Expires).Add(-24 * time.Hour)
		}
		g.Expires = new(Expiry(end))
		return true
	},
	"others' runs": func(t *rapid.T, g *Grant) bool { had := g.Runs == SubstrateRuns; g.Runs = OwnRuns; return had },
	"a run a day": func(t *rapid.T, g *Grant) bool {
		g.Daily.Runs = new(Count(1))
		return true
	},
}

// drop takes one element out of a list, which stays there when it is empty: the decision has to
// hold for what no file can say, too.
func drop[S ~[]E, E any](t *rapid.T, list *S) bool {
	if len(*list) == 0 {
		return false
	}
	at := rapid.IntRange(0, len(*list)-1).Draw(t, "dropped")
	*list = slices.Delete(slices.Clone(*list), at, at+1)
	return true
}

func halve[T limit](value **T) bool {
	if *value == nil {
		return false
	}
	*value = new(**value / 2)
	return true
}

func TestTakingAwayNeverPermitsMore(t *testing.T) {
	for name, narrow := range narrowings {
		t.Run(strings.ReplaceAll(name, " ", "-"), rapid.MakeCheck(func(t *rapid.T) {
			wide := drawFile(t)
			q := drawRequest(t, wide)
			if len(wide.Grants) == 0 {
				t.Skip("nothing to take from")
			}
			narrowed := File{Version: 1, Grants: slices.Clone(wide.Grants)}
			at := rapid.IntRange(0, len(wide.Grants)-1).Draw(t, "narrowed")
			g := &narrowed.Grants[at]
			g.Egress = slices.Clone(g.Egress)
			if !narrow(t, g) {
				t.Skip("nothing to take")
			}
			noMore(t, wide, narrowed, q)
			before, after := wide.Decide(q), narrowed.Decide(q)
			if after.Permitted && before.Index == after.Index {
				noHigher(t, after.Grant.Effective(q.Limits, q.Defaults), before.Grant.Effective(q.Limits, q.Defaults))
			}
		}))
	}
}

func TestRemovingAGrantNeverPermitsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wide := drawFile(t)
		q := drawRequest(t, wide)
		if len(wide.Grants) == 0 {
			t.Skip("no grant to remove")
		}
		at := rapid.IntRange(0, len(wide.Grants)-1).Draw(t, "removed")
		narrowed := File{Version: 1, Grants: slices.Delete(slices.Clone(wide.Grants), at, at+1)}
		if narrowed.Decide(q).Permitted && !wide.Decide(q).Permitted {
			t.Fatal("less permits more")
		}
		scopeNoWider(t, wide, narrowed, q)
	})
}

func noMore(t *rapid.T, wide, narrowed File, q Request) {
	t.Helper()
	if narrowed.Decide(q).Permitted && !wide.Decide(q).Permitted {
		t.Fatalf("less permits more: %+v", narrowed.Decide(q))
	}
	// Which grant decides may change; what one grant lets be reached does not grow.
	if before, after := wide.Decide(q), narrowed.Decide(q); before.Index == after.Index {
		for _, to := range []string{"https://a.example/v1/x", "https://a.example/v2", "https://b.example.org/", "https://example.org/"} {
			for _, method := range []string{"GET", "POST", "DELETE"} {
				if reaches(narrowed, q, method, to) && !reaches(wide, q, method, to) {
					t.Fatalf("less reaches more: %s %s", method, to)
				}
			}
		}
		if after.Permitted {
			for _, credential := range after.Grant.Credentials {
				if !slices.Contains(before.Grant.Credentials, credential) {
					t.Fatalf("less uses more: %s", credential)
				}
			}
			for _, wall := range capability.Providers() {
				if after.Grant.Accepts(wall) && !before.Grant.Accepts(wall) {
					t.Fatalf("less accepts more: %s", wall)
				}
			}
		}
	}
	scopeNoWider(t, wide, narrowed, q)
}

func scopeNoWider(t *rapid.T, wide, narrowed File, q Request) {
	t.Helper()
	before, after := wide.Scope(q.Pollen, q.Class, q.Now), narrowed.Scope(q.Pollen, q.Class, q.Now)
	for _, substrate := range append(substrates, unknowns...) {
		for _, own := range []bool{true, false} {
			if after.Sees(substrate, own) && !before.Sees(substrate, own) {
				t.Fatalf("less shows more: %s", substrate)
			}
		}
	}
}

func noHigher(t *rapid.T, got, bound capability.Limits) {
	t.Helper()
	if higher(got.CPUs, bound.CPUs) || higher(got.Memory, bound.Memory) || higher(got.Pids, bound.Pids) || higher(got.Wall, bound.Wall) {
		t.Fatalf("limits of %+v are above %+v", got, bound)
	}
}

// higher reports whether a limit is above a bound; none is above every bound.
func higher[T limit](got, bound *T) bool { return bound != nil && (got == nil || *got > *bound) }

func TestEffectiveIsNeverAboveWhatWasGrantedOrAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, asked, byDefault := drawGrant(t), drawLimits(t, "asked"), drawLimits(t, "default")
		got := g.Effective(asked, byDefault)
		noHigher(t, got, g.Limits.Limits)
		noHigher(t, got, asked)
		if (asked == capability.Limits{}) {
			noHigher(t, got, byDefault)
		}
	})
}

// What is asked for beside the Substrate changes nothing about which one is decided about, and
// what is not known is denied whatever else is right.
func TestWhatAPermitIsAbout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFile(t)
		q := drawRequest(t, f)
		d := f.Decide(q)
		if d.Request != q {
			t.Fatalf("the decision is about %+v", d.Request)
		}
		if !d.Permitted {
			return
		}
		if q.Substrate != "" && !slices.Contains(d.Grant.Substrates, SubstrateName(q.Substrate)) {
			t.Fatalf("%q is in no grant", q.Substrate)
		}
		for _, field := range []*string{&q.Pollen, &q.Class, &q.Substrate, &q.Provider} {
			known := *field
			*field = rapid.StringN(1, 20, 80).Filter(func(s string) bool {
				return !slices.Contains(slices.Concat(pollens, substrates, capability.Providers(), grantable()), s)
			}).Draw(t, "unknown")
			if d := f.Decide(q); d.Permitted || (d.Add != "" && spelling.CheckName("Pollen", q.Pollen) != nil) {
				t.Fatalf("%+v", d)
			}
			*field = known
		}
	})
}

func TestAnotherPollensGrantChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, g := drawFile(t), drawGrant(t)
		q := drawRequest(t, f)
		if string(g.Pollen) == q.Pollen {
			t.Skip("it is this Pollen's")
		}
		with := File{Version: 1, Grants: slices.Insert(slices.Clone(f.Grants), rapid.IntRange(0, len(f.Grants)).Draw(t, "place"), g)}
		before, after := f.Decide(q), with.Decide(q)
		if before.Permitted != after.Permitted || before.Missing != after.Missing || before.Add != after.Add ||
			(before.Permitted && before.Grant.Digest() != after.Grant.Digest()) {
			t.Fatalf("before %+v\nafter %+v", before, after)
		}
		scopeNoWider(t, f, with, q)
		scopeNoWider(t, with, f, q)
	})
}
