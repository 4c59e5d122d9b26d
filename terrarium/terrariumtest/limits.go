//go:build linux

package terrariumtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tendril/stoma"
	"tendril/terrarium"
)

// exceed runs a script that goes beyond a limit and wants the limit's name, and
// after it a Stoma through which the work so far can be handed over.
func exceed(t *testing.T, g *ground, limit terrarium.LimitName, change func(*terrarium.Spec), script string) {
	t.Helper()
	b := g.open(t, change)
	p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", `echo so far > work; ` + script}})
	b.reached(t, limit)
	if err := b.Stoma().Quiesce(b.within(t)); err != nil {
		t.Fatalf("ending what runs inside, after the limit: %v", err)
	}
	if _, err := p.Wait(b.within(t)); err != nil {
		t.Errorf("waiting for the command, after the limit: %v", err)
	}
	if records := b.collected(t); records["work"] != "so far\n" {
		t.Errorf("the work so far was collected as %q", records)
	}
	if stat, err := b.Stoma().Stat(b.within(t)); err != nil || stat.Processes != 0 {
		t.Errorf("%d processes are left (%v)", stat.Processes, err)
	}
}

func (b *box) reached(t *testing.T, want terrarium.LimitName) {
	t.Helper()
	select {
	case got := <-b.Exceeded():
		if got != want {
			t.Errorf("the limit %q was exceeded, want %q", got, want)
		}
	case <-b.within(t).Done():
		t.Fatalf("nothing was exceeded; in use: %+v", b.Usage())
	}
}

func testMemory(t *testing.T, g *ground) {
	g.needs(t, "Memory")
	exceed(t, g, terrarium.LimitMemory, func(s *terrarium.Spec) {
		s.Memory = terrarium.Limit[int64]{Value: g.options.Memory, Required: true}
	}, `tail /dev/zero`) // keeps a line until it ends
}

func testPids(t *testing.T, g *ground) {
	g.needs(t, "Pids")
	exceed(t, g, terrarium.LimitPids, func(s *terrarium.Spec) {
		s.Pids = terrarium.Limit[int]{Value: 32, Required: true}
	}, `while true; do sleep 86400 & done`)
}

func testDisk(t *testing.T, g *ground) {
	g.needs(t, "Disk")
	change := func(s *terrarium.Spec) { s.Disk = terrarium.Limit[int64]{Value: g.options.Disk, Required: true} }
	for _, dir := range []string{"/workspace", "/tmp", "/home/sprout"} {
		t.Run(strings.TrimPrefix(dir, "/"), func(t *testing.T) {
			exceed(t, g, terrarium.LimitDisk, change, `cat /dev/zero > `+dir+`/much; sleep 86400`)
		})
	}
}

// testWall gives time enough to begin with the work.
func testWall(t *testing.T, g *ground) {
	g.needs(t, "Wall")
	exceed(t, g, terrarium.LimitWall, func(s *terrarium.Spec) {
		s.Wall = terrarium.Limit[time.Duration]{Value: max(3*time.Second, g.slowly(time.Second)), Required: true}
	}, `sleep 86400`)
}

// testCPU wants a limit of processors to be kept by slowing the Terrarium down, or by
// ending it. A busy host can only make it use less.
func testCPU(t *testing.T, g *ground) {
	g.needs(t, "CPUs")
	const limit = 0.25
	b := g.open(t, func(s *terrarium.Spec) { s.CPUs = terrarium.Limit[float64]{Value: limit, Required: true} })
	b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", `while true; do :; done & while true; do :; done`}})
	if b.row(t, "CPUs").Enforced == terrarium.Sampled {
		b.reached(t, terrarium.LimitCPU)
		return
	}
	start, used := time.Now(), b.Usage().CPU
	b.eventually(t, "a second of processor time is used", func() bool { return b.Usage().CPU-used > time.Second })
	elapsed, now := time.Since(start), b.Usage().CPU
	// Twice: a reading is a fraction of a second old, and a quota is given out in
	// periods.
	if average := float64(now-used) / float64(elapsed); average > 2*limit {
		t.Errorf("%.2f processors were used where the limit is %.2f", average, limit)
	}
}

// testUsage: what the wall says is used follows what goes on inside.
func testUsage(t *testing.T, g *ground) {
	b := g.open(t, nil)
	b.eventually(t, "something is read, and the self-test is over", func() bool { return b.Usage().Memory > 0 && b.Usage().Processes == 0 })
	quiet := b.Usage()
	p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", `
		sleep 86400 & sleep 86400 & sleep 86400 &
		x=$(head -c 20000000 /dev/zero | tr '\0' x)
		while true; do :; done`}})
	b.eventually(t, "three processes more are seen", func() bool { return b.Usage().Processes >= quiet.Processes+3 })
	b.eventually(t, "half of what a command holds is seen", func() bool { return b.Usage().Memory-quiet.Memory > 10_000_000 })
	b.eventually(t, "a busy loop's use is seen", func() bool { return b.Usage().CPU-quiet.CPU > time.Second })
	if err := errors.Join(p.Close(), b.Stoma().Quiesce(b.within(t))); err != nil {
		t.Fatal(err)
	}
	b.eventually(t, "the processes are gone again", func() bool { return b.Usage().Processes <= quiet.Processes })
}
