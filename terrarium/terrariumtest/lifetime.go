//go:build linux

package terrariumtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/probe"
	"tendril/stoma"
)

// testClose: a closed Terrarium is gone, with whatever ran in it.
func testClose(t *testing.T, g *ground) {
	before := descendants()
	b := g.open(t, nil)
	p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", orphans + `cat /dev/zero > filled`}})
	expect(t, p, "ready\n")
	t.Run("its-directory", func(t *testing.T) {
		g.sealed(t, probe.HostFiles)
		if e := b.run(t, "ls", "-d", b.spec.Workspace.Dir, b.spec.Workspace.Image); strings.Contains(e.stdout, "/") {
			t.Errorf("the run's directory on the host is seen inside: %s", e)
		}
	})
	g.leavesSomething(t, b.spec)
	inside := descendants()
	if err := b.Close(b.within(t)); err != nil {
		t.Fatal(err)
	}
	g.leavesNothing(t, b.spec, "after Close")
	for process := range descendants() {
		if inside[process] && !before[process] {
			t.Errorf("after Close the process %s is still there", process)
		}
	}
	if _, err := p.Wait(b.within(t)); err == nil {
		t.Error("a command of a closed Terrarium claims that it ended well")
	}
	if _, err := b.Stoma().Stat(b.within(t)); err == nil {
		t.Error("the Stoma of a closed Terrarium answers")
	}
}

// testClosingTwice: everybody who closes returns when it is gone, and with the same.
func testClosingTwice(t *testing.T, g *ground) {
	b := g.open(t, nil)
	g.leavesSomething(t, b.spec)
	ctx := b.within(t)
	var closers sync.WaitGroup
	for range 8 {
		closers.Go(func() {
			if err := b.Close(ctx); err != nil {
				t.Error(err)
			}
			g.leavesNothing(t, b.spec, "after one of several Closes")
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
		after = g.slowly(after * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), after)
		opened, err := g.provider().Open(ctx, spec)
		reasons[err == nil]++
		switch {
		case err == nil:
			if err := opened.Close(g.within(t)); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("giving up after %v was answered with %v", after, err)
		}
		cancel()
		g.leavesNothing(t, spec, fmt.Sprintf("after giving up in %v", after))
	}
	if reasons[false] == 0 {
		t.Error("a Terrarium was opened for a caller that had given up before")
	}
}

// testNeighbours: two Terrariums at the same time are two worlds, as far as they are
// sealed.
func testNeighbours(t *testing.T, g *ground) {
	one, other := g.open(t, nil), g.open(t, nil)
	if e := one.run(t, "perl", "-MSocket", "-e", "1"); !e.ok() {
		t.Fatalf("needs perl with Socket inside, to listen: %s", e)
	}
	listener := one.start(t, stoma.ExecRequest{Argv: []string{"perl", "-MSocket", "-e", `
		my ($tcp, $abstract);
		socket($tcp, AF_INET, SOCK_STREAM, 0) && bind($tcp, pack_sockaddr_in(7070, INADDR_LOOPBACK)) && listen($tcp, 9) or die "tcp: $!";
		socket($abstract, AF_UNIX, SOCK_STREAM, 0) && bind($abstract, pack_sockaddr_un("\0canary")) && listen($abstract, 9) or die "abstract: $!";
		syswrite(STDOUT, "ready\n"); sleep 86400;`, "canary-argument"}})
	expect(t, listener, "ready\n")
	one.sh(t, `touch /tmp/canary /workspace/canary /home/sprout/canary`)
	for _, canary := range []struct{ what, seal, script string }{
		{"a port on loopback", probe.Network, `perl -MSocket -e 'my $s; socket($s, AF_INET, SOCK_STREAM, 0); exit(connect($s, pack_sockaddr_in(7070, INADDR_LOOPBACK)) ? 0 : 1)'`},
		{"an abstract socket", probe.Network, `perl -MSocket -e 'my $s; socket($s, AF_UNIX, SOCK_STREAM, 0); exit(connect($s, pack_sockaddr_un("\0canary")) ? 0 : 1)'`},
		{"a process", probe.Processes, `grep -qa 'canary-argumen[t]' /proc/[0-9]*/cmdline`},
		{"shared memory", probe.HostFiles, `ls /dev/shm/canary`},
		{"scratch", "", `ls /tmp/canary`},
		{"the workspace", "", `ls /workspace/canary`},
		{"the home directory", "", `ls /home/sprout/canary`},
	} {
		t.Run(strings.ReplaceAll(canary.what, " ", "-"), func(t *testing.T) {
			if canary.seal != "" {
				g.sealed(t, canary.seal)
			}
			if canary.seal == probe.HostFiles { // where it is not sealed, it is the host's
				one.sh(t, `touch /dev/shm/canary`)
			}
			if e := one.run(t, "sh", "-c", canary.script); !e.ok() {
				t.Errorf("it cannot be seen from where it is: %s", e)
			}
			if e := other.run(t, "sh", "-c", canary.script); e.ok() {
				t.Errorf("it can be seen from another Terrarium")
			}
		})
	}
}
