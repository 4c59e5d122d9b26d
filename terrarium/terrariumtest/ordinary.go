//go:build linux

package terrariumtest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// OrdinaryUID is an account that no host has.
const OrdinaryUID = 54321

// AsOrdinaryUser runs tests of the calling test's binary once more without root. Programs
// are what they need by the variable that names it; they are copied to where that account
// can reach them.
func AsOrdinaryUser(t *testing.T, programs map[string]string, tests ...string) {
	t.Helper()
	AsOrdinaryUserWith(t, nil, programs, tests...)
}

// AsOrdinaryUserWith is the same with further variables, as NAME=value.
func AsOrdinaryUserWith(t *testing.T, variables []string, programs map[string]string, tests ...string) {
	t.Helper()
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
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + place, "TMPDIR=" + filepath.Join(place, "tmp")}
	env = append(env, variables...)
	// The clone may lie where an ordinary user cannot look.
	for name, program := range programs {
		copied := filepath.Join(place, filepath.Base(program))
		copyProgram(t, program, copied)
		env = append(env, name+"="+copied)
	}
	self := filepath.Join(place, "ordinary.test")
	copyProgram(t, os.Args[0], self)
	if err := os.Mkdir(filepath.Join(place, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(place, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, OrdinaryUID, OrdinaryUID)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(place, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.run=^("+strings.Join(tests, "|")+")$")
	cmd.Dir, cmd.Env = place, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: OrdinaryUID, Gid: OrdinaryUID}}
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
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}
