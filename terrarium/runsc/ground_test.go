//go:build linux

package runsc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tendril/erofs"
	"tendril/stoma/binary"
	"tendril/terrarium"
)

// wall returns the provider with its real parts: the shipped binary as the sandbox,
// which is static whatever this test is, and the Stoma out of it.
func wall(t testing.TB) *provider {
	t.Helper()
	program := os.Getenv("TENDRIL_TEST_BINARY")
	if program == "" {
		t.Skip("TENDRIL_TEST_BINARY is not set: run `make test`")
	}
	guest, err := binary.Stoma.Install(t.TempDir())
	if err != nil {
		t.Skipf("%v", err)
	}
	return &provider{Config{Program: program, Stoma: guest}}
}

// specFor asks for a Terrarium over an empty workspace, under a name that is this
// process's own.
func specFor(t testing.TB, run string) terrarium.Spec {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "run-")
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "base.erofs")
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	user := terrarium.DefaultUser
	err = erofs.New(f, erofs.Options{UID: user.UID, GID: user.GID, Time: time.Unix(1, 0)}).Close()
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return terrarium.Spec{
		Run:       fmt.Sprintf("%s-%d", run, os.Getpid()),
		Rootfs:    terrarium.Rootfs{Host: &terrarium.HostView{}},
		Workspace: terrarium.Workspace{Image: image, Dir: dir},
		Env:       []string{"PATH=/usr/bin:/bin", "HOME=/home/sprout"},
		User:      user,
	}
}
