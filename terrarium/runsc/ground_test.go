//go:build linux

package runsc

import (
	"os"
	"testing"

	"tendril/stoma/binary"
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
