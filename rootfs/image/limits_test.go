//go:build linux

package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/rootfs/image"
)

func gzipTo(t testing.TB, w io.Writer, content []byte) {
	t.Helper()
	z := gzip.NewWriter(w)
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

func zstdTo(t testing.TB, w io.Writer, content []byte) {
	t.Helper()
	z, err := zstd.NewWriter(w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// stored is a layer as it stands, with the digest of what it uncompresses to.
type storedLayer struct {
	v1.Layer
	diffID v1.Hash
}

func (l storedLayer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// composeStored is an image of one layer in a stored form.
func composeStored(t testing.TB, stored, plain []byte, kind types.MediaType) v1.Image {
	t.Helper()
	diffID, _, err := v1.SHA256(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(compose(t), storedLayer{static.NewLayer(stored, kind), diffID})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// How a layer is compressed is looked at.
func TestCompressions(t *testing.T) {
	plain := pack(t, file("f", strings.Repeat("compressed ", 1000)))
	var gz, zs, two bytes.Buffer
	gzipTo(t, &gz, plain)
	zstdTo(t, &zs, plain)
	gzipTo(t, &two, plain[:1000]) // a stream of several members, as eStargz has them
	gzipTo(t, &two, plain[1000:])
	for name, test := range map[string]struct {
		stored []byte
		kind   types.MediaType
	}{
		"none": {plain, types.OCIUncompressedLayer}, "gzip": {gz.Bytes(), types.OCILayer}, "zstd": {zs.Bytes(), types.OCILayerZStd},
		"docker": {gz.Bytes(), types.DockerLayer}, "members": {two.Bytes(), types.OCILayer}, "mislabelled": {zs.Bytes(), types.OCILayer},
		"docker zstd": {zs.Bytes(), "application/vnd.docker.image.rootfs.diff.tar.zstd"},
	} {
		s, _ := open(t, image.Options{})
		got := get(t, s, onDisk(t, composeStored(t, test.stored, plain, test.kind)))
		if !strings.HasPrefix(read(t, got)["f"].Content, "compressed ") {
			t.Errorf("%s: the file is %.20q", name, read(t, got)["f"].Content)
		}
	}
	for _, kind := range []types.MediaType{types.OCIRestrictedLayer, types.DockerForeignLayer, "application/vnd.oci.image.layer.v1.tar+gzip+encrypted", "text/plain"} {
		s, store := open(t, image.Options{})
		refused(t, s, store, onDisk(t, composeStored(t, gz.Bytes(), plain, kind)), fault.Invalid, string(kind))
	}
	for name, spoilt := range map[string][]byte{
		"gzip": append([]byte{0x1f, 0x8b}, plain...), "zstd": append([]byte{0x28, 0xb5, 0x2f, 0xfd}, plain...),
		"cut gzip": gz.Bytes()[:gz.Len()-4], "cut zstd": zs.Bytes()[:zs.Len()-4], "garbage after gzip": append(bytes.Clone(gz.Bytes()), "garbage"...),
		// A window of 3 GiB.
		"zstd window": {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xac, 0x01, 0x00, 0x00},
	} {
		t.Run("spoilt "+name, func(t *testing.T) {
			s, store := open(t, image.Options{})
			refused(t, s, store, onDisk(t, composeStored(t, spoilt, plain, types.OCILayer)), fault.Invalid, "layer 1")
		})
	}
}

// What is above a bound is refused by its number, and stops at it.
func TestBounds(t *testing.T) {
	small := image.Limits{Entries: 1000, Bytes: 1 << 20}
	var many, removed, implied []member
	for i := range 2000 {
		many = append(many, file(fmt.Sprintf("f%d", i), ""))
		removed = append(removed, hide(fmt.Sprintf(".wh.f%d", i)))
	}
	long := []member{link("l", strings.Repeat("d/../", 700))}
	for i := range 200 {
		long = append(long, file(fmt.Sprintf("l/f%d", i), ""))
	}
	for i := range 20 {
		implied = append(implied, file(fmt.Sprintf("%d/%sf", i, strings.Repeat("d/", 60)), ""))
	}
	zeros := make([]byte, 8<<20)
	plain := pack(t, file("bomb", string(zeros)))
	var gz, zs, gap bytes.Buffer
	gzipTo(t, &gz, plain)
	zstdTo(t, &zs, plain)
	gzipTo(t, &gap, append(pack(t, file("f", "")), zeros...)) // after the end of the tar
	header := pack(t, file("f", "").with(func(h *tar.Header) {
		h.Format, h.PAXRecords = tar.FormatPAX, map[string]string{"comment": strings.Repeat("c", 900<<10)}
	}))
	const entries, content = "more than 1000 entries", "more than 1048576 bytes"
	for name, test := range map[string]struct {
		img  v1.Image
		word string
	}{
		"entries":         {compose(t, pack(t, many...)), entries},
		"whiteouts":       {compose(t, pack(t, removed...)), entries},
		"implied parents": {compose(t, pack(t, implied...)), entries},
		"parents of one":  {compose(t, pack(t, append(many[:850:850], file(strings.Repeat("d/", 200)+"f", ""))...)), entries},
		"long ways":       {compose(t, pack(t, long...)), "more than 64000 steps"},
		"over layers":     {compose(t, pack(t, many[:600]...), pack(t, many[:600]...)), entries},
		"content":         {compose(t, pack(t, file("f", string(zeros[:1<<20+1])))), content},
		"content of two":  {compose(t, pack(t, file("f", string(zeros[:600<<10]))), pack(t, file("f", string(zeros[:600<<10])))), content},
		"gzip":            {composeStored(t, gz.Bytes(), plain, types.OCILayer), content},
		"zstd":            {composeStored(t, zs.Bytes(), plain, types.OCILayer), content},
		"after the end":   {composeStored(t, gap.Bytes(), plain, types.OCILayer), content},
		"headers":         {compose(t, bytes.Join([][]byte{header[:len(header)-1024], header}, nil)), content},
		"sparse":          {compose(t, sparseBomb(t)), content},
	} {
		t.Run(name, func(t *testing.T) {
			s, store := open(t, image.Options{Limits: small})
			refused(t, s, store, onDisk(t, test.img), fault.Invalid, test.word)
		})
	}
	s, store := open(t, image.Options{})
	layer := storedLayer{static.NewLayer(nil, types.OCIUncompressedLayer), v1.Hash{Algorithm: "sha256", Hex: zeroes[7:]}}
	img, err := mutate.AppendLayers(compose(t), slices.Repeat([]v1.Layer{layer}, 513)...)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, s, store, onDisk(t, img), fault.Invalid, "513 layers")
	img = configured(t, compose(t), func(c *v1.ConfigFile) { c.Author = strings.Repeat("x", 9<<20) })
	refused(t, s, store, onDisk(t, img), fault.Invalid, "configuration", "at most")
}

// sparseBomb is a file of 1 TiB in three blocks of a tar: in GNU's sparse format 1.0.
func sparseBomb(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	records := fmt.Sprintf("%s%s%s%s", record("GNU.sparse.major", "1"), record("GNU.sparse.minor", "0"),
		record("GNU.sparse.name", "sparse"), record("GNU.sparse.realsize", fmt.Sprint(int64(1)<<40)))
	for _, m := range []member{
		{&tar.Header{Typeflag: tar.TypeReg, Name: "x"}, records},
		{&tar.Header{Typeflag: tar.TypeReg, Name: "x", Mode: 0o644}, "1\n1099511627776\n0\n" + strings.Repeat("\x00", 512-18)},
	} {
		m.Size = int64(len(m.content))
		if err := w.WriteHeader(m.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, m.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer := b.Bytes()
	layer[156] = tar.TypeXHeader // which the writer keeps for itself
	return rename(t, layer, "x", "x")
}

// record is a record of a PAX header.
func record(key, value string) string {
	size := len(key) + len(value) + 3
	size += len(fmt.Sprint(size))
	if text := fmt.Sprintf("%d %s=%s\n", size, key, value); len(text) == size {
		return text
	}
	return fmt.Sprintf("%d %s=%s\n", size+1, key, value)
}

// Holes of a file cost no disk, in the store either.
func TestHoles(t *testing.T) {
	s, _ := open(t, image.Options{})
	got := get(t, s, onDisk(t, compose(t, pack(t, file("g", "g"), file("holes", string(make([]byte, 16<<20)))))))
	var st unix.Stat_t
	if err := unix.Stat(got.Path, &st); err != nil {
		t.Fatal(err)
	}
	if used := st.Blocks * 512; got.Size < 16<<20 || used > 4<<20 {
		t.Errorf("an image of %d bytes takes %d on the disk", got.Size, used)
	}
	if content := read(t, got)["holes"].Content; content != string(make([]byte, 16<<20)) {
		t.Error("the content is another")
	}
}

// A full disk is named, and leaves the store as it was.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	})
	store := filepath.Join(mount, "images")
	s, err := image.OpenStore(store, image.Options{User: sprout})
	if err != nil {
		t.Fatal(err)
	}
	noise := strings.Repeat("0123456789abcdef", 3<<16) // 3 MiB: the spool holds it, and the image does not fit beside it
	for _, img := range []v1.Image{compose(t, pack(t, file("f", noise))), compose(t, pack(t, file("f", noise), file("g", noise)))} {
		refused(t, s, store, onDisk(t, img), fault.Unavailable, "no space left", store)
	}
	get(t, s, onDisk(t, holding(t, "small")))
}
