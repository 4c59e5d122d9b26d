//go:build linux

// Package terrariumtest is the conformance suite that every wall passes. What a
// provider declares and what package terrarium says of a Terrarium has a test here
// that fails when it is false.
//
// A wall's test is one call of [Run]. The suite looks at a Terrarium from both
// sides: from inside through the Stoma, with the programs of an ordinary root file
// system (sh, bash, coreutils, findutils, grep, setsid, perl with Socket), and from
// the host, in /proc, in the control groups and in the Terrarium's own directory.
//
// What a wall does not declare is skipped by name. What it declares is never: the
// last property fails when one that holds the wall to its word was skipped.
//
// What it does not prove: that a seal cannot be broken. It tries what package probe
// tries, and what is written here.
package terrariumtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tendril/probe"
	"tendril/terrarium"
)

// Options are what the suite has to be told of a wall. The zero value is a wall that
// shows the host, computes as fast as it, and has nothing on it but what carries the
// run's name.
type Options struct {
	// Image makes a root file system for a wall that takes images, such as [Debian].
	Image func(t *testing.T) terrarium.Image

	// Slow says how many times longer a wall takes than the host, for one that is
	// emulated; 0: no longer. It makes waits longer and the most expensive inputs
	// smaller, and drops nothing.
	Slow int

	// Memory and Disk are the smallest limits that a Terrarium of this wall works in, in
	// bytes; 0: what a process needs.
	Memory, Disk int64

	// Traces lists what a daemon has of a run, by the names that it gave: for a
	// container, its id. Each name is a trace itself, and from then on whatever carries
	// it on the host is one too.
	Traces func(t *testing.T, run string) []string
}

// property is one thing that a wall has to have.
type property struct {
	name string
	test func(*testing.T, *ground)
	root bool // depends on the root file system, so it is tried over each that the wall takes
}

// properties returns them in the order of a Terrarium's life. A test that needs a
// Terrarium for itself opens one.
func properties() []property {
	return []property{
		{"fields", testFields, false},
		{"boundary", testBoundary, true},
		{"seals", testSeals, true},
		{"stress", testStress, false},
		{"inside", testInside, true},
		{"toolchain", testToolchain, false},
		{"image", testImage, false},
		{"workspace", testWorkspace, true},
		{"output", testOutput, false},
		{"trees", testTrees, true},
		{"listeners", testListeners, true},
		{"authority", testAuthority, true},
		{"programs", testPrograms, true},
		{"usage", testUsage, false},
		{"memory", testMemory, false},
		{"pids", testPids, false},
		{"disk", testDisk, false},
		{"wall", testWall, false},
		{"cpu", testCPU, false},
		{"neighbours", testNeighbours, false},
		{"close", testClose, true},
		{"closing twice", testClosingTwice, false},
		{"giving up", testGivingUp, false},
		{"sweep", testSweep, false},
		{"recovery", testRecovery, false},
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

// Run holds the provider that open returns to its word. Open is called once; the
// provider is the bare one, and the suite wraps it with [terrarium.Validated].
//
// One property starts the test binary again to be killed, so Run has to be reached
// by the test's name alone, and what open needs that this process has made (a daemon)
// has to be found by the environment: [testing.T.Setenv].
func Run(t *testing.T, open func(t *testing.T) terrarium.Provider, o Options) {
	g := newGround(open(t), o)
	if abandoned(t, g) {
		return
	}
	roots := g.roots(t)
	g.root = roots[0]
	for _, p := range properties() {
		g.try(t, p)
	}
	for _, other := range roots[1:] {
		t.Run("over-an-image", func(t *testing.T) {
			g.root = other
			for _, p := range properties() {
				if p.root {
					g.try(t, p)
				}
			}
		})
	}
	for _, what := range leftOut(g.bare.Capabilities(), g.skipped) {
		t.Errorf("the wall declares %s, and the property that proves it was skipped", what)
	}
}

// try tests one property and remembers whether it was skipped.
func (g *ground) try(t *testing.T, p property) {
	t.Run(strings.ReplaceAll(p.name, " ", "-"), func(t *testing.T) {
		defer func() {
			// What this host lacks says nothing about the wall.
			if t.Skipped() && !slices.Contains(g.lacking, p.name) {
				g.skipped = append(g.skipped, p.name)
			}
		}()
		p.test(t, g)
	})
}

// leftOut names what is declared and was not put to the test.
func leftOut(can terrarium.Capabilities, skipped []string) []string {
	var list []string
	for _, field := range terrarium.Fields() {
		if can.Keeps(field) && slices.Contains(skipped, provenBy[field]) {
			list = append(list, "the field "+field)
		}
	}
	for _, p := range probe.All() {
		property := "seals"
		if p.Stress {
			property = "stress"
		}
		what := fmt.Sprintf("the seal %s (%s)", p.Seal, property)
		if slices.Contains(can.Seals, p.Seal) && slices.Contains(skipped, property) && !slices.Contains(list, what) {
			list = append(list, what)
		}
	}
	return list
}

func hasProperty(name string) bool {
	return slices.ContainsFunc(properties(), func(p property) bool { return p.name == name })
}
