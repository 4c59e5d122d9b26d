package erofs_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tendril/erofs"
)

// open opens the image at path with our own reader.
func open(t testing.TB, path string) *erofs.Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	r, err := erofs.Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// walkImage reads an image with our own reader, in the form of readImage.
func walkImage(t testing.TB, path string) (all map[string]entry, order []string) {
	t.Helper()
	all = map[string]entry{}
	err := open(t, path).Walk(func(e *erofs.Entry) error {
		order = append(order, e.Path)
		got := entry{Mode: uint16(e.Mode.Perm()), UID: e.UID, GID: e.GID, Mtime: e.Time.Unix()}
		if e.Mode&fs.ModeSticky != 0 {
			got.Mode |= 0o1000
		}
		switch e.Mode.Type() {
		case fs.ModeDir:
			got.Mode |= 0o040000
		case fs.ModeSymlink:
			got.Mode |= 0o120000
			got.Content = e.Target
		case 0:
			got.Mode |= 0o100000
			content, err := io.ReadAll(e.Content())
			if err != nil || int64(len(content)) != e.Size {
				t.Errorf("%q has %d bytes of content and a size of %d: %v", e.Path, len(content), e.Size, err)
			}
			got.Content = string(content)
		}
		all[e.Path] = got
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, order
}

// fillEverything makes a tree of every kind of entry.
func fillEverything(t testing.TB, w *erofs.Writer) {
	t.Helper()
	other := &erofs.Owner{UID: 7, GID: 1 << 31}
	if err := errors.Join(
		w.Dir("", erofs.Attr{Perm: 0o751, Time: time.Unix(5, 6)}),
		w.Dir("tmp", erofs.Attr{Perm: 0o777 | fs.ModeSticky, Owner: other}),
		w.Dir("empty", erofs.Attr{Perm: 0o700}),
		w.Symlink("link", "../target", erofs.Attr{Owner: other, Time: time.Unix(1<<33, 999999999)}),
	); err != nil {
		t.Fatal(err)
	}
	file(t, w, "d/first", "linked", 0o640)
	file(t, w, "big", strings.Repeat("b", 3*erofs.BlockSize+1), 0o755)
	file(t, w, "nothing", "", 0o644)
	for _, name := range []string{"\n", "-rf", "\x01", ".-", "\xff\xfe"} {
		file(t, w, name, name, 0o644)
	}
	for i := range 1000 {
		file(t, w, fmt.Sprintf("wide/%s%03d", strings.Repeat("w", i%200), i), "", 0o644)
	}
	for _, link := range [][2]string{{"another", "d/first"}, {"z/one more", "d/first"}, {"link too", "link"}, {"wide/again", "another"}} {
		if err := w.Link(link[0], link[1]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReaderAgreesWithGVisor(t *testing.T) {
	path := build(t, func(w *erofs.Writer) { fillEverything(t, w) })
	want := readImage(t, path)
	if links := want["another"].Nlink; links != 4 {
		t.Errorf("a file with four names has %d links", links)
	}
	for path, e := range want {
		e.Nlink = 0
		want[path] = e
	}
	if tmp, link := want["tmp"], want["link"]; tmp.UID != 7 || link.GID != 1<<31 || want["empty"].UID != options.UID {
		t.Errorf("the owners of /tmp and a link are %+v and %+v", tmp, link)
	}
	got, order := walkImage(t, path)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the two readers differ (-gVisor +ours):\n%s", diff)
	}
	if !slices.IsSortedFunc(order, func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	}) {
		t.Errorf("the order of the walk is %q", order)
	}
	if out, err := fsck(t, path); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func fsck(t testing.TB, args ...string) ([]byte, error) {
	t.Helper()
	program, err := exec.LookPath("fsck.erofs")
	if err != nil {
		t.Skip("fsck.erofs is not installed: install erofs-utils")
	}
	return exec.Command(program, args...).CombinedOutput()
}

func TestLinksAreKept(t *testing.T) {
	path := build(t, func(w *erofs.Writer) { fillEverything(t, w) })
	links := map[string]string{}
	if err := open(t, path).Walk(func(e *erofs.Entry) error {
		if e.Link != "" {
			links[e.Path] = e.Link
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, order := walkImage(t, path); binary.LittleEndian.Uint64(raw[1024+16:]) != uint64(len(order)-len(links)) {
		t.Errorf("%d inodes for %d names, of which %d are further ones", binary.LittleEndian.Uint64(raw[1024+16:]), len(order), len(links))
	}
	want := map[string]string{"d/first": "another", "wide/again": "another", "z/one more": "another", "link too": "link"}
	if diff := cmp.Diff(want, links); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	for what, fill := range map[string]func(*erofs.Writer) error{
		"a missing file":      func(w *erofs.Writer) error { return w.Link("l", "d/none") },
		"a missing directory": func(w *erofs.Writer) error { return w.Link("l", "none/f") },
		"a directory":         func(w *erofs.Writer) error { return w.Link("l", "d") },
		"a bad name":          func(w *erofs.Writer) error { return w.Link("../l", "d/f") },
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "image"))
		if err != nil {
			t.Fatal(err)
		}
		w := erofs.New(f, options)
		file(t, w, "d/f", "", 0o644)
		if err := errors.Join(fill(w), f.Close()); err == nil {
			t.Errorf("a link to %s was taken", what)
		}
	}
}

// A tar of the tree, unpacked by tar(1), is the tree.
func TestWriteTar(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("owners are unpacked by root only")
	}
	image := build(t, func(w *erofs.Writer) { fillEverything(t, w) })
	var stream bytes.Buffer
	if err := erofs.WriteTar(&stream, open(t, image)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unpack := exec.Command("tar", "-C", dir, "--numeric-owner", "-xpf", "-")
	unpack.Stdin = &stream
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want, got := readImage(t, image), readDir(t, dir)
	for _, all := range []map[string]entry{want, got} {
		for path, e := range all {
			if e.Mode&0o170000 == 0o040000 {
				e.Nlink = 0 // of the file system's own choice
			}
			all[path] = e
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unpacked (-image +tar):\n%s", diff)
	}
	info, err := os.Lstat(filepath.Join(dir, "link"))
	if err != nil || info.ModTime().Nanosecond() != 999999999 {
		t.Errorf("the time of a link is %v: %v", info.ModTime(), err)
	}
}

func TestTarEndsWithTheFirstError(t *testing.T) {
	image := build(t, func(w *erofs.Writer) { file(t, w, "f", strings.Repeat("x", 1<<20), 0o644) })
	full := errors.New("full")
	if err := erofs.WriteTar(writerFunc(func([]byte) (int, error) { return 0, full }), open(t, image)); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// blocks is an image of which only the blocks are kept that hold anything.
type blocks map[int64][]byte

var nothing [erofs.BlockSize]byte

func (b blocks) WriteAt(p []byte, off int64) (int, error) {
	for done := 0; done < len(p); {
		at := off + int64(done)
		n := min(len(p)-done, int(erofs.BlockSize-at%erofs.BlockSize))
		block := b[at/erofs.BlockSize]
		if part := p[done : done+n]; block != nil || !bytes.Equal(part, nothing[:n]) {
			if block == nil {
				block = make([]byte, erofs.BlockSize)
				b[at/erofs.BlockSize] = block
			}
			copy(block[at%erofs.BlockSize:], part)
		}
		done += n
	}
	return len(p), nil
}

func (b blocks) ReadAt(p []byte, off int64) (int, error) {
	for done := 0; done < len(p); {
		at := off + int64(done)
		n := min(len(p)-done, int(erofs.BlockSize-at%erofs.BlockSize))
		if block := b[at/erofs.BlockSize]; block != nil {
			copy(p[done:done+n], block[at%erofs.BlockSize:])
		} else {
			clear(p[done : done+n])
		}
		done += n
	}
	return len(p), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// An image, and one file of it, may be larger than 32 bits can count, and are
// never held in memory.
func TestMoreThanFourGiB(t *testing.T) {
	if testing.Short() {
		t.Skip("9 GiB of zeros take seconds")
	}
	const large = 9 << 30 // above what the oldest field of a tar's header can say, too
	image := blocks{}
	w := erofs.New(image, options)
	if _, err := w.File("large", erofs.Attr{Perm: 0o644}, io.LimitReader(zeros{}, large)); err != nil {
		t.Fatal(err)
	}
	file(t, w, "z", "after it", 0o644)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(image) > 10 {
		t.Errorf("%d blocks hold something", len(image))
	}
	var sb [40]byte
	image.ReadAt(sb[:], 1024)
	r, err := erofs.Open(image, int64(binary.LittleEndian.Uint32(sb[36:]))*erofs.BlockSize)
	if err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	go func() { in.CloseWithError(erofs.WriteTar(in, r)) }()
	defer out.Close()
	sizes := map[string]int64{}
	for stream := tar.NewReader(out); ; {
		h, err := stream.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sizes[h.Name] = h.Size
		if h.Name == "z" {
			if content, err := io.ReadAll(stream); err != nil || string(content) != "after it" {
				t.Errorf("the file after the large one holds %q: %v", content, err)
			}
		}
	}
	if diff := cmp.Diff(map[string]int64{"./": 0, "large": large, "z": 8}, sizes); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
}
