package erofs_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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

// TestDamagedImages: each is refused for what is wrong with it, and not read.
func TestDamagedImages(t *testing.T) {
	// The numbers of the inodes are those of a walk in breadth.
	const root, a, b, f, g, x = 1, 2, 3, 4, 5, 6
	whole, err := os.ReadFile(build(t, func(w *erofs.Writer) {
		if err := errors.Join(w.Dir("a", erofs.Attr{}), w.Dir("b", erofs.Attr{}), w.Symlink("g", "f", erofs.Attr{})); err != nil {
			t.Fatal(err)
		}
		file(t, w, "f", strings.Repeat("f", 3*erofs.BlockSize), 0o644)
		file(t, w, "a/x", "x", 0o644)
	}))
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	meta := int(le.Uint32(whole[1024+40:])) * erofs.BlockSize
	inode := func(image []byte, n int) []byte { return image[meta+64*n:][:64] }
	data := func(image []byte, n int) []byte { return image[int(le.Uint32(inode(image, n)[16:]))*erofs.BlockSize:] }
	// The entries of the root are ".", "..", "a", "b", "f" and "g"; their names follow.
	const names = 6 * 12
	for name, test := range map[string]struct {
		change func(image []byte)
		word   string
	}{
		"magic":              {func(i []byte) { i[1024] ^= 1 }, "no EROFS"},
		"feature":            {func(i []byte) { i[1024+80] = 1 }, "features"},
		"blocks":             {func(i []byte) { i[1024+36]++ }, "blocks"},
		"root":               {func(i []byte) { le.PutUint16(i[1024+14:], 2*f) }, "mode"},
		"table outside":      {func(i []byte) { le.PutUint32(i[1024+40:], 1<<31) }, "outside"},
		"number":             {func(i []byte) { le.PutUint64(data(i, root)[4*12:], 1<<40) }, "no inode"},
		"odd number":         {func(i []byte) { data(i, root)[4*12]++ }, "no inode"},
		"compressed":         {func(i []byte) { inode(i, f)[0] = 3 }, "form"},
		"setuid":             {func(i []byte) { inode(i, f)[5] |= 0o4000 >> 8 }, "mode"},
		"type":               {func(i []byte) { data(i, root)[4*12+10] = 7 }, "mode"},
		"device":             {func(i []byte) { data(i, root)[4*12+10] = 3 }, "type 3"},
		"size":               {func(i []byte) { le.PutUint64(inode(i, f)[8:], 1<<40) }, "outside"},
		"negative size":      {func(i []byte) { le.PutUint64(inode(i, f)[8:], 1<<63+1<<40) }, "outside"},
		"data outside":       {func(i []byte) { le.PutUint32(inode(i, f)[16:], 1<<31) }, "outside"},
		"superblock as data": {func(i []byte) { le.PutUint32(inode(i, f)[16:], 0) }, "outside"},
		"nanoseconds":        {func(i []byte) { le.PutUint32(inode(i, f)[40:], 1e9) }, "time"},
		"seconds":            {func(i []byte) { le.PutUint64(inode(i, f)[32:], 1<<63) }, "time"},
		"shared data": {func(i []byte) {
			for _, n := range []int{x, f} {
				le.PutUint64(inode(i, n)[8:], uint64(len(i)-erofs.BlockSize))
				le.PutUint32(inode(i, n)[16:], 1)
			}
		}, "more than the image has"},
		"directory in itself": {func(i []byte) { le.PutUint64(data(i, a)[2*12:], 2*a); data(i, a)[2*12+10] = 2 }, "two names"},
		"two names":           {func(i []byte) { le.PutUint64(data(i, root)[3*12:], 2*a) }, "two names"},
		"order":               {func(i []byte) { data(i, root)[names+3] = 'g' }, "sorted"},
		"name twice":          {func(i []byte) { data(i, root)[names+3] = 'b' }, "sorted"},
		"slash":               {func(i []byte) { data(i, root)[names+3] = '/' }, `"/"`},
		"dot":                 {func(i []byte) { le.PutUint64(data(i, root), 2*a) }, `"."`},
		"no dots":             {func(i []byte) { le.PutUint64(inode(i, b)[8:], 0) }, "own entries"},
		"name outside":        {func(i []byte) { le.PutUint16(data(i, root)[12+8:], 5000) }, "no name"},
		"names first":         {func(i []byte) { le.PutUint16(data(i, root)[8:], 7) }, "names of a block"},
		"empty link":          {func(i []byte) { le.PutUint64(inode(i, g)[8:], 0) }, "target"},
		"NUL in a link":       {func(i []byte) { data(i, g)[0] = 0 }, "NUL"},
	} {
		image := slices.Clone(whole)
		test.change(image)
		sum(image)
		r, err := erofs.Open(within{t, image}, int64(len(image)))
		if err == nil {
			err = r.Walk(func(e *erofs.Entry) error {
				_, err := io.Copy(io.Discard, e.Content())
				return err
			})
		}
		if err == nil || !strings.Contains(err.Error(), test.word) {
			t.Errorf("%s: the error is %v, want %q in it", name, err, test.word)
		}
	}
	spoilt := slices.Clone(whole)
	spoilt[1024+24]++
	if _, err := erofs.Open(bytes.NewReader(spoilt), int64(len(spoilt))); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a changed superblock: %v", err)
	}
	for _, n := range []int{0, 100, erofs.BlockSize, len(whole) - 1} {
		if _, err := erofs.Open(bytes.NewReader(whole[:n]), int64(n)); err == nil {
			t.Errorf("the first %d bytes of an image were taken", n)
		}
	}
}

