package erofs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gvisor "gvisor.dev/gvisor/pkg/erofs"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"

	"tendril/erofs"
)

var options = erofs.Options{UID: 70707, GID: 70708, Time: time.Unix(1_700_000_000, 5)}

// entry is what a reader of an image sees.
type entry struct {
	Mode    uint16
	UID     uint32
	GID     uint32
	Mtime   int64
	Nlink   uint32
	Content string
}

// build writes an image with fill and returns its path.
func build(t testing.TB, fill func(*erofs.Writer)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := erofs.New(f, options)
	fill(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if info.Size()%erofs.BlockSize != 0 {
		t.Errorf("the image has %d bytes, which is no multiple of a block", info.Size())
	}
	return path
}

func file(t testing.TB, w *erofs.Writer, path, content string, perm fs.FileMode) {
	t.Helper()
	n, err := w.File(path, erofs.Attr{Perm: perm}, strings.NewReader(content))
	if err != nil || n != int64(len(content)) {
		t.Fatalf("File(%.40q) = %d, %v", path, n, err)
	}
}

// readImage reads an image back with gVisor's own reader, and checks on the way
// that a lookup finds every name that a listing shows.
func readImage(t testing.TB, path string) map[string]entry {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	image, err := gvisor.OpenImage(f)
	if err != nil {
		t.Fatalf("gVisor does not take the image: %v", err)
	}
	defer image.Close()
	all := map[string]entry{}
	var walk func(path string, nid, parent uint64)
	walk = func(path string, nid, parent uint64) {
		if nid == 0 {
			t.Errorf("%q has inode number 0, which readdir hides", path)
		}
		node, err := image.Inode(nid)
		if err != nil {
			t.Fatalf("inode of %q: %v", path, err)
		}
		e := entry{Mode: node.Mode(), UID: node.UID(), GID: node.GID(), Mtime: int64(node.Mtime()), Nlink: node.Nlink()}
		switch {
		case node.IsDir():
			var names []string
			err := node.IterDirents(func(name string, typ uint8, child uint64) error {
				names = append(names, name)
				if found, err := node.Lookup(name); err != nil || found != child {
					t.Errorf("lookup of %q in %q = %d, %v; the listing says %d", name, path, found, err, child)
				}
				switch name {
				case ".":
					if child != nid {
						t.Errorf("%q: . is %d, want %d", path, child, nid)
					}
				case "..":
					if child != parent {
						t.Errorf("%q: .. is %d, want %d", path, child, parent)
					}
				default:
					walk(strings.TrimPrefix(path+"/"+name, "/"), child, nid)
				}
				return nil
			})
			if err != nil {
				t.Fatalf("list %q: %v", path, err)
			}
			if !slices.IsSorted(names) {
				t.Errorf("the entries of %q are not sorted", path)
			}
			if _, err := node.Lookup("no such name"); !linuxerr.Equals(linuxerr.ENOENT, err) {
				t.Errorf("lookup of an absent name in %q: %v", path, err)
			}
		case node.IsSymlink():
			if e.Content, err = node.Readlink(); err != nil {
				t.Fatalf("readlink %q: %v", path, err)
			}
		default:
			ranges, err := node.DataRanges()
			if err != nil {
				t.Fatalf("data of %q: %v", path, err)
			}
			if node.Size() > 0 {
				off, err := node.DataOffset()
				if err != nil || off%erofs.BlockSize != 0 {
					t.Errorf("data of %q is at %d (%v): it cannot be mapped", path, off, err)
				}
			}
			e.Content = string(ranges[0].Bytes) + string(ranges[1].Bytes)
		}
		all[path] = e
	}
	walk("", image.RootNid(), image.RootNid())
	return all
}

func TestImage(t *testing.T) {
	long := strings.Repeat("n", erofs.MaxNameLen)
	target := strings.Repeat("t/", erofs.MaxSymlinkLen/2)
	page := strings.Repeat("p", erofs.BlockSize)
	path := build(t, func(w *erofs.Writer) {
		file(t, w, "implied/deep/file", "content", 0o644)
		if err := w.Dir("implied", erofs.Attr{Perm: 0o700, Time: time.Unix(7, 0)}); err != nil {
			t.Fatal(err)
		}
		if err := w.Dir("empty", erofs.Attr{Perm: 0o755}); err != nil {
			t.Fatal(err)
		}
		file(t, w, "run", "#!/bin/sh\n", 0o755)
		file(t, w, "nothing", "", 0o644)
		file(t, w, "page", page, 0o644)
		file(t, w, "page and one", page+"x", 0o644)
		// These sort before ".", and between "." and "..".
		for _, name := range []string{"\n", "-rf", "\x01", ".-", "\xff\xfe", "line\nbreak", long} {
			file(t, w, name, name, 0o644)
		}
		if err := w.Symlink("link", target, erofs.Attr{}); err != nil {
			t.Fatal(err)
		}
		for i := range 1000 { // several blocks of entries
			file(t, w, fmt.Sprintf("wide/%s%03d", strings.Repeat("w", i%200), i), "", 0o644)
		}
	})
	got := readImage(t, path)
	base := entry{UID: options.UID, GID: options.GID, Mtime: options.Time.Unix(), Nlink: 1}
	for name, change := range map[string]func(*entry){
		"":                  func(e *entry) { e.Mode, e.Nlink = 0o040755, 5 },
		"empty":             func(e *entry) { e.Mode, e.Nlink = 0o040755, 2 },
		"implied":           func(e *entry) { e.Mode, e.Nlink, e.Mtime = 0o040700, 3, 7 },
		"implied/deep":      func(e *entry) { e.Mode, e.Nlink = 0o040755, 2 },
		"implied/deep/file": func(e *entry) { e.Mode, e.Content = 0o100644, "content" },
		"run":               func(e *entry) { e.Mode, e.Content = 0o100755, "#!/bin/sh\n" },
		"nothing":           func(e *entry) { e.Mode = 0o100644 },
		"page":              func(e *entry) { e.Mode, e.Content = 0o100644, page },
		"page and one":      func(e *entry) { e.Mode, e.Content = 0o100644, page+"x" },
		"\n":                func(e *entry) { e.Mode, e.Content = 0o100644, "\n" },
		"-rf":               func(e *entry) { e.Mode, e.Content = 0o100644, "-rf" },
		".-":                func(e *entry) { e.Mode, e.Content = 0o100644, ".-" },
		"\xff\xfe":          func(e *entry) { e.Mode, e.Content = 0o100644, "\xff\xfe" },
		"line\nbreak":       func(e *entry) { e.Mode, e.Content = 0o100644, "line\nbreak" },
		long:                func(e *entry) { e.Mode, e.Content = 0o100644, long },
		"link":              func(e *entry) { e.Mode, e.Content = 0o120777, target },
	} {
		want := base
		change(&want)
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", name, diff)
		}
	}
	if want := 3 + 1 + 1 + 4 + 7 + 1 + 1 + 1000; len(got) != want {
		t.Errorf("the image has %d entries, want %d", len(got), want)
	}
	t.Run("fsck.erofs", func(t *testing.T) {
		fsck, err := exec.LookPath("fsck.erofs")
		if err != nil {
			t.Skip("fsck.erofs is not installed")
		}
		if out, err := exec.Command(fsck, path).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("kernel", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("mounting needs root")
		}
		dir := t.TempDir()
		if out, err := exec.Command("mount", "-t", "erofs", "-o", "loop,ro", path, dir).CombinedOutput(); err != nil {
			t.Skipf("the kernel does not mount here: %v: %s", err, out)
		}
		defer func() {
			if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
				t.Errorf("umount: %v: %s", err, out)
			}
		}()
		if diff := cmp.Diff(got, readDir(t, dir)); diff != "" {
			t.Errorf("the kernel reads it differently (-gVisor +kernel):\n%s", diff)
		}
	})
}

