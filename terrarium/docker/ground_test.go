//go:build linux

package docker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tendril/erofs"
	"tendril/stoma"
	"tendril/stoma/binary"
	"tendril/terrarium"
	"tendril/terrarium/docker/dockertest"
)

func TestMain(m *testing.M) { os.Exit(dockertest.Main(m)) }

// site is this process's own, and that of those that it starts to be killed.
var site = func() string {
	const variable = "TENDRIL_TEST_SITE"
	if os.Getenv(variable) == "" {
		os.Setenv(variable, fmt.Sprintf("test-%d", os.Getpid()))
	}
	return os.Getenv(variable)
}()

func wall(t testing.TB, k kind) *provider {
	t.Helper()
	host := dockertest.Host(t)
	guest, err := binary.Stoma.Install(t.TempDir())
	if err != nil {
		t.Skipf("%v", err)
	}
	p := newProvider(Config{Host: host, Stoma: guest, Site: site}, k)
	if k.own && os.Getenv("TENDRIL_TEST_BINARY") == "" && os.Getenv(dockertest.Variable) == "" {
		t.Skip("TENDRIL_TEST_BINARY is not set: run `make test`")
	}
	return p
}

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

func TestThin(t *testing.T) {
	p := wall(t, runc)
	spec := specFor(t, "thin")
	start := time.Now()
	box, err := p.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("open", time.Since(start))
	proc, err := box.Stoma().Exec(t.Context(), stoma.ExecRequest{Argv: []string{"/usr/bin/true"}})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := proc.Wait(t.Context())
	t.Log(exit, err, time.Since(start))
	if err := box.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log("closed", time.Since(start))
}