// sum gives an image a superblock checksum that is right again.
func sum(image []byte) {
	if len(image) < erofs.BlockSize {
		return
	}
	sb := image[1024:erofs.BlockSize]
	clear(sb[4:8])
	binary.LittleEndian.PutUint32(sb[4:], ^crc32.Checksum(sb, crc32.MakeTable(crc32.Castagnoli)))
}

// FuzzReader: whatever the bytes are, a walk ends, stays inside of the image, and
// yields no more than it holds.
func FuzzReader(f *testing.F) {
	small, err := os.ReadFile(build(f, func(w *erofs.Writer) {
		file(f, w, "d/e/f", "content", 0o644)
		file(f, w, "g", strings.Repeat("g", 5000), 0o644)
		if err := errors.Join(w.Symlink("l", "g", erofs.Attr{}), w.Link("h", "g")); err != nil {
			f.Fatal(err)
		}
	}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(small, uint16(0), byte(0))
	for _, off := range []uint16{1024 + 14, 1024 + 16, 1024 + 36, 1024 + 40, 4096, 8192, 16384 + 10, 20480 + 8, 24576 + 64, 24576 + 72, 24576 + 80} {
		f.Add(small, off, byte(0xff))
	}
	f.Fuzz(func(t *testing.T, image []byte, at uint16, x byte) {
		image = slices.Clone(image)
		if int(at) < len(image) {
			image[at] ^= x
		}
		sum(image)
		r, err := erofs.Open(within{t, image}, int64(len(image)))
		if err != nil {
			return
		}
		total := int64(0)
		err = r.Walk(func(e *erofs.Entry) error {
			if total++; total > int64(len(image)) {
				t.Fatal("the walk yields more names than the image has bytes")
			}
			if e.Path != "" && (!fs.ValidPath(e.Path) && !strings.ContainsFunc(e.Path, func(r rune) bool { return r == '\uFFFD' })) {
				t.Errorf("the walk yields the path %q", e.Path)
			}
			if e.Link == "" {
				if _, err := io.Copy(io.Discard, e.Content()); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		counted := int64(0)
		tarErr := erofs.WriteTar(writerFunc(func(p []byte) (int, error) {
			counted += int64(len(p))
			return len(p), nil
		}), r)
		if (err == nil) != (tarErr == nil) && err != nil {
			t.Errorf("a walk says %v, and a tar %v", err, tarErr)
		}
		if limit := int64(len(image)) + total*8*4096 + 4096; counted > limit {
			t.Errorf("the tar of an image of %d bytes and %d names has %d", len(image), total, counted)
		}
	})
}

// within fails a test that reads outside of the image.
type within struct {
	t     testing.TB
	image []byte
}

func (w within) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(w.image)) {
		w.t.Errorf("read of %d bytes at %d of %d", len(p), off, len(w.image))
	}
	return bytes.NewReader(w.image).ReadAt(p, off)
}
