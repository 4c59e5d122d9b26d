//go:build linux

package terrariumtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tendril/erofs"
	"tendril/terrarium"
)

// HostSpec asks for a Terrarium with the host's toolchain over an empty workspace, under a
// name that is this process's own.
func HostSpec(t testing.TB, run string) terrarium.Spec {
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
