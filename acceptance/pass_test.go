package acceptance_test

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"tendril/capability"
	"tendril/run"
)

// pass runs a script as a pass on the Substrate, with whatever status it ends.
func (g *garden) pass(substrate, script string, flags ...string) (capability.Pass, answer) {
	g.t.Helper()
	args := append([]string{"--json", "pass", "--substrate", substrate}, flags...)
	said := g.tendril(append(args, "--", "sh", "-c", script)...)
	var passed capability.Pass
	if err := json.Unmarshal([]byte(said.stdout), &passed); err != nil {
		g.t.Fatalf("%+v: %v", said, err)
	}
	return passed, said
}

// What a pass does to its workspace is gone with it.
func TestAPassHasNoFruit(t *testing.T) {
	g := newGarden(t)
	before := g.git("for-each-ref") + g.git("status", "--porcelain")
	passed, said := g.pass(g.repo, "echo new >new.txt && echo more >>base.txt && rm old.txt && git commit -qam mine && git status --short")
	r := passed.Run
	if said.status != 0 || r.State != run.Passed || r.Branch != nil || r.Commit != nil || r.Changed != 0 || string(passed.Stdout) != "?? new.txt\n" {
		t.Errorf("%+v", said)
	}
	if after := g.git("for-each-ref") + g.git("status", "--porcelain"); after != before {
		t.Errorf("the repository has\n%s\nbefore\n%s", after, before)
	}
}

// A pass returns its output whole, and so stops at a mebibyte unless another bound is asked
// for.
func TestAPassStopsAtAMebibyteOfOutput(t *testing.T) {
	g := newGarden(t)
	const most, written = 1 << 20, 3 << 20
	script := fmt.Sprintf("head -c %d /dev/zero", written)
	passed, said := g.pass(g.repo, script)
	r := passed.Run
	if said.status != run.ExitStopped || r.Stop == nil || r.Stop.Limit != run.Output || len(passed.Stdout) == 0 || len(passed.Stdout) > most {
		t.Errorf("status %d, %+v, %d bytes of output", said.status, r.Stop, len(passed.Stdout))
	}
	for _, row := range r.Boundary {
		if row.Field == "Output" && row.Applied != fmt.Sprint(most) {
			t.Errorf("the boundary has %+v", row)
		}
	}
	if passed, said := g.pass(g.repo, script, "--output", "4MiB"); said.status != 0 || len(passed.Stdout) != written {
		t.Errorf("with more: status %d, %+v, %d bytes of output", said.status, passed.Run.Stop, len(passed.Stdout))
	}
}

// Files are brought before a pass, as before a run that grows.
func TestFilesAreBroughtBeforeAPass(t *testing.T) {
	g := newGarden(t)
	o := g.goOutside(t)
	g.permit(o, "")
	base := "https://" + net.JoinHostPort(o.host, o.port)
	passed, said := g.pass("handbook", "cat data/in.txt", "--fetch", base+"/ok/data=data/in.txt")
	if said.status != 0 || string(passed.Stdout) != "hello from /ok/data\n" {
		t.Errorf("%+v", said)
	}
	asked := len(o.requests())
	passed, said = g.pass("handbook", "echo ran", "--fetch", base+"/secret=x")
	if said.status != run.ExitRefused || strings.Contains(string(passed.Stdout), "ran") || len(o.requests()) != asked {
		t.Errorf("what the grant does not have: %+v", said)
	}
}
