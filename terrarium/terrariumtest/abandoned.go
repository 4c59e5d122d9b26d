//go:build linux

package terrariumtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
)

// abandonedSpec tells the process that is started to be killed what to open.
const abandonedSpec = "TENDRIL_TEST_ABANDONED"

// abandonedOrder is what a Spec of this suite asks for, which has nobody to serve a listener.
// It is over what the parent made; nothing of the child's own would be removed.
type abandonedOrder struct {
	Run       string
	Rootfs    terrarium.Rootfs
	Workspace terrarium.Workspace
	Env       []string
	User      terrarium.User
	Memory    terrarium.Limit[int64]
	Disk      terrarium.Limit[int64]
}

func orderOf(s terrarium.Spec) abandonedOrder {
	return abandonedOrder{s.Run, s.Rootfs, s.Workspace, s.Env, s.User, s.Memory, s.Disk}
}

func (o abandonedOrder) spec() terrarium.Spec {
	return terrarium.Spec{Run: o.Run, Rootfs: o.Rootfs, Workspace: o.Workspace, Env: o.Env, User: o.User, Memory: o.Memory, Disk: o.Disk}
}

// abandoned opens a Terrarium and waits to be killed, when this process was started
// for that.
func abandoned(t *testing.T, g *ground) bool {
	order, ok := os.LookupEnv(abandonedSpec)
	if !ok {
		return false
	}
	var o abandonedOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		t.Fatal(err)
	}
	spec := o.spec()
	opened, err := g.provider().Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	(&box{opened, g, spec}).sh(t, `echo so far > work; sync`)
	fmt.Println("\nopened")
	select {} // the parent kills
}

// testSweep: a Terrarium whose owner was killed is gone after a Sweep, whenever that
// was, and a Sweep takes no other run's.
func testSweep(t *testing.T, g *ground) {
	bystander := g.open(t, nil)
	moments := map[string]func(t *testing.T, spec terrarium.Spec, child *bufio.Scanner){
		"while opening": func(t *testing.T, spec terrarium.Spec, _ *bufio.Scanner) {
			g.eventually(t, "something of the Terrarium is there", func() bool {
				tr := g.tracesOf(t, spec)
				return len(tr.processes) > 1 || len(tr.named) > 0 // the first is the one to be killed
			})
		},
		"while open": g.untilOpen,
	}
	for moment, await := range moments {
		t.Run(strings.ReplaceAll(moment, " ", "-"), func(t *testing.T) {
			spec := g.spec(t)
			g.abandon(t, spec, await)
			for range 2 {
				if err := g.bare.Sweep(g.within(t), spec.Run, spec.Workspace.Dir); err != nil {
					t.Fatalf("sweeping: %v", err)
				}
				g.leavesNothing(t, spec, "after Sweep")
			}
		})
	}
	if got := bystander.sh(t, "echo unharmed"); got != "unharmed\n" {
		t.Errorf("after the Sweep of another run a Terrarium says %q", got)
	}
}

// untilOpen waits until a Terrarium is open and there is some work in it.
func (g *ground) untilOpen(t *testing.T, spec terrarium.Spec, child *bufio.Scanner) {
	t.Helper()
	for child.Scan() {
		if child.Text() == "opened" {
			g.leavesSomething(t, spec)
			return
		}
	}
	t.Fatal("the process that was to be killed did not open its Terrarium")
}

// testRecovery: the work of a Terrarium that ended without a word can be handed over, if
// the wall says so, by what starts nothing; then it can be swept.
func testRecovery(t *testing.T, g *ground) {
	if _, ok := g.bare.(terrarium.Recoverer); !ok {
		t.Skip("this wall does not say that its Terrariums leave work")
	}
	spec := g.spec(t)
	g.abandon(t, spec, g.untilOpen)
	recovered, err := terrarium.Recover(g.within(t), g.provider(), spec)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{recovered, g, spec}
	if records := b.collected(t); len(records) != 1 || records["work"] != "so far\n" {
		t.Errorf("what it left was collected as %q", records)
	}
	if p, err := b.Stoma().Exec(g.within(t), stoma.ExecRequest{Argv: []string{"true"}, Env: env}); err == nil {
		t.Error("a command was started in what was recovered")
		p.Close()
	}
	if err := b.Close(g.within(t)); err != nil {
		t.Error(err)
	}
	if err := g.bare.Sweep(g.within(t), spec.Run, spec.Workspace.Dir); err != nil {
		t.Error(err)
	}
	g.leavesNothing(t, spec, "after its recovery and Sweep")
	if _, err := terrarium.Recover(g.within(t), g.provider(), spec); !fault.Is(err, fault.NotFound) {
		t.Errorf("recovering what is not there was answered with %v", err)
	}
}

// abandon starts this test again in a process of its own and kills that.
func (g *ground) abandon(t *testing.T, spec terrarium.Spec, await func(*testing.T, terrarium.Spec, *bufio.Scanner)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	order, err := json.Marshal(orderOf(spec))
	if err != nil {
		t.Fatal(err)
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(g.within(t), self, "-test.run=^"+test+"$", "-test.timeout="+g.slowly(5*time.Minute).String())
	// What it makes for itself is made where this test removes it.
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), abandonedSpec+"="+string(order))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // killed, as it was to be
	}()
	await(t, spec, bufio.NewScanner(stdout))
}
