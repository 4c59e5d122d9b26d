//go:build linux

package docker

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tendril/terrarium/confine"
)

// TestEndForgotten has what serves a container and what it started, as containerd leaves
// them when it is killed between the two, and the same for a container of somebody else.
func TestEndForgotten(t *testing.T) {
	shim := filepath.Join(t.TempDir(), "containerd-shim-runc-v2")
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(shell, shim); err != nil {
		t.Fatal(err)
	}
	start := func(id string) (serves *exec.Cmd, started int) {
		t.Helper()
		// What follows the script are words that it ignores.
		serves = exec.Command(shim, "-c", "sleep 300 & echo; wait", "-namespace", "moby", "-id", id, "-address", "/nowhere")
		out, err := serves.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := serves.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = serves.Process.Kill(); _ = serves.Wait() })
		for _, pid := range processesOf(id) {
			if pid != serves.Process.Pid {
				started = pid
			}
		}
		if started == 0 {
			t.Fatalf("what comes from the shim %d is not seen", serves.Process.Pid)
		}
		return serves, started
	}
	ours, theirs := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	shimOfOurs, ofOurs := start(ours)
	shimOfTheirs, ofTheirs := start(theirs)
	t.Cleanup(func() {
		if p, err := os.FindProcess(ofTheirs); err == nil {
			_ = p.Kill()
		}
	})

	dir := t.TempDir()
	if err := os.Mkdir(below(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(identity(dir), []byte(ours), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := endForgotten(within(t), recordedContainer(dir)); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]bool{shimOfOurs.Process.Pid: false, ofOurs: false, shimOfTheirs.Process.Pid: true, ofTheirs: true} {
		if _, runs := confine.ParentOf(pid); runs != want {
			t.Errorf("the process %d runs: %v, want %v", pid, runs, want)
		}
	}
}

// TestRecordedContainer: what is no identifier names no process.
func TestRecordedContainer(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(below(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "a", strings.Repeat("g", 64), strings.Repeat("a", 63) + "\n", strings.Repeat("a", 65)} {
		if err := os.WriteFile(identity(dir), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := recordedContainer(dir); got != "" {
			t.Errorf("of %q: %q", content, got)
		}
	}
}