// readDir reads a mounted image.
func readDir(t *testing.T, root string) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		e := entry{Mode: uint16(st.Mode), UID: st.Uid, GID: st.Gid, Mtime: st.Mtim.Sec, Nlink: uint32(st.Nlink)}
		switch {
		case d.Type() == fs.ModeSymlink:
			e.Content, err = os.Readlink(path)
		case d.Type().IsRegular():
			var b []byte
			b, err = os.ReadFile(path)
			e.Content = string(b)
		}
		all[strings.TrimPrefix(strings.TrimPrefix(path, root), "/")] = e
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRefusals(t *testing.T) {
	for name, fill := range map[string]func(*erofs.Writer) error{
		"empty":      func(w *erofs.Writer) error { return addFile(w, "") },
		"absolute":   func(w *erofs.Writer) error { return addFile(w, "/etc/passwd") },
		"dot":        func(w *erofs.Writer) error { return addFile(w, "a/./b") },
		"dotdot":     func(w *erofs.Writer) error { return addFile(w, "a/../b") },
		"slashes":    func(w *erofs.Writer) error { return addFile(w, "a//b") },
		"trailing":   func(w *erofs.Writer) error { return addFile(w, "a/") },
		"nul":        func(w *erofs.Writer) error { return addFile(w, "a\x00b") },
		"long":       func(w *erofs.Writer) error { return addFile(w, strings.Repeat("n", erofs.MaxNameLen+1)) },
		"no target":  func(w *erofs.Writer) error { return w.Symlink("l", "", erofs.Attr{}) },
		"far target": func(w *erofs.Writer) error { return w.Symlink("l", strings.Repeat("t", 4096), erofs.Attr{}) },
		"twice": func(w *erofs.Writer) error {
			return errors.Join(addFile(w, "a"), addFile(w, "a"), w.Close())
		},
		"file and directory": func(w *erofs.Writer) error {
			return errors.Join(addFile(w, "a"), addFile(w, "a/b"), w.Close())
		},
		"directory twice": func(w *erofs.Writer) error {
			return errors.Join(w.Dir("a", erofs.Attr{}), w.Dir("a", erofs.Attr{}))
		},
		"content fails": func(w *erofs.Writer) error {
			_, err := w.File("a", erofs.Attr{}, io.MultiReader(strings.NewReader("x"), failing{}))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "image"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			w := erofs.New(f, options)
			if err := fill(w); err == nil {
				t.Fatal("was taken")
			}
			if err := w.Close(); err == nil {
				t.Error("Close made an image out of half an entry")
			}
		})
	}
}

