//go:build linux

package runsc

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

// TestAsOrdinaryUser runs the tests that open Terrariums once more without root.
func TestAsOrdinaryUser(t *testing.T) {
	program := wall(t).Program
	tests := []string{"TestConformance", "TestEachSealIsNeeded", "TestNothingIsInherited", "TestMaskedFileIsEmpty"}
	if os.Getuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	// Not below /tmp, which is made new in every Terrarium: no toolchain can be shown
	// from there.
	place, err := os.MkdirTemp("/opt", "tendril-wall-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(place) })
	// The clone may lie where an ordinary user cannot look.
	copyProgram(t, program, filepath.Join(place, "tendril"))
	copyProgram(t, os.Args[0], filepath.Join(place, "runsc.test"))
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
	cmd := exec.CommandContext(t.Context(), filepath.Join(place, "runsc.test"), "-test.v", "-test.run=^("+strings.Join(tests, "|")+")$")
	cmd.Dir = place
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + place, "TMPDIR=" + filepath.Join(place, "tmp"),
		"TENDRIL_TEST_BINARY=" + filepath.Join(place, "tendril"),
	}
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
