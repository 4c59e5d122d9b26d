//go:build linux

package probe

import (
	"bytes"
	"strings"
	"testing"

	"tendril/fault"
)

func TestParseTakesWhatProbesPrint(t *testing.T) {
	for _, r := range []Result{
		{"N02", Sealed, "no route leads away from loopback"},
		{"N02", Leak, `a "quoted" \ path`},
		{"Q07", Unknown, ""},
		{"F27", NotApplicable, strings.Repeat(`\`, maxDetail)},
	} {
		got, err := Parse(append(r.encode(), '\n'))
		if err != nil || got != r {
			t.Errorf("%s came back as %s (%v)", r, got, err)
		}
	}
}

func TestParseRefusesEverythingElse(t *testing.T) {
	for _, line := range []string{
		"",
		"sealed",
		`{"id":"N02","status":"sealed"}`,
		`{"id":"N02","status":"passed","detail":""}`,
		`{"id":"none","status":"sealed","detail":""}`,
		`{"id":"N02","status":"sealed","detail":"","more":1}`,
		`{"id":"N02","status":"leak","status":"sealed","detail":""}`,
		`{"ID":"N02","Status":"sealed","Detail":""}`,
		`{"status":"sealed","id":"N02","detail":""}`,
		`{"id":"N02","status":"sealed","detail":""} `,
		` {"id":"N02","status":"sealed","detail":""}`,
		"{\"id\":\"N02\",\"status\":\"sealed\",\"detail\":\"\"}\n\n",
		"{\"id\":\"N02\",\"status\":\"sealed\",\"detail\":\"\"}\n{\"id\":\"N03\",\"status\":\"sealed\",\"detail\":\"\"}",
		`{"id":"N02","status":"sealed","detail":"` + "\x1b[2J" + `"}`,
		`{"id":"N02","status":"sealed","detail":"\u001b[2J"}`,
		`{"id":"N02","status":"sealed","detail":"\u202e"}`,
		`{"id":"N02","status":"sealed","detail":"` + strings.Repeat("x", maxDetail+1) + `"}`,
		`{"id":"N02","status":"sealed","detail":null}`,
		`["N02","sealed",""]`,
		strings.Repeat("[", 1000),
	} {
		if r, err := Parse([]byte(line)); err == nil {
			t.Errorf("%.80q was taken for %s", line, r)
		} else if !fault.Is(err, fault.BrokenBoundary) {
			t.Errorf("%.80q: %v is no broken boundary", line, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"id":"N02","status":"sealed","detail":"x"}`))
	f.Add([]byte(`{"id":"N02","status":"leak","status":"sealed","detail":"\"\\"}`))
	f.Add([]byte("{\"id\":\"N02\",\"status\":\"unknown\",\"detail\":\"\\u0000\"}\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Parse(line)
		if err != nil {
			return
		}
		if again := r.encode(); !bytes.Equal(again, bytes.TrimSuffix(line, []byte("\n"))) {
			t.Errorf("%q was taken for %q", line, again)
		}
		if _, ok := Find(r.ID); !ok || len(r.Detail) > maxDetail || printable(r.Detail) != r.Detail {
			t.Errorf("%q was taken", line)
		}
	})
}

func TestProbesAreWellFormed(t *testing.T) {
	seals := map[string]bool{}
	for _, s := range []string{Network, HostFiles, Descriptors, Environment, User, Accounts, Capabilities, RootReadonly, PID1, Devices, Kernel, KernelSurface, Processes, Limits} {
		seals[s] = false
	}
	core := map[string]bool{}
	ids := map[string]bool{}
	for _, p := range All() {
		if ids[p.ID] {
			t.Errorf("%s is there twice", p.ID)
		}
		ids[p.ID] = true
		if _, ok := seals[p.Seal]; !ok || p.What == "" || p.Dimension == "" || p.Run == nil {
			t.Errorf("%s is not filled in: %+v", p.ID, p)
		}
		seals[p.Seal] = true
		core[p.Seal] = core[p.Seal] || p.Core
		if p.Core && p.Stress {
			t.Errorf("%s is both cheap and stressing", p.ID)
		}
	}
	for seal, there := range seals {
		if !there || !core[seal] {
			t.Errorf("the seal %s has no probe, or no core probe", seal)
		}
	}
}

func TestDetailIsPrintableAndBounded(t *testing.T) {
	if got := printable("a\x1b[31m\u202eb\x00" + strings.Repeat("é", 2*maxDetail)); len(got) != maxDetail || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%q", got)
	}
}
