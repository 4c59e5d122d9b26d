//go:build linux

package microvm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

// killedSpec tells a process that is started to be killed what to open: the run, its root,
// its base and its directory.
const killedSpec = "TENDRIL_TEST_KILLED"

// TestKills kills the owner of a machine or the machine at some moment, and wants nothing
// left after the next start, and the machine of somebody else where it was.
func TestKills(t *testing.T) {
	if order := os.Getenv(killedSpec); order != "" {
		liveUntilKilled(t, strings.Split(order, "\n"))
	}
	p := emulated(t)
	kills, random, seed := terrariumtest.Soak(t)
	foreign := opened(t, p, specFor(t, "foreign"))
	for i := range kills {
		spec := specFor(t, "kill-"+strconv.Itoa(i))
		after := time.Duration(random.IntN(7000)) * time.Millisecond
		child := startToBeKilled(t, spec)
		// What is killed then is some moment's choice; nothing here waits for it.
		<-time.NewTimer(after).C
		victim := "owner"
		if i%2 == 1 {
			victim = "machine"
			killRecorded(spec.Workspace.Dir)
		}
		_ = child.Process.Kill() // the Stem goes in the end whatever went first
		_ = child.Wait()
		if err := p.Sweep(t.Context(), spec.Run, spec.Workspace.Dir); err != nil {
			t.Errorf("%s killed after %v: sweeping: %v", victim, after, err)
		}
		terrariumtest.LeavesNothing(t, spec, victim+" killed after "+after.String())
		if t.Failed() {
			t.Fatalf("repeat it with SOAK_SEED=%d", seed)
		}
	}
	if got := run(t, foreign.Stoma(), "echo", "still here"); got != "still here\n" {
		t.Errorf("somebody else's machine says %q", got)
	}
}

// killRecorded kills the machine of a run, if there is one by now.
func killRecorded(dir string) {
	text, err := os.ReadFile(namesIn(dir, "", false).record)
	if err != nil {
		return
	}
	word, _, _ := strings.Cut(string(text), " ")
	if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
}

func startToBeKilled(t *testing.T, spec terrarium.Spec) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(filepath.Dir(spec.Workspace.Dir), "tmp")
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self, "-test.run=^TestKills$", "-test.timeout=5m")
	order := []string{spec.Run, spec.Rootfs.Image.Path, spec.Workspace.Image, spec.Workspace.Dir}
	child.Env = append(os.Environ(), "TMPDIR="+place, killedSpec+"="+strings.Join(order, "\n"))
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	return child
}

// liveUntilKilled opens Terrariums of a run, uses and closes them, until it is killed.
func liveUntilKilled(t *testing.T, order []string) {
	p := QEMU(config(t))
	for {
		spec := terrarium.Spec{
			Run:       order[0],
			Rootfs:    terrarium.Rootfs{Image: &terrarium.Image{Path: order[1], Digest: "sha256:" + strings.Repeat("0", 64)}},
			Workspace: terrarium.Workspace{Image: order[2], Dir: order[3]},
			Memory:    terrarium.Limit[int64]{Value: 256 << 20},
			Disk:      terrarium.Limit[int64]{Value: 64 << 20},
		}
		box, err := p.Open(context.Background(), spec)
		if err != nil {
			select {} // its machine was killed, and it is next
		}
		process, err := box.Stoma().Exec(context.Background(), stoma.ExecRequest{Argv: []string{"/bin/sh", "-c", "/bin/sleep 1 & echo x >f; /bin/sync"}, Dir: "/workspace"})
		if err == nil {
			_, _ = process.Wait(context.Background()) // it may be killed at any time
		}
		_ = box.Close(context.Background())
	}
}
