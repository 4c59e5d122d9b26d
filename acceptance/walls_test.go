package acceptance_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tendril/capability"
	"tendril/rootfs/image/imagetest"
	"tendril/run"
)

// smallProgram makes a repository with a Go program that has a test.
const smallProgram = `git init -q -b main "$1" && cd "$1" &&
printf 'module small\n\ngo 1.21\n' >go.mod &&
printf 'package main\n\nfunc double(n int) int { return 2 * n }\n\nfunc main() { println(double(21)) }\n' >main.go &&
printf 'package main\n\nimport "testing"\n\nfunc TestDouble(t *testing.T) {\n\tif double(21) != 42 {\n\t\tt.Fatal("no")\n\t}\n}\n' >main_test.go &&
git add -A && git commit -qm base`

// buildTestCommit is what a Sprout does with it, whatever the wall.
const buildTestCommit = `set -e
if test -d ` + imagetest.GoBuildCache + `; then
	export GOCACHE=$HOME/go-build
	cp -R ` + imagetest.GoBuildCache + ` $GOCACHE
fi
go build -o built .
test "$(./built 2>&1)" = 42
go test ./...
rm built
mkdir -p notes
printf 'built and tested\n' >notes/result.txt
printf '#!/bin/sh\n' >run.sh && chmod +x run.sh
ln -s notes/result.txt latest
git add -A
git -c user.name=sprout -c user.email=sprout@localhost commit -qm work`

// TestSameScriptEverywhere: one Sprout, unchanged, gives the same Fruit behind every wall
// that is ready here, from each root file system that the wall takes.
func TestSameScriptEverywhere(t *testing.T) {
	g := newGarden(t)
	g.equip()
	g.repo = g.repo + "-small"
	g.shell(smallProgram, g.repo)
	var fruit, first string
	for _, wall := range g.walls(t) {
		for _, root := range wall.Roots {
			name := wall.Provider + " " + root
			t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
				g := g.in(t)
				flags := []string{"--provider", wall.Provider}
				if root == "image" {
					flags = append(flags, "--image", "oci:"+imagetest.WithGo(t))
				}
				record := g.record(g.growWell(buildTestCommit, flags...))
				if record.State != run.Fruited || record.Commit == nil || *record.Provider != wall.Provider {
					t.Fatalf("%+v", record)
				}
				tree := g.git("rev-parse", *record.Commit+"^{tree}")
				if fruit == "" {
					fruit, first = tree, name
				}
				if tree != fruit {
					t.Errorf("the Fruit of %s differs from that of %s:\n%s", name, first, g.git("diff", fruit, tree))
				}
			})
		}
	}
}

// What the machine of these tests has for walls: the address of a Docker daemon, and the
// package of a kernel.
const (
	testDaemon = "TENDRIL_TEST_DOCKER_HOST"
	testKernel = "TENDRIL_TEST_KERNEL_PACKAGE"
)

// equip gives the garden what the machine of these tests has for walls: a Docker daemon,
// and a kernel of which a micro-VM's guest is made.
func (g *garden) equip() {
	g.t.Helper()
	if daemon := os.Getenv(testDaemon); daemon != "" {
		g.env = append(g.env, "TENDRIL_DOCKER_HOST="+daemon)
	}
	if kernel := os.Getenv(testKernel); kernel != "" {
		g.succeed("terrarium", "setup", "microvm", "--kernel-package", kernel)
	}
}

// walls are those that are ready here, but for the host.
func (g *garden) walls(t *testing.T) []capability.Terrarium {
	t.Helper()
	var all []capability.Terrarium
	if err := json.Unmarshal([]byte(g.succeed("terrarium", "list", "--json").stdout), &all); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(wall capability.Terrarium) bool {
		if wall.Runtime == capability.Host {
			return true
		}
		if !wall.Ready {
			t.Run(wall.Provider, func(t *testing.T) { t.Skip(*wall.Reason) })
		}
		return !wall.Ready
	})
}

// TestImageIsNamedFromHere: a path in the name of an image is looked up where the caller is.
func TestImageIsNamedFromHere(t *testing.T) {
	g := newGarden(t)
	if err := os.Symlink(imagetest.Debian(t), filepath.Join(g.home, "layout")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"./layout", "oci:layout", "oci:" + g.home + "/layout"} {
		if a := g.grow("test -e /etc/debian_version", "--image", name).wait(); a.status != 0 {
			t.Errorf("%s: status %d, %s%s", name, a.status, a.stdout, a.stderr)
		}
	}
	a := g.grow("true", "--image", "layout").wait()
	if a.status != 2 || !strings.Contains(a.stdout+a.stderr, "an image is named as") {
		t.Errorf("a name that is none: status %d, %s%s", a.status, a.stdout, a.stderr)
	}
}

