package acceptance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"tendril/run"
)

// TestDisk fills the file systems that a run needs: what fails says where and what
// to do, and leaves nothing.
func TestDisk(t *testing.T) {
	t.Run("full state directory", fullState)
	t.Run("state directory filled by a Sprout", stateFilledBySprout)
	t.Run("state directory full while a Sprout works", stateFullMeanwhile)
	t.Run("full repository", fullRepository)
	t.Run("read-only repository", readOnlyRepository)
	t.Run("read-only state directory", readOnlyState)
}

func TestDiskAsOrdinaryUser(t *testing.T) {
	binary(t)
	if os.Getuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	asOrdinaryUser(t, "TestDisk", "TENDRIL_TEST_DISKS="+strings.Join([]string{smallDisk(t, 64<<20), smallDisk(t, 16<<20)}, ":"))
}

// smallDisk mounts a file system of that many bytes. An ordinary user gets those that
// root has mounted for the test.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	if os.Getuid() != 0 {
		given := strings.Split(os.Getenv("TENDRIL_TEST_DISKS"), ":")
		for _, dir := range given {
			var fs unix.Statfs_t
			if dir != "" && unix.Statfs(dir, &fs) == nil && int(fs.Blocks)*int(fs.Bsize) == bytes {
				if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 {
					t.Cleanup(func() { clear(t, dir) })
					return dir
				}
			}
		}
		t.Skip("only root can mount a small file system")
	}
	dir, err := os.MkdirTemp("/opt", "tendril-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	options := fmt.Sprintf("size=%d,mode=700,uid=%d,gid=%d", bytes, ordinaryUID, ordinaryUID)
	if strings.HasPrefix(t.Name(), "TestDisk/") {
		options = fmt.Sprintf("size=%d,mode=700", bytes)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("the small file system is still in use: %v", err)
			unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}

func clear(t *testing.T, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Error(err)
		}
	}
}

// fill leaves that many bytes free, and returns what makes room again.
func fill(t *testing.T, dir string, free int64) (empty func()) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if size := int64(fs.Bavail)*fs.Bsize - free; size > 0 {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
			t.Fatal(err)
		}
	}
	return func() { os.Remove(filler) }
}

// explained checks that a failure names the place and a remedy.
func explained(t *testing.T, a answer, place string) {
	t.Helper()
	text := a.stdout + a.stderr
	if a.status == 0 || !strings.Contains(text, place) || !strings.Contains(text, `"hint":"`) {
		t.Errorf("status %d, and a person is not told of %s and what to do:\n%s", a.status, place, text)
	}
}

func fullState(t *testing.T) {
	disk := smallDisk(t, 64<<20)
	g := newGardenIn(t, filepath.Join(disk, "state"))
	before := mustFingerprint(t, g.repo)
	for _, free := range []int64{0, 16 << 10, 256 << 10, 2 << 20} {
		t.Run(strconv.FormatInt(free>>10, 10)+" KiB free", func(t *testing.T) {
			g := g.in(t)
			empty := fill(t, disk, free)
			a := g.grow(`head -c 8000000 /dev/urandom >big.bin; echo done`).wait()
			empty()
			explained(t, a, g.state)
			// With room again, the next start recovers, and work is possible.
			witness{g, before}.afterNextStart()
		})
	}
	if a := g.grow(changingAll).wait(); a.status != 0 {
		t.Errorf("with room again: status %d: %s", a.status, a.stdout)
	}
}

// stateFilledBySprout is a Sprout that writes more than the host has, within its own
// limit.
func stateFilledBySprout(t *testing.T) {
	disk := smallDisk(t, 64<<20)
	g := newGardenIn(t, filepath.Join(disk, "state"))
	before := mustFingerprint(t, g.repo)
	a := g.grow(`echo work >work.txt; head -c 200000000 /dev/zero >big.bin; echo done`, "--wall", "30s").wait()
	r := g.record(a)
	if a.status == 0 || r.State == run.Fruited && !r.Partial {
		t.Errorf("status %d, %s: the disk was too small for the work", a.status, r.State)
	}
	explained(t, a, g.state)
	witness{g, before}.afterNextStart()
}

