//go:build linux

package terrariumtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/stoma"
	"tendril/terrarium"
)

// testClose: a closed Terrarium is gone, with whatever ran in it.
func testClose(t *testing.T, g *ground) {
	before := descendants()
	b := g.open(t, nil)
	p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", orphans + `cat /dev/zero > filled`}})
	expect(t, p, "ready\n")
	if e := b.run(t, "ls", "-d", b.spec.Workspace.Dir, b.spec.Workspace.Image); strings.Contains(e.stdout, "/") {
		t.Errorf("the run's directory on the host is seen inside: %s", e)
	}
	leavesSomething(t, b.spec)
	inside := descendants()
	if err := b.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	LeavesNothing(t, b.spec, "after Close")
	for process := range descendants() {
		if inside[process] && !before[process] {
			t.Errorf("after Close the process %s is still there", process)
		}
	}
	if _, err := p.Wait(within(t)); err == nil {
		t.Error("a command of a closed Terrarium claims that it ended well")
	}
	if _, err := b.Stoma().Stat(within(t)); err == nil {
		t.Error("the Stoma of a closed Terrarium answers")
	}
}

// testClosingTwice: everybody who closes returns when it is gone, and with the same.
func testClosingTwice(t *testing.T, g *ground) {
	b := g.open(t, nil)
	leavesSomething(t, b.spec)
	ctx := within(t)
	var closers sync.WaitGroup
	for range 8 {
		closers.Go(func() {
			if err := b.Close(ctx); err != nil {
				t.Error(err)
			}
			LeavesNothing(t, b.spec, "after one of several Closes")
			b.Usage()
			b.Boundary()
		})
	}
	closers.Wait()
	if err := b.Close(ctx); err != nil {
		t.Errorf("closing once more: %v", err)
	}
}

// testGivingUp: whenever the caller gives up opening, nothing is left.
func testGivingUp(t *testing.T, g *ground) {
	reasons := map[bool]int{}
	for _, after := range []time.Duration{0, 5, 20, 40, 80, 160, 320, 640} {
		spec := g.spec(t)
		ctx, cancel := context.WithTimeout(t.Context(), after*time.Millisecond)
		opened, err := g.provider().Open(ctx, spec)
		reasons[err == nil]++
		switch {
		case err == nil:
			if err := opened.Close(within(t)); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("giving up after %d ms was answered with %v", after, err)
		}
		cancel()
		LeavesNothing(t, spec, fmt.Sprintf("after giving up in %d ms", after))
	}
	if reasons[false] == 0 {
		t.Error("a Terrarium was opened for a caller that had given up before")
	}
}

// testNeighbours: two Terrariums at the same time are two worlds.
func testNeighbours(t *testing.T, g *ground) {
	one, other := g.open(t, nil), g.open(t, nil)
	if e := one.run(t, "perl", "-MSocket", "-e", "1"); !e.ok() {
		t.Skipf("needs perl with Socket inside, to listen: %s", e)
	}
	listener := one.start(t, stoma.ExecRequest{Argv: []string{"perl", "-MSocket", "-e", `
		my ($tcp, $abstract);
		socket($tcp, AF_INET, SOCK_STREAM, 0) && bind($tcp, pack_sockaddr_in(7070, INADDR_LOOPBACK)) && listen($tcp, 9) or die "tcp: $!";
		socket($abstract, AF_UNIX, SOCK_STREAM, 0) && bind($abstract, pack_sockaddr_un("\0canary")) && listen($abstract, 9) or die "abstract: $!";
		syswrite(STDOUT, "ready\n"); sleep 86400;`, "canary-argument"}})
	expect(t, listener, "ready\n")
	one.sh(t, `touch /tmp/canary /dev/shm/canary /workspace/canary /home/sprout/canary`)
	for what, script := range map[string]string{
		"a port on loopback": `perl -MSocket -e 'my $s; socket($s, AF_INET, SOCK_STREAM, 0); exit(connect($s, pack_sockaddr_in(7070, INADDR_LOOPBACK)) ? 0 : 1)'`,
		"an abstract socket": `perl -MSocket -e 'my $s; socket($s, AF_UNIX, SOCK_STREAM, 0); exit(connect($s, pack_sockaddr_un("\0canary")) ? 0 : 1)'`,
		"a process":          `grep -qa 'canary-argumen[t]' /proc/[0-9]*/cmdline`,
		"scratch":            `ls /tmp/canary`,
		"shared memory":      `ls /dev/shm/canary`,
		"the workspace":      `ls /workspace/canary`,
		"the home directory": `ls /home/sprout/canary`,
	} {
		if e := one.run(t, "sh", "-c", script); !e.ok() {
			t.Errorf("%s cannot be seen from where it is: %s", what, e)
		}
		if e := other.run(t, "sh", "-c", script); e.ok() {
			t.Errorf("%s can be seen from another Terrarium", what)
		}
	}
}

// abandonedSpec tells the process that is started to be killed what to open.
const abandonedSpec = "TENDRIL_TEST_ABANDONED"

// abandoned opens a Terrarium and waits to be killed, when this process was started
// for that.
func abandoned(t *testing.T, g *ground) bool {
	order, ok := os.LookupEnv(abandonedSpec)
	if !ok {
		return false
	}
	parts := strings.Split(order, "\n")
	// What the parent made; nothing of this process's own would be removed.
	spec := specOf(parts[0], terrarium.Workspace{Image: parts[1], Dir: parts[2]})
	if _, err := g.provider().Open(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	fmt.Println("\nopened")
	select {} // the parent kills
}

// testSweep: a Terrarium whose owner was killed is gone after a Sweep, whenever that
// was, and a Sweep takes no other run's.
func testSweep(t *testing.T, g *ground) {
	bystander := g.open(t, nil)
	moments := map[string]func(t *testing.T, spec terrarium.Spec, child *bufio.Scanner){
		"while opening": func(t *testing.T, spec terrarium.Spec, _ *bufio.Scanner) {
			eventually(t, "something of the Terrarium is there", func() bool { return len(tracesOf(spec).processes) > 1 })
		},
		"while open": func(t *testing.T, spec terrarium.Spec, child *bufio.Scanner) {
			for child.Scan() {
				if child.Text() == "opened" {
					leavesSomething(t, spec)
					return
				}
			}
			t.Fatal("the process that was to be killed did not open its Terrarium")
		},
	}
	for moment, await := range moments {
		t.Run(strings.ReplaceAll(moment, " ", "-"), func(t *testing.T) {
			spec := g.spec(t)
			abandon(t, spec, await)
			for range 2 {
				if err := g.bare.Sweep(within(t), spec.Run, spec.Workspace.Dir); err != nil {
					t.Fatalf("sweeping: %v", err)
				}
				LeavesNothing(t, spec, "after Sweep")
			}
		})
	}
	if got := bystander.sh(t, "echo unharmed"); got != "unharmed\n" {
		t.Errorf("after the Sweep of another run a Terrarium says %q", got)
	}
}

// abandon starts this test again in a process of its own and kills that.
func abandon(t *testing.T, spec terrarium.Spec, await func(*testing.T, terrarium.Spec, *bufio.Scanner)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(within(t), self, "-test.run=^"+test+"$", "-test.timeout=5m")
	// What it makes for itself is made where this test removes it.
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), abandonedSpec+"="+strings.Join([]string{spec.Run, spec.Workspace.Image, spec.Workspace.Dir}, "\n"))
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
