package erofs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"tendril/erofs"
)

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
