//go:build linux

package microvm

import (
	"path/filepath"
	"testing"

	"tendril/terrarium/terrariumtest"
)

// TestAsOrdinaryUser runs the tests that open Terrariums once more without root.
func TestAsOrdinaryUser(t *testing.T) {
	emulated(t)
	terrariumtest.AsOrdinaryUser(t, map[string]string{packageVariable: kernelPackage(t)},
		"TestMachineRunsACommand", "TestEachSealIsNeeded", "TestWorkOutlivesItsMachine")
}

// TestFirecrackerAsOrdinaryUser: without root there is no jailer, and our jail is its.
func TestFirecrackerAsOrdinaryUser(t *testing.T) {
	standIn(t)
	program := filepath.Join(buildStandIn(t), "firecracker")
	terrariumtest.AsOrdinaryUser(t, map[string]string{packageVariable: kernelPackage(t), standInVariable: program},
		"TestFirecrackerIsStarted", "TestFirecrackerDies")
}
