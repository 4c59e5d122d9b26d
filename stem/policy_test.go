//go:build linux

package stem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"tendril/capability"
	"tendril/destination"
	"tendril/fault"
	"tendril/grant"
	"tendril/ledger"
	"tendril/policy"
	"tendril/pollen"
	"tendril/run"
	"tendril/state"
	"tendril/stoma"
	"tendril/terrarium"
)

// facade is a provider with nothing behind it: its Terrariums claim to be what was asked,
// but for what a test changes, and refuse every exec.
type facade struct {
	name         string // "": facade
	runtime      string
	change       func(*terrarium.Row)
	opened, asks atomic.Int32
}

func (f *facade) Name() string { return cmp.Or(f.name, "facade") }

func (f *facade) Capabilities() terrarium.Capabilities {
	can := terrarium.Capabilities{Runtime: f.runtime, Fields: map[string]terrarium.Enforcement{}}
	for _, field := range terrarium.Fields() {
		can.Fields[field] = terrarium.ByHost
	}
	return can
}

func (f *facade) Ready(context.Context) error                 { return nil }
func (f *facade) Sweep(context.Context, string, string) error { return nil }

func (f *facade) Open(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	f.opened.Add(1)
	host, inside := net.Pipe()
	session := stoma.NewSession(inside, stoma.Guest, "facade", func(stream *stoma.Stream, _ *stoma.Fields) {
		f.asks.Add(1)
		stream.Reset(stoma.CodeRefused, "there is nothing here")
	})
	client, err := stoma.Connect(ctx, host, stoma.Options{})
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	rows := boundaryOf(spec)
	for i := range rows {
		if f.change != nil {
			f.change(&rows[i])
		}
	}
	return &front{rows, client, session}, nil
}

// front is a Terrarium of a facade.
type front struct {
	rows    []terrarium.Row
	client  *stoma.Client
	session *stoma.Session
}

func (f *front) Stoma() *stoma.Client                 { return f.client }
func (f *front) Boundary() []terrarium.Row            { return f.rows }
func (f *front) Exceeded() <-chan terrarium.LimitName { return nil }
func (f *front) Usage() terrarium.Usage               { return terrarium.Usage{} }

func (f *front) Close(context.Context) error {
	err := f.client.Close()
	_ = f.session.Close() // says that the other half is gone
	return err
}

// boundaryOf has a row for each field, which says that it was done.
func boundaryOf(spec terrarium.Spec) []terrarium.Row {
	rows := []terrarium.Row{
		terrarium.LimitRow("CPUs", spec.CPUs, spec.CPUs.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Memory", spec.Memory, spec.Memory.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Disk", spec.Disk, spec.Disk.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Output", spec.Output, spec.Output.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Pids", spec.Pids, spec.Pids.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Wall", spec.Wall, spec.Wall.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Idle", spec.Idle, spec.Idle.Value, terrarium.Constructed, terrarium.ByHost, ""),
	}
	values := map[string]string{"User": "70707:70707", "Network": "none", "Listeners": spec.DescribeListeners()}
	for _, field := range terrarium.Fields() {
		if slices.ContainsFunc(rows, func(r terrarium.Row) bool { return r.Field == field }) {
			continue
		}
		value, ok := values[field]
		if !ok {
			value = "as asked"
		}
		rows = append(rows, terrarium.Row{Field: field, Asked: value, Applied: value, Enforced: terrarium.ByHost})
	}
	return rows
}

