package source

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHardenProcess crashes a program that a hardened process became, and one that another
// did, which leaves a core dump where this host writes them to files.
func TestHardenProcess(t *testing.T) {
	const which = "TENDRIL_TEST_CRASH"
	if how := os.Getenv(which); how != "" {
		var limit unix.Rlimit
		err := unix.Getrlimit(unix.RLIMIT_CORE, &limit)
		if limit.Cur = limit.Max; err == nil {
			err = unix.Setrlimit(unix.RLIMIT_CORE, &limit)
		}
		if how == "hardened" {
			err = errors.Join(err, HardenProcess(), unix.Getrlimit(unix.RLIMIT_CORE, &limit))
			if limit.Cur != 1 || limit.Max != 1 {
				t.Fatalf("%+v", limit)
			}
		}
		t.Fatal(errors.Join(err, syscall.Exec("/bin/sh", []string{"sh", "-c", "kill -ABRT $$"}, nil)))
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	crash := func(how string) (dumped bool) {
		cmd := exec.CommandContext(t.Context(), executable, "-test.run=^TestHardenProcess$")
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), which+"="+how)
		out, err := cmd.CombinedOutput()
		var failed *exec.ExitError
		if !errors.As(err, &failed) || !failed.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("it did not crash: %v\n%s", err, out)
		}
		return failed.Sys().(syscall.WaitStatus).CoreDump()
	}
	if crash("hardened") {
		t.Error("a core dump was written")
	}
	if !crash("as it is") {
		t.Skip("this host writes no core dumps at all")
	}
}
