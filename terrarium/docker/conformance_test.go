//go:build linux

package docker

import (
	"testing"

	"tendril/rootfs"
	"tendril/rootfs/image"
	"tendril/rootfs/image/imagetest"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

func TestConformance(t *testing.T) {
	conform(t, runc)
}

func conform(t *testing.T, k kind) {
	p := wall(t, k)
	terrariumtest.Run(t, func(t *testing.T) terrarium.Provider { return p }, terrariumtest.Options{
		Image: debian,
		Traces: func(t *testing.T, run string) []string {
			found, err := p.daemon.labelled(t.Context(), map[string]string{labelRun: run})
			if err != nil {
				t.Error(err)
			}
			var ids []string
			for _, c := range found {
				ids = append(ids, c.ID)
			}
			return ids
		},
	})
}

// debian is an image with what the suite needs inside.
func debian(t *testing.T) terrariumtest.Image {
	t.Helper()
	user := terrarium.DefaultUser
	store, err := image.OpenStore(t.TempDir(), image.Options{User: rootfs.User{UID: user.UID, GID: user.GID, Name: "sprout", Home: "/home/sprout"}})
	if err != nil {
		t.Fatal(err)
	}
	got, release, err := store.Get(t.Context(), imagetest.Debian(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return terrariumtest.Image{Image: terrarium.Image{Path: got.Path, Digest: got.Digest}, Only: terrarium.SproutInside}
}