// Each row that the policy reads has to be there, to say what was asked, and to be kept.
func TestAppliedBoundaryNeedsEachRow(t *testing.T) {
	reaching := &grant.Grant{Egress: []destination.Rule{{}}}
	applied := func(field, as string) func(*terrarium.Row) bool {
		return func(r *terrarium.Row) bool {
			if r.Field == field {
				r.Applied = as
			}
			return true
		}
	}
	agreed := func(field, as string) func(*terrarium.Row) bool {
		return func(r *terrarium.Row) bool {
			if r.Field == field {
				r.Asked, r.Applied = as, as
			}
			return true
		}
	}
	without := func(field string) func(*terrarium.Row) bool {
		return func(r *terrarium.Row) bool { return r.Field != field }
	}
	notKept := func(field string) func(*terrarium.Row) bool {
		return func(r *terrarium.Row) bool {
			if r.Field == field {
				r.Enforced = terrarium.NotKept
			}
			return true
		}
	}
	same := func(*terrarium.Row) bool { return true }
	const unknown, workspace, allowlist = policy.OutOfRange, policy.NeedsWorkspace, policy.NeedsAllowlist
	for name, c := range map[string]struct {
		runtime string
		reach   *grant.Grant
		keep    func(*terrarium.Row) bool
		mask    policy.Mask
	}{
		"as asked":                        {"container", nil, same, 0},
		"as asked, of another runtime":    {"microvm", nil, same, 0},
		"as asked, with a road":           {"container", reaching, same, 0},
		"the host itself":                 {"host", nil, same, hostMask("sprout.grow")},
		"a runtime nobody knows":          {"brick", nil, same, unknown},
		"a runtime in capitals":           {"Container", nil, same, unknown},
		"no runtime":                      {"", nil, same, unknown},
		"no user":                         {"container", nil, without("User"), unknown},
		"root inside":                     {"container", nil, agreed("User", "0:0"), unknown},
		"root inside, another group":      {"container", nil, agreed("User", "0:70707"), unknown},
		"a user that nobody keeps":        {"container", nil, notKept("User"), unknown},
		"no network":                      {"container", nil, without("Network"), unknown},
		"another network":                 {"container", nil, agreed("Network", "bridge"), unknown},
		"a network in capitals":           {"container", nil, applied("Network", "None"), unknown},
		"a network that nobody keeps":     {"container", nil, notKept("Network"), unknown},
		"another network, with a road":    {"container", reaching, agreed("Network", "bridge"), unknown | allowlist},
		"no workspace":                    {"container", nil, without("Workspace.Image"), unknown | workspace},
		"another workspace":               {"container", nil, applied("Workspace.Image", "/"), unknown | workspace},
		"a workspace that nobody keeps":   {"container", nil, notKept("Workspace.Image"), unknown | workspace},
		"no environment":                  {"container", nil, without("Env"), unknown},
		"another environment":             {"container", nil, applied("Env", "that of the host"), unknown},
		"an environment that nobody kept": {"container", nil, notKept("Env"), unknown},
		"a road without its listeners":    {"container", reaching, without("Listeners"), allowlist},
		"a road with other listeners":     {"container", reaching, applied("Listeners", "other=1"), allowlist},
		"a road whose listeners are none": {"container", reaching, agreed("Listeners", ""), allowlist},
		"listeners that nobody keeps":     {"container", reaching, notKept("Listeners"), allowlist},
	} {
		t.Run(name, func(t *testing.T) {
			call := &call{name: "sprout.grow", provider: &facade{runtime: c.runtime}, permit: permit{reach: c.reach}}
			spec := terrarium.Spec{}
			if c.reach != nil {
				spec.Listeners = []terrarium.Listener{{Name: "proxy", Port: proxyPort}}
			}
			var rows []terrarium.Row
			for _, row := range boundaryOf(spec) {
				if c.keep(&row) {
					rows = append(rows, row)
				}
			}
			in := call.applied(rows)
			if got := policy.EvaluateAll(in, call.actions()...); got.Mask != c.mask {
				t.Errorf("mask %d, want %d: %v", got.Mask, c.mask, got.Reasons)
			}
			if err := call.permitted(fault.BrokenBoundary, "applied", in); (err == nil) != (c.mask == 0) || err != nil && !fault.Is(err, fault.BrokenBoundary) {
				t.Errorf("mask %d: %v", c.mask, err)
			}
		})
	}
}

// behind is a Stem whose only wall is a facade.
func behind(t *testing.T, wall *facade) *Stem {
	t.Helper()
	s := bare(t)
	s.providers = []terrarium.Provider{terrarium.Validated(wall)}
	return s
}

