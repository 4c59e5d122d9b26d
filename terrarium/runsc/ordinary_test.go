//go:build linux

package runsc

import (
	"testing"

	"tendril/terrarium/terrariumtest"
)

// TestAsOrdinaryUser runs the tests that open Terrariums once more without root.
func TestAsOrdinaryUser(t *testing.T) {
	terrariumtest.SkipTested(t, terrariumtest.OrdinaryUser)
	terrariumtest.AsOrdinaryUser(t, map[string]string{"TENDRIL_TEST_BINARY": wall(t).Program},
		"TestConformance", "TestEachSealIsNeeded", "TestNothingIsInherited", "TestMaskedFileIsEmpty")
}
