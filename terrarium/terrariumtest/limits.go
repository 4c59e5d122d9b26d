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
func exceed(t *testing.T, g *ground, field string, limit terrarium.LimitName, change func(*terrarium.Spec), script string) {
	t.Helper()
	if !g.keeps(field) {
		t.Skipf("this wall does not declare %s", field)
	}
	b := g.open(t, change)
	p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", `echo so far > work; ` + script}})
	b.reached(t, limit)
	if err := b.Stoma().Quiesce(within(t)); err != nil {
		t.Fatalf("ending what runs inside, after the limit: %v", err)
	}
	if _, err := p.Wait(within(t)); err != nil {
		t.Errorf("waiting for the command, after the limit: %v", err)
	}
	if records := b.collected(t); records["work"] != "so far\n" {
		t.Errorf("the work so far was collected as %q", records)
	}
	if stat, err := b.Stoma().Stat(within(t)); err != nil || stat.Processes != 0 {
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
	case <-within(t).Done():
		t.Fatalf("nothing was exceeded; in use: %+v", b.Usage())
	}
}

func testMemory(t *testing.T, g *ground) {
	exceed(t, g, "Memory", terrarium.LimitMemory, func(s *terrarium.Spec) {
		s.Memory = terrarium.Limit[int64]{Value: 256 * mebibyte, Required: true}
	}, `tail /dev/zero`) // keeps a line until it ends
}

func testPids(t *testing.T, g *ground) {
	exceed(t, g, "Pids", terrarium.LimitPids, func(s *terrarium.Spec) {
		s.Pids = terrarium.Limit[int]{Value: 32, Required: true}
	}, `while true; do sleep 86400 & done`)
}

func testDisk(t *testing.T, g *ground) {
	const size = 8 * mebibyte
	change := func(s *terrarium.Spec) { s.Disk = terrarium.Limit[int64]{Value: size, Required: true} }
	for _, dir := range []string{"/workspace", "/tmp", "/home/sprout"} {
		t.Run(strings.TrimPrefix(dir, "/"), func(t *testing.T) {
			exceed(t, g, "Disk", terrarium.LimitDisk, change, `cat /dev/zero > `+dir+`/much; sleep 86400`)
		})
	}
}

// testWall gives time enough to begin with the work.
func testWall(t *testing.T, g *ground) {
	exceed(t, g, "Wall", terrarium.LimitWall, func(s *terrarium.Spec) {
		s.Wall = terrarium.Limit[time.Duration]{Value: 3 * time.Second, Required: true}
	}, `sleep 86400`)
}

// testCPU wants a limit of processors to be kept by slowing the Terrarium down, or by
// ending it. A busy host can only make it use less.
func testCPU(t *testing.T, g *ground) {
	if !g.keeps("CPUs") {
		t.Skip("this wall does not declare CPUs")
	}
	const limit = 0.25
	b := g.open(t, func(s *terrarium.Spec) { s.CPUs = terrarium.Limit[float64]{Value: limit, Required: true} })
	b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", `while true; do :; done & while true; do :; done`}})
	for _, row := range b.Boundary() {
		if row.Field == "CPUs" && row.Enforced == terrarium.Sampled {
			b.reached(t, terrarium.LimitCPU)
			return
		}
	}
	start, used := time.Now(), b.Usage().CPU
	eventually(t, "a second of processor time is used", func() bool { return b.Usage().CPU-used > time.Second })
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
	eventually(t, "something is read, and the self-test is over", func() bool { return b.Usage().Memory > 0 && b.Usage().Processes == 0 })
	quiet := b.Usage()
	p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", `
		sleep 86400 & sleep 86400 & sleep 86400 &
		x=$(head -c 20000000 /dev/zero | tr '\0' x)
		while true; do :; done`}})
	eventually(t, "three processes more are seen", func() bool { return b.Usage().Processes >= quiet.Processes+3 })
	eventually(t, "half of what a command holds is seen", func() bool { return b.Usage().Memory-quiet.Memory > 10_000_000 })
	eventually(t, "a busy loop's use is seen", func() bool { return b.Usage().CPU-quiet.CPU > time.Second })
	if err := errors.Join(p.Close(), b.Stoma().Quiesce(within(t))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the processes are gone again", func() bool { return b.Usage().Processes <= quiet.Processes })
}