// rowOf is a row of the ledger.
func rowOf(t *testing.T, s *Stem, seq *int64) ledger.Row {
	t.Helper()
	if seq == nil {
		t.Fatal("it has no row")
	}
	lines, err := s.state.LedgerLines(t.Context(), *seq, 1)
	if err != nil || len(lines) != 1 {
		t.Fatalf("%d rows, %v", len(lines), err)
	}
	row, err := ledger.ParseRow(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// A wall that the policy refuses is never opened, and no run is made.
func TestDeclaredBoundaryIsRefused(t *testing.T) {
	work := capability.Work{Substrate: run.Substrate{Path: "/nowhere"}, Argv: []string{"true"}}
	for _, runtime := range []string{"host", "brick"} {
		for name, input := range map[string]any{
			"sprout.grow": capability.GrowInput{Work: work}, "stoma.pass": capability.PassInput{Work: work}, "terrarium.probe": capability.ProbeInput{},
		} {
			t.Run(runtime+" "+name, func(t *testing.T) {
				wall := &facade{runtime: runtime}
				s := behind(t, wall)
				rule := "policy mask 256"
				if runtime == "host" {
					rule = fmt.Sprintf("policy mask %d", hostMask(name))
				}
				answer, err := s.Invoke(t.Context(), ByProcess(), name, input)
				var f *fault.Error
				if !errors.As(err, &f) || f.Kind != fault.Denied || f.Rule != rule {
					t.Errorf("%v; want the rule %q", err, rule)
				}
				row := rowOf(t, s, answer.Row)
				if row.Decision != ledger.Deny || row.Rule != rule || row.Fault != string(fault.Denied) || row.Capability != name {
					t.Errorf("the ledger says %+v", row)
				}
				runs, err := s.state.List(t.Context(), state.Filter{}, 10, "")
				if wall.opened.Load() != 0 || err != nil || len(runs) != 0 {
					t.Errorf("%d walls were opened for the runs %v, %v", wall.opened.Load(), runs, err)
				}
			})
		}
	}
}

// hostMask is what the policy says of work on the host itself.
func hostMask(capability string) policy.Mask {
	mask := policy.HostRuntime | policy.HostWrites | policy.UnrestrictedEgress | policy.RawSecrets
	if os.Geteuid() == 0 {
		mask |= policy.PrivilegedWork
	}
	if capability != "terrarium.probe" {
		mask |= policy.NeedsWorkspace
	}
	return mask
}

// The Botanist can take what is no wall for one run, by its name; the ledger says so, a
// Pollen cannot, and nothing else is overridden by it.
func TestHostIsTakenByNameForOneRun(t *testing.T) {
	work := func(change func(*capability.Work)) capability.PassInput {
		w := capability.Work{Substrate: run.Substrate{Path: "/nowhere"}, Argv: []string{"true"}, Provider: "host", Override: "host"}
		if change != nil {
			change(&w)
		}
		return capability.PassInput{Work: w}
	}
	s := behind(t, &facade{name: "host", runtime: "host"})
	answer, err := s.Invoke(t.Context(), ByProcess(), "stoma.pass", work(nil))
	row := rowOf(t, s, answer.Row)
	if !fault.Is(err, fault.NotFound) || row.Decision != ledger.Permit || !strings.Contains(row.Rule, fmt.Sprintf("takes the provider host, which the policy denies (mask %d)", hostMask("stoma.pass"))) {
		t.Errorf("%v, and the ledger says %+v", err, row)
	}
	for name, in := range map[string]capability.PassInput{
		"no override":         work(func(w *capability.Work) { w.Override = "" }),
		"of another":          work(func(w *capability.Work) { w.Override = "docker" }),
		"without naming it":   work(func(w *capability.Work) { w.Provider = "" }),
		"for another":         work(func(w *capability.Work) { w.Provider = "runsc" }),
		"a wall without name": work(func(w *capability.Work) { w.Provider, w.Override = "", "" }),
	} {
		answer, err := s.Invoke(t.Context(), ByProcess(), "stoma.pass", in)
		if row := rowOf(t, s, answer.Row); err == nil || row.Decision != ledger.Deny {
			t.Errorf("%s: %v, and the ledger says %+v", name, err, row)
		}
	}
	brick := behind(t, &facade{name: "host", runtime: "brick"})
	if _, err := brick.Invoke(t.Context(), ByProcess(), "stoma.pass", work(nil)); !fault.Is(err, fault.Denied) {
		t.Errorf("what nobody understands was taken: %v", err)
	}
}

// A wall that turns out to be another than was asked for ends the run before anything of
// the Sprout's is asked to run.
func TestAppliedBoundaryEndsTheRun(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*terrarium.Row)
		state  run.State
		asks   bool
	}{
		"another network": {func(r *terrarium.Row) {
			if r.Field == "Network" {
				r.Asked, r.Applied = "bridge", "bridge"
			}
		}, run.Withered, false},
		"as asked": {func(*terrarium.Row) {}, run.Withered, true}, // for want of anything behind it
	} {
		t.Run(name, func(t *testing.T) {
			wall := &facade{runtime: "container", change: c.change}
			s := behind(t, wall)
			work := capability.Work{Substrate: run.Substrate{Path: run.Path(committed(t))}, Argv: []string{"sh"}}
			answer, err := s.Invoke(t.Context(), ByProcess(), "sprout.grow", capability.GrowInput{Work: work})
			record, ok := answer.Output.(run.Run)
			if err != nil || !ok {
				t.Fatalf("%v, %v", answer.Output, err)
			}
			if record.State != c.state || record.Error == nil || record.Error.Kind != fault.BrokenBoundary {
				t.Errorf("%s: %+v", record.State, record.Error)
			}
			if asked := wall.asks.Load() != 0; wall.opened.Load() != 1 || asked != c.asks {
				t.Errorf("%d walls were opened; something was to run: %v", wall.opened.Load(), asked)
			}
		})
	}
}

