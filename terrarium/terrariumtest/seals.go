//go:build linux

package terrariumtest

import (
	"bytes"
	"slices"
	"testing"

	"tendril/probe"
	"tendril/stoma"
	"tendril/terrarium"
)

// testSeals tries every declared seal from inside with all its probes. A seal that
// no probe tries, or that none saw holding, is not proven.
func testSeals(t *testing.T, g *ground) {
	if len(g.bare.Capabilities().Seals) == 0 {
		t.Skip("this wall declares no seal")
	}
	b := g.open(t, nil)
	results := b.probe(t, g, false)
	for _, seal := range g.bare.Capabilities().Seals {
		held := false
		for _, p := range probe.All() {
			if p.Seal != seal || p.Stress {
				continue
			}
			switch r := results[p.ID]; r.Status {
			case probe.Sealed:
				held = true
			case probe.NotApplicable:
			default:
				t.Errorf("the seal %s: %s (%s) says %q: %s", seal, p.ID, p.What, r.Status, r.Detail)
			}
		}
		if !held {
			t.Errorf("the seal %s is declared and no probe saw it hold", seal)
		}
	}
}

// testStress tries the seals with the probes that use something up, in a Terrarium
// that nobody needs afterwards.
func testStress(t *testing.T, g *ground) {
	b := g.open(t, nil)
	for id, r := range b.probe(t, g, true) {
		if r.Status != probe.Sealed && r.Status != probe.NotApplicable {
			t.Errorf("%s says %q: %s", id, r.Status, r.Detail)
		}
	}
}

// probe runs the probes of the declared seals, as the Sprout would.
func (b *box) probe(t *testing.T, g *ground, stress bool) map[string]probe.Result {
	t.Helper()
	argv := []string{terrarium.StomaInside, "probe"}
	for _, p := range probe.All() {
		if p.Stress == stress && slices.Contains(g.bare.Capabilities().Seals, p.Seal) {
			argv = append(argv, p.ID)
		}
	}
	if len(argv) == 2 {
		t.Skip("no probe tries the seals that this wall declares")
	}
	e := b.finish(t, b.start(t, stoma.ExecRequest{Argv: argv, Env: terrarium.ProbeEnv(b.spec, b.Boundary())}), "")
	results := map[string]probe.Result{}
	for line := range bytes.Lines([]byte(e.stdout)) {
		r, err := probe.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		results[r.ID] = r
	}
	for _, id := range argv[2:] {
		if _, answered := results[id]; !answered {
			t.Errorf("the probe %s did not answer: %s", id, e.stderr)
		}
	}
	return results
}
