//go:build linux

// Package terrariumtest is the conformance suite that every wall passes. What a
// provider declares and what package terrarium says of a Terrarium has a test here
// that fails when it is false.
//
// A wall's test is one call of [Run]. The suite looks at a Terrarium from both
// sides: from inside through the Stoma, with the programs of an ordinary root file
// system (sh, coreutils, perl), and from the host, in /proc, in the control groups
// and in the Terrarium's own directory.
//
// What it does not prove: that a seal cannot be broken. It tries what package probe
// tries, and what is written here.
package terrariumtest

import (
	"slices"
	"strings"
	"testing"

	"tendril/terrarium"
)

// property is one thing that a wall has to have.
type property struct {
	name string
	test func(*testing.T, *ground)
}

// properties returns them in the order of a Terrarium's life. A test that needs a
// Terrarium for itself opens one.
func properties() []property {
	return []property{
		{"fields", testFields},
		{"boundary", testBoundary},
		{"seals", testSeals},
		{"stress", testStress},
		{"inside", testInside},
		{"toolchain", testToolchain},
		{"workspace", testWorkspace},
		{"output", testOutput},
		{"trees", testTrees},
		{"listeners", testListeners},
		{"authority", testAuthority},
		{"programs", testPrograms},
		{"usage", testUsage},
		{"memory", testMemory},
		{"pids", testPids},
		{"disk", testDisk},
		{"wall", testWall},
		{"cpu", testCPU},
		{"neighbours", testNeighbours},
		{"close", testClose},
		{"closing twice", testClosingTwice},
		{"giving up", testGivingUp},
		{"sweep", testSweep},
	}
}

// provenBy names the property in which a field of Spec is held to. A field without a
// row here is a promise that nobody tests.
var provenBy = map[string]string{
	"Run":                 "sweep",
	"Rootfs.Host.Dirs":    "toolchain",
	"Rootfs.Authority":    "authority",
	"Rootfs.Programs":     "programs",
	"Rootfs.Image.Path":   "image",
	"Rootfs.Image.Digest": "image",
	"Workspace.Image":     "workspace",
	"Workspace.Dir":       "close",
	"Env":                 "inside",
	"User":                "inside",
	"Network":             "seals",
	"Listeners":           "listeners",
	"CPUs":                "cpu",
	"Memory":              "memory",
	"Disk":                "disk",
	"Output":              "output", // the wall delivers every byte; the Stem counts them
	"Pids":                "pids",
	"Wall":                "wall",
	"Idle":                "usage", // the wall says what is used; the Stem decides what is idle
	"WritableRoot":        "seals", // read-only: the seal root-readonly
}

// Run holds the provider that open returns to its word. Open is called for every
// Terrarium; the provider is the bare one, and the suite wraps it with
// [terrarium.Validated].
//
// One property starts the test binary again to be killed, so Run has to be reached
// by the test's name alone.
func Run(t *testing.T, open func(t *testing.T) terrarium.Provider) {
	g := &ground{bare: open(t)}
	if abandoned(t, g) {
		return
	}
	for _, p := range properties() {
		t.Run(strings.ReplaceAll(p.name, " ", "-"), func(t *testing.T) { p.test(t, g) })
	}
}

func hasProperty(name string) bool {
	return slices.ContainsFunc(properties(), func(p property) bool { return p.name == name })
}
