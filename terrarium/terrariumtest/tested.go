//go:build linux

package terrariumtest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// What may have been tested by itself before a run of everything.
const (
	Emulated     = "emulated"      // machines that QEMU emulates
	OrdinaryUser = "ordinary-user" // all that an ordinary user can
)

// SkipTested skips what TENDRIL_TESTED, a list of words, says was tested before.
func SkipTested(t testing.TB, what string) {
	t.Helper()
	if slices.Contains(strings.Fields(os.Getenv("TENDRIL_TESTED")), what) {
		t.Skipf("TENDRIL_TESTED says that this was run before: %s", what)
	}
}
