//go:build linux

package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"tendril/erofs"
	"tendril/fault"
	"tendril/rootfs"
	"tendril/rootfs/image"
)

var sprout = rootfs.User{UID: 70707, GID: 70707, Name: "sprout", Home: "/home/sprout"}

var otherAccount = rootfs.User{UID: 9, GID: 9, Name: "other", Home: "/home/other"}

func owned(h *tar.Header) { h.Uid, h.Gid, h.Mode = 70707, 70707, 0o777 }

// entries of a layer. What no test is about has the mode 0644, or 0755 of a directory,
// and the time 1000.

func header(kind byte, name string) *tar.Header {
	h := &tar.Header{Typeflag: kind, Name: name, Mode: 0o644, ModTime: time.Unix(1000, 0)}
	if kind == tar.TypeDir {
		h.Mode = 0o755
	}
	return h
}

type member struct {
	*tar.Header
	content string
}

func file(name, content string) member { return member{header(tar.TypeReg, name), content} }
func dir(name string) member           { return member{header(tar.TypeDir, name), ""} }
func link(name, target string) member  { return to(header(tar.TypeSymlink, name), target) }
func hard(name, target string) member  { return to(header(tar.TypeLink, name), target) }
func hide(name string) member          { return file(name, "") }

func to(h *tar.Header, target string) member {
	h.Linkname = target
	return member{h, ""}
}

// with changes an entry's header.
func (m member) with(change func(*tar.Header)) member {
	change(m.Header)
	return m
}

// pack is a layer as a tar.
func pack(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		m.Size = int64(len(m.content))
		if err := w.WriteHeader(m.Header); err != nil {
			t.Fatalf("%q: %v", m.Name, err)
		}
		if _, err := io.WriteString(w, m.content); err != nil {
			t.Fatalf("%q: %v", m.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// rename gives an entry of a packed layer a name that no writer would write.
func rename(t testing.TB, layer []byte, old, name string) []byte {
	t.Helper()
	at := bytes.Index(layer, append([]byte(old), 0))
	if at < 0 || at%512 != 0 {
		t.Fatalf("no header of %q", old)
	}
	h := layer[at : at+512]
	clear(h[:100])
	copy(h, name)
	copy(h[148:156], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:156], []byte{byte('0' + sum>>15&7), byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	return layer
}

// compose is an image of layers that are tars, for this platform.
func compose(t testing.TB, layers ...[]byte) v1.Image {
	t.Helper()
	made, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, Created: v1.Time{Time: time.Unix(500, 0)}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Env: []string{"PATH=/usr/bin:/bin", "LANG=C"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if made, err = mutate.AppendLayers(made, l); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

// configured is the image with a changed configuration.
func configured(t testing.TB, img v1.Image, change func(*v1.ConfigFile)) v1.Image {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	change(c)
	img, err = mutate.ConfigFile(img, c)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// onDisk writes an image as an OCI layout and returns its directory.
func onDisk(t testing.TB, img v1.Image) string {
	t.Helper()
	path := t.TempDir()
	l, err := layout.Write(path, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, o image.Options) (*image.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "images")
	o.User = sprout
	s, err := image.OpenStore(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, path
}

// get unpacks an image, and releases it when the test ends.
func get(t testing.TB, s *image.Store, ref string) image.Image {
	t.Helper()
	got, release, err := s.Get(context.Background(), ref)
	if err != nil {
		t.Fatalf("get %s: %v", ref, err)
	}
	t.Cleanup(release)
	return got
}

// entry is what the tree of an unpacked image has at a path.
type entry struct {
	Mode     fs.FileMode
	UID, GID uint32
	Mtime    int64
	Content  string // or target
	Link     string
}

// read reads the tree of an unpacked image.
func read(t testing.TB, img image.Image) map[string]entry {
	t.Helper()
	f, err := os.Open(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := erofs.Open(f, img.Size)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]entry{}
	if err := r.Walk(func(e *erofs.Entry) error {
		content, err := io.ReadAll(e.Content())
		all[e.Path] = entry{e.Mode, e.UID, e.GID, e.Time.Unix(), string(content) + e.Target, e.Link}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(all) != img.Entries {
		t.Errorf("the image has %d entries, and its record says %d", len(all), img.Entries)
	}
	return all
}

// unpacked is the tree of an image of layers, without what every image gets.
func unpacked(t testing.TB, layers ...[]byte) (map[string]entry, image.Image) {
	t.Helper()
	s, _ := open(t, image.Options{})
	got := get(t, s, onDisk(t, compose(t, layers...)))
	all := read(t, got)
	for path := range read(t, get(t, s, onDisk(t, compose(t)))) {
		delete(all, path)
	}
	return all, got
}

// stored lists what is in a store, but for locks.
func stored(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != filepath.Join(dir, "lock") {
			names = append(names, strings.TrimPrefix(path, dir))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

// refused checks that an image is refused with a kind of fault and words in it, and that
// the store is as it was.
func refused(t testing.TB, s *image.Store, dir, ref string, kind fault.Kind, words ...string) {
	t.Helper()
	before := strings.Join(stored(t, dir), "\n")
	_, release, err := s.Get(context.Background(), ref)
	if err == nil {
		release()
		t.Errorf("%s was taken", ref)
		return
	}
	if got := fault.KindOf(err); got != kind {
		t.Errorf("%v: its kind is %s, want %s", err, got, kind)
	}
	for _, word := range words {
		var f *fault.Error
		if hint := ""; !strings.Contains(err.Error(), word) && (!errors.As(err, &f) || !strings.Contains(f.Hint, word)) {
			t.Errorf("%q (%s) does not say %q", err, hint, word)
		}
	}
	if after := strings.Join(stored(t, dir), "\n"); before != after {
		t.Errorf("a refused image left something behind:\n%s\nwas\n%s", after, before)
	}
}
