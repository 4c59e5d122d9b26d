//go:build linux

package docker

import (
	"fmt"
	"os"
	"testing"

	"tendril/stoma/binary"
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
