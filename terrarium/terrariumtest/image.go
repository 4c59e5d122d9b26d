//go:build linux

package terrariumtest

import (
	"os"
	"strings"
	"testing"

	"tendril/probe"
	"tendril/terrarium"
)

// testImage: the root file system is the image's tree and nothing of the host's, it
// cannot be written, and the boundary says which image it is.
func testImage(t *testing.T, g *ground) {
	g.needs(t, "Rootfs.Image.Path")
	b := g.open(t, func(s *terrarium.Spec) { s.Rootfs = terrarium.Rootfs{Image: g.image} })
	t.Run("its-tree", func(t *testing.T) {
		if _, err := os.Lstat(terrarium.SproutInside); err == nil {
			t.Fatalf("%s is on this host as well: it shows nothing", terrarium.SproutInside)
		}
		if e := b.run(t, "ls", "-d", terrarium.SproutInside); !e.ok() { // every image has that place
			t.Errorf("what only the image has is not there: %s", e)
		}
	})
	t.Run("nothing-of-the-host", func(t *testing.T) {
		inside := strings.Fields(b.sh(t, "ls /usr/bin"))
		host, err := os.ReadDir("/usr/bin")
		if err != nil {
			t.Fatal(err)
		}
		has := map[string]bool{}
		for _, name := range inside {
			has[name] = true
		}
		for _, program := range host {
			if !has[program.Name()] {
				return
			}
		}
		t.Error("every program of this host is inside: the root is the host's, or the image has all of them")
	})
	t.Run("read-only", func(t *testing.T) {
		g.sealed(t, probe.RootReadonly)
		for _, dir := range []string{"/", "/usr/bin", "/etc", "/opt/tendril", "/.tendril"} {
			if e := b.run(t, "touch", dir+"/planted"); e.ok() {
				t.Errorf("a file was made in %s", dir)
			}
		}
		if e := b.run(t, "sh", "-c", "echo x >> "+terrarium.SproutInside); e.ok() {
			t.Errorf("a file of the image was written")
		}
	})
	t.Run("rows", func(t *testing.T) {
		for field, want := range map[string]string{
			"Rootfs.Host.Dirs":    "none",
			"Rootfs.Image.Digest": g.image.Digest,
		} {
			if row := b.row(t, field); row.Applied != want {
				t.Errorf("the row of %s says %q was applied, want %q", field, row.Applied, want)
			}
		}
	})
}
