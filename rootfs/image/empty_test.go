//go:build linux

package image

import (
	"os"
	"path/filepath"
	"testing"

	"tendril/erofs"
	"tendril/rootfs"
)

func TestWriteEmptyHasThePlacesAlone(t *testing.T) {
	user := rootfs.User{UID: 70707, GID: 70707, Name: "sprout", Home: "/home/sprout"}
	path := filepath.Join(t.TempDir(), "empty.erofs")
	digest, err := WriteEmpty(t.Context(), user, path)
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "empty.erofs")
	if same, err := WriteEmpty(t.Context(), user, again); err != nil || same != digest {
		t.Errorf("written twice it is %s and %s (%v)", digest, same, err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	image, err := erofs.Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	if err := image.Walk(func(e *erofs.Entry) error { found["/"+e.Path] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"/workspace", "/tmp", "/home/sprout", "/.tendril/stoma", rootfs.PrivateBase, "/etc/passwd", "/proc", "/dev"} {
		if !found[place] {
			t.Errorf("%s is missing", place)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("beside it there is %v (%v)", entries, err)
	}
}
