package site

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestMapsAll(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n": true,
		"0 100000 65536\n":                   false,
		"0 1000 1\n1 100000 65535\n":         false,
		"0 0 1000\n1000 1000 4294966295\n":   true,
		"":                                   false,
		"0 0\n":                              false,
		"0 0 many\n":                         false,
	} {
		if got := mapsAll(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestNothingIsOurOwnInAUserNamespaceWithoutUs: where this account has no number, its
// files look like everybody's.
func TestNothingIsOurOwnInAUserNamespaceWithoutUs(t *testing.T) {
	if dir := os.Getenv("DIR_IN_USER_NAMESPACE"); dir != "" {
		_, way := CheckWay(dir)
		_, prepared := Dirs{Config: dir + "/c", State: dir + "/s", Runtime: dir + "/r", uid: os.Getuid()}.Prepare()
		_, read := readOwned(dir+"/file", os.Getuid())
		fmt.Printf("inside: %v\ninside: %v\ninside: %v\n", way, prepared, read)
		return
	}
	dir := t.TempDir()
	for top := dir; top != os.TempDir(); top = filepath.Dir(top) {
		if err := os.Chmod(top, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/file", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	inside := exec.Command(os.Args[0], "-test.run=^TestNothingIsOurOwnInAUserNamespaceWithoutUs$")
	inside.Env = append(os.Environ(), "DIR_IN_USER_NAMESPACE="+dir)
	inside.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	output, err := inside.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		t.Skipf("user namespaces are not possible here: %v", err)
	}
	if err != nil || strings.Count(string(output), "cannot be known: its owner has no number in this user namespace") != 3 {
		t.Errorf("%v\n%s", err, output)
	}
}
