//go:build linux

package docker

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"golang.org/x/sys/unix"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

// killedSpec tells a process that is started to be killed what to open: the run, its base
// and its directory.
const killedSpec = "TENDRIL_TEST_KILLED"

// TestKills kills the owner of a Terrarium, its daemon or its container at some moment, and
// wants nothing left after the next start: no process, no container, no file; and somebody
// else's container where it was.
func TestKills(t *testing.T) {
	if order := os.Getenv(killedSpec); order != "" {
		liveUntilKilled(t, strings.Split(order, "\n"))
	}
	p, daemon := onOwnDaemon(t, runc)
	kills, random, seed := terrariumtest.Soak(t)
	b, err := p.blueprint(t.Context(), terrariumtest.HostSpec(t, "foreign"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.bring(t.Context(), b.image); err != nil {
		t.Fatal(err)
	}
	foreign, err := p.daemon.create(t.Context(), "tendril-of-somebody-else", &container.Config{Image: b.image.name, Entrypoint: []string{"/nothing"}}, &container.HostConfig{NetworkMode: "none"})
	if err != nil {
		t.Fatal(err)
	}
	victims := map[string]func(child *exec.Cmd, spec terrarium.Spec){
		"owner": func(child *exec.Cmd, _ terrarium.Spec) { _ = child.Process.Kill() },
		"daemon": func(*exec.Cmd, terrarium.Spec) {
			if err := daemon.Kill(within(t)); err != nil {
				t.Error(err)
			}
		},
		"container": func(_ *exec.Cmd, spec terrarium.Spec) {
			for _, pid := range withIn(spec.Workspace.Dir) {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
			}
		},
	}
	names := []string{"owner", "daemon", "container"}
	for i := range kills {
		victim := names[i%len(names)]
		spec := terrariumtest.HostSpec(t, "kill-"+strconv.Itoa(i))
		after := time.Duration(random.IntN(700)) * time.Millisecond
		child := startToBeKilled(t, p, spec)
		// What is killed then is some moment's choice; nothing here waits for it.
		timer := time.NewTimer(after)
		<-timer.C
		victims[victim](child, spec)
		_ = child.Process.Kill() // the Stem goes in the end whatever went first
		_ = child.Wait()
		if daemon.Pid() == 0 {
			if err := daemon.Again(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Sweep(within(t), spec.Run, spec.Workspace.Dir); err != nil {
			t.Errorf("%s killed after %v: sweeping: %v", victim, after, err)
		}
		terrariumtest.LeavesNothing(t, spec, victim+" killed after "+after.String())
		p.leavesNoContainer(t, spec.Run)
		if t.Failed() {
			t.Fatalf("repeat it with SOAK_SEED=%d", seed)
		}
	}
	if _, err := p.daemon.inspect(t.Context(), foreign); err != nil {
		t.Errorf("somebody else's container: %v", err)
	}
}

func startToBeKilled(t *testing.T, p *provider, spec terrarium.Spec) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self, "-test.run=^TestKills$", "-test.timeout=5m")
	child.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), killedSpec+"="+strings.Join([]string{p.Host, p.Stoma, spec.Run, spec.Workspace.Image, spec.Workspace.Dir}, "\n"))
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	return child
}

// liveUntilKilled opens Terrariums of a run, uses and closes them, until it is killed.
func liveUntilKilled(t *testing.T, order []string) {
	p := newProvider(Config{Host: order[0], Stoma: order[1], Site: site}, runc)
	for {
		spec := terrarium.Spec{
			Run: order[2], Rootfs: terrarium.Rootfs{Host: &terrarium.HostView{}}, Env: []string{"PATH=/usr/bin:/bin"},
			Workspace: terrarium.Workspace{Image: order[3], Dir: order[4]},
		}
		box, err := terrarium.Validated(p).Open(context.Background(), spec)
		if err != nil {
			select {} // its daemon is gone, and it is next
		}
		process, err := box.Stoma().Exec(context.Background(), stoma.ExecRequest{Argv: []string{"/bin/sh", "-c", "sleep 0.1 & echo x >f"}, Dir: "/workspace"})
		if err == nil {
			_, _ = process.Wait(context.Background()) // it may be killed at any time
		}
		_ = box.Close(context.Background())
	}
}

// withIn lists the processes that have something of a directory mounted.
func withIn(dir string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if mounts, err := os.ReadFile("/proc/" + e.Name() + "/mountinfo"); err == nil && strings.Contains(string(mounts), dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}
