//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLimitsAreReadBack(t *testing.T) {
	want := Limits{CPUs: 0.5, MemoryMax: 64<<20 + 100, Pids: 77}
	g := group(t, want, "cpu", "memory", "pids")
	got := g.Applied()
	if got.CPUs != 0.5 || got.Pids != 77 {
		t.Errorf("applied %+v, want %+v", got, want)
	}
	if got.MemoryMax != 64<<20 {
		t.Errorf("memory reads back as %d, want it rounded down to a page: %d", got.MemoryMax, 64<<20)
	}
}

func TestSwapIsPartOfMemory(t *testing.T) {
	g := group(t, Limits{MemoryMax: 64 << 20}, "memory")
	p, _ := g.with("memory")
	file, want := "memory.memsw.limit_in_bytes", int64(64<<20)
	if p.unified {
		file, want = "memory.swap.max", 0
	}
	n, err := value(p.dir, file)
	if errors.Is(err, os.ErrNotExist) {
		if !strings.Contains(fmt.Sprint(g.Notes()), "swap") {
			t.Errorf("swap is not bounded and no note says so: %q", g.Notes())
		}
		t.Skip("this kernel does not account for swap")
	}
	if err != nil || n != want {
		t.Errorf("%s is %d, want %d (%v)", file, n, want, err)
	}
}

func TestMemoryHogIsKilledAtTheLimit(t *testing.T) {
	g := group(t, Limits{MemoryMax: 64 << 20}, "memory")
	p := start(t, "hog")
	if err := g.Add(p.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p.proceed(t)
	_, _ = p.out.ReadString('\n')
	_ = p.Wait()
	if ws := p.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Errorf("the hog ended with %v, want it killed", p.ProcessState)
	}
	e, err := g.Events()
	if err != nil || e.OOMKills == 0 {
		t.Errorf("events %+v (%v), want an OOM kill", e, err)
	}
}

