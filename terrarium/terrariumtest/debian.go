//go:build linux

package terrariumtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tendril/rootfs"
	"tendril/rootfs/image"
	"tendril/rootfs/image/imagetest"
	"tendril/terrarium"
)

// Debian is a root file system with the programs that this suite runs inside, for
// [Options].Image. It is unpacked once for all tests of this account.
func Debian(t *testing.T) terrarium.Image {
	t.Helper()
	user := terrarium.DefaultUser
	store, err := image.OpenStore(filepath.Join(os.TempDir(), fmt.Sprintf("tendril-terrariumtest-%d", os.Geteuid())),
		image.Options{User: rootfs.User{UID: user.UID, GID: user.GID, Name: "sprout", Home: "/home/sprout"}})
	if err != nil {
		t.Fatal(err)
	}
	got, release, err := store.Get(t.Context(), imagetest.Debian(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return terrarium.Image{Path: got.Path, Digest: got.Digest}
}