func addFile(w *erofs.Writer, path string) error {
	_, err := w.File(path, erofs.Attr{}, strings.NewReader("x"))
	return err
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the source failed") }

// TestRandomTrees compares arbitrary names and sizes with gVisor's reader, and
// two runs of the writer with each other.
func TestRandomTrees(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		want := map[string]string{}
		var order []string
		for range rnd.IntN(200) {
			path := make([]string, 1+rnd.IntN(3))
			for i := range path {
				name := make([]byte, 1+rnd.IntN(2))
				for j := range name {
					name[j] = byte(1 + rnd.IntN(255))
				}
				path[i] = "d" + strings.ReplaceAll(string(name), "/", "_")
			}
			path[len(path)-1] = "f" + path[len(path)-1][1:]
			p := strings.Join(path, "/")
			if _, ok := want[p]; !ok {
				order = append(order, p)
			}
			want[p] = strings.Repeat("c", rnd.IntN(3*erofs.BlockSize))
		}
		fill := func(w *erofs.Writer) {
			for _, p := range order {
				file(t, w, p, want[p], 0o644)
			}
		}
		image := build(t, fill)
		got := map[string]string{}
		for p, e := range readImage(t, image) {
			if e.Mode&0o170000 == 0o100000 {
				got[p] = e.Content
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		first, err1 := os.ReadFile(image)
		second, err2 := os.ReadFile(build(t, fill))
		if err1 != nil || err2 != nil || !bytes.Equal(first, second) {
			t.Fatal("the same calls gave different bytes", err1, err2)
		}
	}
}