func TestPidsLimitHolds(t *testing.T) {
	const limit = 40
	g := group(t, Limits{Pids: limit}, "pids")
	p := start(t, "fork")
	if err := g.Add(p.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p.proceed(t)
	var n int
	if _, err := fmt.Sscanf(p.line(t), "started %d", &n); err != nil {
		t.Fatal(err)
	}
	if n == 0 || n >= limit {
		t.Errorf("%d processes started under a limit of %d", n, limit)
	}
	u, err := g.Usage()
	if err != nil || u.Pids < n || u.Pids > limit {
		t.Errorf("usage %+v (%v), want between %d and %d processes", u, err, n, limit)
	}
	if e, err := g.Events(); err != nil || e.PidsMax == 0 {
		t.Errorf("events %+v (%v), want a refused fork", e, err)
	}
}

func TestQuotaThrottles(t *testing.T) {
	g := group(t, Limits{CPUs: 0.05}, "cpu")
	p := start(t, "burn")
	if err := g.Add(p.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p.proceed(t)
	await(t, "a period without processor left", func() bool {
		e, err := g.Events()
		return err == nil && e.Throttled > 0
	})
	if u, err := g.Usage(); err != nil || u.CPU <= 0 {
		if _, ok := g.with("cpuacct"); ok {
			t.Errorf("usage %+v (%v), want processor time", u, err)
		}
	}
}

func TestKillReachesAnOrphanInASessionOfItsOwn(t *testing.T) {
	g := group(t, Limits{Pids: 100}, "pids")
	p := start(t, "orphan")
	if err := g.Add(p.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p.proceed(t)
	var orphan int
	if _, err := fmt.Sscanf(p.line(t), "orphan %d", &orphan); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(orphan, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := g.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20_000); n != 1 {
		t.Errorf("the orphan lives on (%v)", err)
	}
	if err := g.Delete(ctx); err != nil {
		t.Error(err)
	}
	for _, d := range g.dirs {
		if exists(d.dir) {
			t.Errorf("%s is left", d.dir)
		}
	}
}

func TestKillStopsAForkBomb(t *testing.T) {
	g := group(t, Limits{Pids: 150, CPUs: 1}, "pids")
	p := start(t, "bomb")
	if err := g.Add(p.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p.proceed(t)
	p.line(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := g.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if u, err := g.Usage(); err != nil || u.Pids != 0 {
		// A process that was just killed counts until it is reaped.
		await(t, "the last process to be reaped", func() bool {
			u, err = g.Usage()
			return err == nil && u.Pids == 0 || p.ProcessState == nil && u.Pids == 1
		})
	}
}

func TestUnifiedKillAndUsage(t *testing.T) {
	mounts, own, err := hostTree.read()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.unified })
	if i < 0 {
		t.Skip("no version 2 hierarchy is mounted")
	}
	dir, ok := mounts[i].locate(own[""])
	if !ok || !hostTree.writable(dir) {
		t.Skipf("this account cannot make a group in %s", dir)
	}
	g := &Group{name: groupPrefix + "unified", dirs: []place{{dir: filepath.Join(dir, groupPrefix+"unified"), unified: true}}}
	if err := os.Mkdir(g.dirs[0].dir, 0o755); err != nil {
		t.Skipf("this account cannot make a group: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	defer func() {
		if err := errors.Join(g.Kill(ctx), g.Delete(ctx)); err != nil {
			t.Error(err)
		}
	}()
	p := start(t, "burn")
	if err := g.Add(p.Process.Pid); err != nil {
		t.Skipf("this account cannot fill a group: %v", err)
	}
	p.proceed(t)
	await(t, "processor time", func() bool {
		u, err := g.Usage()
		return err == nil && u.CPU > 0
	})
	if err := g.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	if ws := p.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %v, want it killed", p.ProcessState)
	}
}

func TestDeleteWaitsNoLongerThanItsContext(t *testing.T) {
	g := group(t, Limits{Pids: 100}, "pids")
	p := start(t, "hog")
	if err := g.Add(p.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Delete(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, unix.EBUSY) {
		t.Errorf("delete of a group in use says %v", err)
	}
}

func TestRemoveFindsWhatAKilledProcessLeft(t *testing.T) {
	g := group(t, Limits{Pids: 100}, "pids")
	p := start(t, "hog")
	if err := g.Add(p.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := Remove(ctx, g.Name()); err != nil {
		t.Fatal(err)
	}
	for _, d := range g.dirs {
		if exists(d.dir) {
			t.Errorf("%s is left", d.dir)
		}
	}
	if err := Remove(ctx, g.Name()); err != nil {
		t.Errorf("removing it again says %v", err)
	}
}

func TestSweepKeepsWhatIsKept(t *testing.T) {
	prefix := groupPrefix + "sweep-"
	var kept, swept *Group
	for name, g := range map[string]**Group{"kept": &kept, "swept": &swept} {
		var err error
		if *g, err = Create(prefix+name, Limits{Pids: 10}); err != nil {
			t.Skipf("no control group here: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := Sweep(ctx, prefix, func(name string) bool { return name == kept.Name() }); err != nil {
		t.Fatal(err)
	}
	if exists(swept.dirs[0].dir) || !exists(kept.dirs[0].dir) {
		t.Error("the wrong group was swept")
	}
	if err := kept.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(ctx, "", nil); err == nil {
		t.Error("an empty prefix was swept")
	}
}

func TestCreateLeavesNothingBehindItsErrors(t *testing.T) {
	if _, err := Find(); err != nil {
		t.Skipf("no control group here: %v", err)
	}
	for what, c := range map[string]struct {
		name   string
		limits Limits
	}{
		"too little processor": {groupPrefix + "error", Limits{Pids: 10, CPUs: 0.001}},
		"negative":             {groupPrefix + "error", Limits{Pids: -1}},
		"a path":               {"../" + groupPrefix, Limits{Pids: 1}},
		"no name":              {"", Limits{Pids: 1}},
		"a hidden name":        {".x", Limits{Pids: 1}},
	} {
		if g, err := Create(c.name, c.limits); err == nil {
			t.Errorf("%s: created", what)
			_ = g.Delete(t.Context())
		}
	}
	if left := ownGroups(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestANameIsUsedOnce(t *testing.T) {
	g := group(t, Limits{Pids: 10}, "pids")
	if _, err := Create(g.Name(), Limits{Pids: 10}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second group of the same name: %v", err)
	}
	if p, _ := g.with("pids"); !exists(filepath.Join(p.dir, "cgroup.procs")) {
		t.Error("the first group is gone")
	}
}

func TestAddRefusesWhatIsNoProcess(t *testing.T) {
	g := group(t, Limits{Pids: 10}, "pids")
	for _, pid := range []int{0, -1, 1 << 30} { // 0 would be this process itself
		if err := g.Add(pid); err == nil {
			t.Errorf("process %d was added", pid)
		}
	}
}

// await polls until ok, or fails the test after a time that no machine needs.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("no sign of %s", what)
		case <-ticker.C:
		}
	}
}