// committed is a repository with one commit.
func committed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "first"}} {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@localhost"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return dir
}

// judged is what becomes of a request of a Definition.
func judged(t *testing.T, s *Stem, a Actor, d capability.Definition, input capability.Request) error {
	t.Helper()
	c := &call{name: d.Name, input: input, actor: a, digest: s.state.Digest}
	return s.judge(t.Context(), c, d)
}

// Nobody publishes without an approval, and who has no grant or no road out is told that
// first.
func TestPublishNeedsApproval(t *testing.T) {
	const none = "version: 1\ngrants: []\n"
	const one = "version: 1\ngrants:\n  - {pollen: %s, substrates: [handbook], classes: [egress.fetch]%s}\n"
	publish, err := capability.Lookup("egress.fetch")
	if err != nil {
		t.Fatal(err)
	}
	publish.Branch = capability.Publish
	input := capability.FetchInput{Substrate: run.Substrate{Name: "handbook"}, URL: "https://outside.example/"}
	for _, name := range []string{"botanist", "ci-docs"} {
		actor := Actor{name: pollen.Name(name), proof: ledger.ByToken}
		for grants, want := range map[string]struct {
			kind fault.Kind
			rule string
		}{
			none:                       {fault.Denied, "what no single grant covers is denied"},
			fmt.Sprintf(one, name, ""): {fault.Denied, "policy mask 32"},
			fmt.Sprintf(one, name, ", egress: [{host: outside.example}]"): {fault.NeedsApproval, "the publish Branch needs an exact approval each time"},
		} {
			s := bare(t)
			writeControl(t, s, "grants.yaml", grants)
			err := judged(t, s, actor, publish, input)
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != want.kind || f.Rule != want.rule {
				t.Errorf("%s with %q: %v", name, grants, err)
			}
		}
	}
}

// A fetch is a matter of the policy: it needs the allow-list.
func TestFetchNeedsTheAllowList(t *testing.T) {
	s, who := granted(t, "version: 1\ngrants:\n  - {pollen: ci-docs, substrates: [handbook], classes: [egress.fetch]}\n")
	answer, err := s.Invoke(t.Context(), who, "egress.fetch", capability.FetchInput{Substrate: run.Substrate{Name: "handbook"}, URL: "https://outside.example/"})
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Denied || f.Rule != "policy mask 32" || f.Hint == "" {
		t.Errorf("%v", err)
	}
	if row := rowOf(t, s, answer.Row); row.Decision != ledger.Deny || row.Rule != "policy mask 32" {
		t.Errorf("the ledger says %+v", row)
	}
}