// TestHostIsTakenByNameAlone: what is no wall runs work only where the Stem's environment
// allows it and the Botanist says so for this run, and everything says that it was none.
func TestHostIsTakenByNameAlone(t *testing.T) {
	g := newGarden(t)
	const outside = "echo planted >../outside"
	refused := func(says string, flags ...string) {
		t.Helper()
		a := g.grow(outside, flags...).wait()
		if a.status != 2 || !strings.Contains(a.stdout+a.stderr, says) {
			t.Errorf("%q: status %d, %s%s", flags, a.status, a.stdout, a.stderr)
		}
	}
	refused("TENDRIL_ALLOW_HOST_EXECUTION=true", "--provider", "host", "--override", "host")
	refused("TENDRIL_ALLOW_HOST_EXECUTION=true", "--provider", "host", "--override", "host", "--env", "TENDRIL_ALLOW_HOST_EXECUTION=true")
	g.env = append(g.env, "TENDRIL_ALLOW_HOST_EXECUTION=true")
	refused("policy", "--provider", "host")
	refused("only for a request that names it", "--override", "host")
	if a := g.grow("true", "--provider", "runsc", "--override", "host").wait(); a.status != 2 {
		t.Errorf("an override for another wall: status %d, %s", a.status, a.stderr)
	}
	a := g.grow("echo made >made.txt", "--provider", "host", "--override", "host").wait()
	record := g.record(a)
	if a.status != 0 || record.State != run.Fruited || !strings.Contains(a.stderr, "nothing isolates this run") {
		t.Fatalf("status %d, %+v, %s", a.status, record, a.stderr)
	}
	if message := g.git("log", "-1", "--format=%B", *record.Commit); !strings.Contains(message, "Tendril-Provider: host (nothing isolated this run from the host)") {
		t.Errorf("the Fruit says %s", message)
	}
	if record.Verdict == nil || *record.Verdict == run.Clean {
		t.Errorf("the verdict is %v", record.Verdict)
	}
	if rows := g.succeed("ledger", "tail").stdout; !strings.Contains(rows, "takes the provider host, which the policy denies") {
		t.Errorf("the ledger says %s", rows)
	}
}

// TestKilledStemLeavesNothingOfItsWall: a Stem that is killed while its Sprout works is followed by
// one that removes whatever the wall still has, and records the run as lost.
func TestKilledStemLeavesNothingOfItsWall(t *testing.T) {
	g := newGarden(t)
	g.equip()
	for _, wall := range g.walls(t) {
		t.Run(wall.Provider, func(t *testing.T) {
			g := g.in(t)
			w := witness{g, mustFingerprint(t, g.repo)}
			flags := []string{"--provider", wall.Provider}
			if !slices.Contains(wall.Roots, "toolchain") {
				flags = append(flags, "--image", "oci:"+imagetest.Debian(t))
			}
			before := known(g.runs())
			p := g.grow("echo so far >work.txt; echo ready; sleep 86400", flags...)
			id := g.awaitOutput(p, before, "ready").ID
			p.kill()
			if r := find(w.afterNextStart(), id); r.State != run.Lost {
				t.Errorf("the run is %s", r.State)
			}
			if daemon := os.Getenv(testDaemon); daemon != "" {
				if left := g.shell(`docker -H "$1" ps -aq --filter label=tendril.run="$2"`, daemon, string(id)); left != "" {
					t.Errorf("the daemon still has the containers %s", left)
				}
			}
			for _, process := range processes(t) {
				if groups, err := os.ReadFile("/proc/" + strconv.Itoa(process.pid) + "/cgroup"); err == nil && bytes.Contains(groups, []byte(id)) {
					t.Errorf("process %d is still in the run's control group: %s", process.pid, process.command)
				}
			}
		})
	}
}

// TestMachineThatDiesLeavesItsWork: when the process behind a machine is killed, the run says
// so, what was done so far becomes Fruit, and nothing is left.
func TestMachineThatDiesLeavesItsWork(t *testing.T) {
	if os.Getenv(testKernel) == "" {
		t.Skipf("%s is not set", testKernel)
	}
	g := newGarden(t)
	g.equip()
	// What was synced is there, and what was written a while ago is whole.
	p := g.grow("echo so far >work.txt; sync; head -c 300000 /dev/zero | tr '\\0' x >later.txt; sleep 5; echo ready; sleep 86400", "--provider", "qemu", "--image", "oci:"+imagetest.Debian(t))
	r := g.awaitOutput(p, nil, "ready")
	machine := machineOf(t, r.ID)
	if err := syscall.Kill(machine, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a := p.wait()
	record := g.record(a)
	if record.State != run.Withered || !record.Partial || record.Commit == nil {
		t.Fatalf("status %d, %s%s", a.status, a.stdout, a.stderr)
	}
	if got := g.git("show", *record.Commit+":work.txt"); got != "so far" {
		t.Errorf("the Fruit holds %q", got)
	}
	if got := g.git("show", *record.Commit+":later.txt"); got != strings.Repeat("x", 300000) {
		t.Errorf("what was not synced has %d bytes, %d of them zero", len(got), strings.Count(got, "\x00"))
	}
	if left, err := os.ReadDir(filepath.Join(g.state, "runs")); err != nil || slices.ContainsFunc(left, os.DirEntry.IsDir) {
		t.Errorf("left are %v (%v)", left, err)
	}
}

// machineOf is the process behind the machine of a run.
func machineOf(t *testing.T, id run.ID) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		command, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		group, _ := os.ReadFile("/proc/" + e.Name() + "/cgroup")
		if err == nil && bytes.Contains(command, []byte("qemu-system")) && bytes.Contains(group, []byte(id)) {
			return pid
		}
	}
	t.Fatal("there is no machine")
	return 0
}