// stateFullMeanwhile is a run whose output cannot be recorded any more: it does not go
// on unrecorded.
func stateFullMeanwhile(t *testing.T) {
	disk := smallDisk(t, 64<<20)
	g := newGardenIn(t, filepath.Join(disk, "state"))
	w := witness{g, mustFingerprint(t, g.repo)}
	p := g.grow(`echo ready; read line; seq 1000000; sleep 1000`, "--stdin", "--wall", "20m")
	r := g.awaitOutput(p, nil, "ready")
	empty := fill(t, disk, 0)
	fmt.Fprintln(p.stdin, "go on")
	explained(t, p.wait(), g.state)
	empty()
	if r = find(w.afterNextStart(), r.ID); r.State != run.Lost && r.State != run.Withered {
		t.Errorf("the run is %s", r.State)
	}
}

func fullRepository(t *testing.T) {
	disk := smallDisk(t, 16<<20)
	g := newGarden(t)
	g.repo = filepath.Join(disk, "repo")
	g.makeRepository(g.repo)
	w := witness{g, mustFingerprint(t, g.repo)}
	for _, free := range []int64{0, 4 << 10, 512 << 10} {
		t.Run(strconv.FormatInt(free>>10, 10)+" KiB free", func(t *testing.T) {
			w := w.in(t)
			empty := fill(t, disk, free)
			defer empty()
			a := w.grow(`head -c 3000000 /dev/urandom >big.bin; echo done`).wait()
			explained(t, a, w.repo)
			if r := w.record(a); r.State != run.Withered || r.Branch != nil {
				t.Errorf("the run is %s", r.State)
			}
			w.afterNextStart()
		})
	}
}

func readOnlyRepository(t *testing.T) {
	var g *garden
	if os.Getuid() == 0 { // whom no mode stops
		disk := smallDisk(t, 16<<20)
		g = newGarden(t)
		g.repo = filepath.Join(disk, "repo")
		g.makeRepository(g.repo)
		if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Skipf("a file system cannot be made read-only here: %v", err)
		}
	} else {
		g = newGarden(t)
		g.shell(`chmod -R a-w "$1"`, g.repo)
		t.Cleanup(func() { g.shell(`chmod -R u+w "$1"`, g.repo) })
	}
	w := witness{g, mustFingerprint(t, g.repo)}
	a := g.grow(changingAll).wait()
	explained(t, a, g.repo)
	for _, r := range w.afterNextStart() {
		if r.State != run.Withered && r.State != run.Refused {
			t.Errorf("the run is %s", r.State)
		}
	}
}

func readOnlyState(t *testing.T) {
	var g *garden
	if os.Getuid() == 0 {
		disk := smallDisk(t, 16<<20)
		g = newGardenIn(t, filepath.Join(disk, "state"))
		g.store.Close()
		if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Skipf("a file system cannot be made read-only here: %v", err)
		}
	} else {
		g = newGarden(t)
		g.store.Close()
		g.shell(`chmod -R a-w "$1"`, g.state)
		t.Cleanup(func() { g.shell(`chmod -R u+w "$1"`, g.state) })
	}
	before := mustFingerprint(t, g.repo)
	for _, args := range [][]string{{"run", "list", "--json"}, {"grow", "--json", "--substrate", g.repo, "--", "true"}} {
		a := g.tendril(args...)
		explained(t, a, g.state)
		if a.status != run.ExitRefused {
			t.Errorf("tendril %s: status %d", args[0], a.status)
		}
	}
	if after := mustFingerprint(t, g.repo); after != before {
		t.Errorf("in the repository: %s", firstDifference(before, after))
	}
}
