//go:build linux

package stem

import (
	"encoding/json"
	"fmt"
	"testing"

	"tendril/capability"
	"tendril/destination"
	"tendril/egress/proxy"
	"tendril/fault"
	"tendril/ledger"
	"tendril/pollen"
	"tendril/run"
)

// A wildcard permits every name below it, and a name can carry out what it likes. So each
// is written down and counted, also when a run's record tells no more of them apart, and the
// limit of requests ends the run.
func TestNamesBelowAWildcardAreRecordedAndBounded(t *testing.T) {
	s := bare(t)
	writeControl(t, s, "grants.yaml", `version: 1
grants:
  - pollen: botanist
    substrates: [handbook]
    classes: [sprout.grow]
    egress: [{host: "*.example.org", methods: any}]
`)
	file, err := s.grants()
	if err != nil {
		t.Fatal(err)
	}
	substrate := run.Substrate{Name: "handbook"}
	id := recorded(t, s, substrate, string(pollen.Botanist))
	c := &call{
		digest: s.state.Digest, name: "sprout.grow", actor: Actor{name: pollen.Botanist, proof: ledger.ByProcess},
		input: capability.GrowInput{Work: capability.Work{Substrate: substrate}}, permit: permit{reach: &file.Grants[0]},
	}
	rows, err := s.state.Record(t.Context(), c.decision(nil))
	if err != nil {
		t.Fatal(err)
	}
	c.row = rows[0].Seq
	r := &reach{stem: s, call: c, run: id, grant: &file.Grants[0], tally: newTally(nil)}
	defer r.tally.close()
	connect := func(i int) (proxy.Verdict, error) {
		to, err := destination.ParseAuthority(fmt.Sprintf("%060d.example.org:443", i))
		if err != nil {
			t.Fatal(err)
		}
		return gate{r, egressRules}.Connect(t.Context(), to)
	}

	const names = mostDestinations + 20
	for i := range names {
		if v, err := connect(i); err != nil || !v.Allowed {
			t.Fatalf("%d: %+v, %v", i, v, err)
		}
	}
	lines, err := s.state.LedgerLines(t.Context(), c.row+1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for _, line := range lines {
		var row struct{ Kind, Run, Target, Decision string }
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		if row.Run == string(id) && row.Decision == string(ledger.Permit) {
			written[row.Target] = true
		}
	}
	for i := range names {
		if name := fmt.Sprintf("https://%060d.example.org:443", i); !written[name] {
			t.Errorf("no row says %s", name)
		}
	}
	var counted int64
	for _, seen := range r.summary() {
		counted += int64(seen.Allowed)
	}
	if told := len(r.summary()); counted != names || told != mostDestinations+1 {
		t.Errorf("%d requests are counted of %d, at %d destinations", counted, names, told)
	}

	// As if it had asked for nearly all that it may: each request is a row on disk.
	r.asked = mostAsked - 1
	if _, err := connect(names); err != nil {
		t.Error(err)
	}
	select {
	case limit := <-r.limit():
		t.Errorf("stopped by %s before the limit", limit)
	default:
	}
	if _, err := connect(names + 1); !fault.Is(err, fault.Denied) {
		t.Errorf("more than the limit: %v", err)
	}
	select {
	case limit := <-r.limit():
		if limit != run.Egress {
			t.Errorf("stopped by %s", limit)
		}
	default:
		t.Error("nothing stops the run")
	}
}
