//go:build linux

package image_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"pgregory.net/rapid"

	"tendril/rootfs/image"
)

// builder draws layers as builders of images write them: directories before what is in
// them, and nothing of a layer both hidden and made in it.
type builder struct {
	t      *rapid.T
	tree   map[string]byte // what is there, by the type of its entry
	layer  []member
	here   map[string]bool // what this layer has, its whiteouts included
	ended  map[string]bool // directories that became something else
	number int
}

func (b *builder) attributes(m member) member {
	return m.with(func(h *tar.Header) {
		h.Mode = rapid.SampledFrom([]int64{0o600, 0o644, 0o755, 0o711}).Draw(b.t, "mode")
		h.Uid, h.Gid = rapid.IntRange(0, 70000).Draw(b.t, "uid"), rapid.IntRange(0, 70000).Draw(b.t, "gid")
	})
}

// touches reports whether this layer has something at a path, or below it.
func (b *builder) touches(path string) bool {
	for p := range b.here {
		if p == path || strings.HasPrefix(p, path+"/") {
			return true
		}
	}
	return false
}

func (b *builder) add(m member) {
	path := m.Name
	if b.tree[path] == tar.TypeDir && m.Typeflag != tar.TypeDir {
		b.ended[path] = true
	}
	b.layer = append(b.layer, b.attributes(m))
	b.here[path] = true
	if m.Typeflag != tar.TypeDir || b.tree[path] != tar.TypeDir {
		b.remove(path)
	}
	b.tree[path] = m.Typeflag
}

func (b *builder) remove(path string) {
	for p := range b.tree {
		if p == path || strings.HasPrefix(p, path+"/") {
			delete(b.tree, p)
		}
	}
}

func (b *builder) step() {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "é"}), 1, 3).Draw(b.t, "path")
	for i := 1; i < len(names); i++ {
		parent := strings.Join(names[:i], "/")
		// Extracting from the top forgets what a file in a middle layer replaced.
		if b.here[parent] && b.tree[parent] != tar.TypeDir || b.ended[parent] {
			return
		}
		if !b.here[parent] {
			b.add(dir(parent))
		}
	}
	path := strings.Join(names, "/")
	before := ""
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		before = path[:i+1]
	}
	switch rapid.SampledFrom([]string{"file", "file", "dir", "link", "hard", "hide", "opaque"}).Draw(b.t, "what") {
	case "file":
		if !b.touches(path) {
			b.number++
			b.add(file(path, strings.Repeat(fmt.Sprint(b.number), rapid.IntRange(0, 2000).Draw(b.t, "size"))))
		}
	case "dir":
		if !b.here[path] && !b.ended[path] {
			b.add(dir(path))
		}
	case "link":
		if !b.touches(path) {
			b.add(link(path, rapid.SampledFrom([]string{"a", "b/../c", "/c/d", "nowhere"}).Draw(b.t, "target")))
		}
	case "hard":
		b.number++ // the file keeps its names: extracting from the top does not follow it to an older one
		kept := fmt.Sprintf("kept%d", b.number)
		b.add(file(kept, kept))
		b.add(hard(fmt.Sprintf("name%d", b.number), kept))
	case "hide":
		if _, ok := b.tree[path]; ok && !b.touches(path) {
			b.layer = append(b.layer, hide(before+".wh."+names[len(names)-1]))
			b.here[path] = true
			b.remove(path)
		}
	case "opaque":
		if b.tree[path] == tar.TypeDir && !b.touches(path) {
			b.add(dir(path))
			b.layer = append(b.layer, hide(path+"/.wh..wh..opq"))
			b.remove(path)
			b.tree[path] = tar.TypeDir
		}
	}
}

// extract is the tree that go-containerregistry makes of an image.
func extract(t testing.TB, img v1.Image) map[string]entry {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	all, links := map[string]entry{}, map[string]string{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := strings.TrimSuffix(h.Name, "/")
		if h.Typeflag == tar.TypeLink {
			links[path] = h.Linkname
			continue
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		mode := fs.FileMode(h.Mode & 0o777)
		switch h.Typeflag {
		case tar.TypeDir:
			mode |= fs.ModeDir
		case tar.TypeSymlink:
			mode = fs.ModeSymlink | 0o777
		}
		all[path] = entry{mode, uint32(h.Uid), uint32(h.Gid), h.ModTime.Unix(), string(content) + h.Linkname, ""}
	}
	for path, target := range links {
		all[path] = all[target]
	}
	return all
}

// flat is a tree in which every name of a file has its content.
func flat(all map[string]entry) map[string]entry {
	for path, e := range all {
		if e.Link != "" {
			all[path] = all[e.Link]
		}
	}
	return all
}

// Ordinary images become what another implementation makes of them.
func TestAgreesWithExtract(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := &builder{t: rt, tree: map[string]byte{}, ended: map[string]bool{}}
		var layers [][]byte
		for range rapid.IntRange(1, 5).Draw(rt, "layers") {
			b.layer, b.here = nil, map[string]bool{}
			for range rapid.IntRange(1, 12).Draw(rt, "steps") {
				b.step()
			}
			layers = append(layers, pack(t, b.layer...))
		}
		got, _ := unpacked(t, layers...)
		if diff := cmp.Diff(extract(t, compose(t, layers...)), flat(got)); diff != "" {
			rt.Errorf("(-go-containerregistry +ours):\n%s", diff)
		}
	})
}

// What fsck.erofs makes of an unpacked image is what our reader does.
func TestAgreesWithFsckErofs(t *testing.T) {
	fsck, err := exec.LookPath("fsck.erofs")
	if err != nil {
		t.Skip("fsck.erofs is not installed: install erofs-utils")
	}
	if os.Geteuid() != 0 {
		t.Skip("owners are unpacked by root only")
	}
	s, _ := open(t, image.Options{})
	got := get(t, s, onDisk(t, compose(t, pack(t,
		file("d/f", strings.Repeat("f", 10000)).with(func(h *tar.Header) { h.Uid, h.Gid, h.Mode = 5, 6, 0o640 }),
		hard("h", "d/f"), link("l", "d"), file("l/g", "g"), file("holes", strings.Repeat("\x00", 1<<20)+"end"), file("\xff", ""),
	))))
	out := filepath.Join(t.TempDir(), "out")
	if text, err := exec.Command(fsck, "--extract="+out, "--preserve", got.Path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	want, found := flat(read(t, got)), map[string]entry{}
	if err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		e := entry{Mode: info.Mode(), UID: st.Uid, GID: st.Gid, Mtime: info.ModTime().Unix()}
		switch d.Type() {
		case fs.ModeSymlink:
			e.Content, err = os.Readlink(path)
		case 0:
			var b []byte
			b, err = os.ReadFile(path)
			e.Content = string(b)
		}
		found[strings.TrimPrefix(strings.TrimPrefix(path, out), "/")] = e
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-ours +fsck.erofs):\n%s", diff)
	}
}
