//go:build linux

package docker

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ordinaryUID is an account that no host has.
const ordinaryUID = 54321

// TestAsOrdinaryUser runs the tests that open Terrariums once more as somebody who may ask
// the daemon and nothing else.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	tests := []string{"TestConformance", "TestConformanceGVisor", "TestAppliedIsSeen"}
	p, _ := onOwnDaemon(t, gvisor)
	if err := os.Chown(p.daemon.socket, 0, ordinaryUID); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.daemon.socket, 0o660); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(p.daemon.socket), 0o711); err != nil {
		t.Fatal(err)
	}
	// Not below /tmp, which is made new in every Terrarium: no toolchain can be shown from
	// there.
	place, err := os.MkdirTemp("/opt", "tendril-docker-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(place) })
	program := filepath.Join(place, "docker.test")
	copyProgram(t, os.Args[0], program)
	if err := os.Mkdir(filepath.Join(place, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(place, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, ordinaryUID, ordinaryUID)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(place, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run=^("+strings.Join(tests, "|")+")$/^(boundary|inside|workspace|trees|memory|pids|close|sweep|toolchain|memory|swap|the-filter|read-only-mounts)$")
	cmd.Dir = place
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + place, "TMPDIR=" + filepath.Join(place, "tmp"), "TENDRIL_TEST_DOCKER_HOST=" + p.Host, "TENDRIL_TEST_SITE=" + site}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as an ordinary user: %v\n%s", err, out)
	}
	for _, name := range tests {
		if !strings.Contains(string(out), "--- PASS: "+name) {
			t.Errorf("as an ordinary user %s did not pass:\n%s", name, out)
		}
	}
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
