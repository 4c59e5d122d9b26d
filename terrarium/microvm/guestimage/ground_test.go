//go:build linux

package guestimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const release = "6.1.0-9-test"

// elfFile is the smallest ELF file for x86-64 with one section of that name and content,
// and one program header for it.
func elfFile(kind, machine uint16, section string, content []byte, segment uint32) []byte {
	const header, program, sections = 64, 56, 64
	names := "\x00" + section + "\x00.shstrtab\x00"
	at := header + program
	tables := at + len(content) + len(names)
	var b bytes.Buffer
	le := func(values ...any) {
		for _, v := range values {
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				panic(err)
			}
		}
	}
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	le(kind, machine, uint32(1), uint64(0), uint64(header), uint64(tables), uint32(0))
	le(uint16(header), uint16(program), uint16(1), uint16(sections), uint16(3), uint16(2))
	le(segment, uint32(4), uint64(at), uint64(0), uint64(0), uint64(len(content)), uint64(len(content)), uint64(4))
	b.Write(content)
	b.WriteString(names)
	le(make([]byte, sections))
	le(uint32(1), uint32(1), uint64(0), uint64(0), uint64(at), uint64(len(content)), uint32(0), uint32(0), uint64(1), uint64(0))
	le(uint32(len(section)+2), uint32(3), uint64(0), uint64(0), uint64(at+len(content)), uint64(len(names)), uint32(0), uint32(0), uint64(1), uint64(0))
	return b.Bytes()
}

const (
	relocatable, executable = 1, 2
	x86, arm                = 62, 183
	loaded, noted           = 1, 4
)

// moduleFile is a module that says of itself what the pairs say.
func moduleFile(pairs ...string) []byte {
	return elfFile(relocatable, x86, ".modinfo", []byte(strings.Join(pairs, "\x00")+"\x00"), loaded)
}

func moduleThatNeeds(names ...string) []byte {
	return moduleFile("license=GPL", "depends="+strings.Join(names, ","), "vermagic="+release+" SMP mod_unload ")
}

// kernelFile is a kernel of that release, with or without a note of its entry.
func kernelELF(banner string, note bool) []byte {
	kind := uint32(7)
	if note {
		kind = 18
	}
	var b bytes.Buffer
	for _, n := range []uint32{6, kind} {
		for _, v := range []uint32{4, 8, n} {
			binary.Write(&b, binary.LittleEndian, v)
		}
		b.WriteString("Xen\x00" + "12345678")
	}
	b.WriteString("%s version %s\x00Linux version %s (%s)\x00" + banner + " (someone@somewhere)\x00")
	return elfFile(executable, x86, ".notes", b.Bytes(), noted)
}

func testKernel() []byte { return kernelELF("Linux version "+release, true) }

// bootImage is an image that unpacks itself.
func bootImage(payload []byte) []byte {
	image := make([]byte, 5*sector)
	image[setupSectors] = 4
	copy(image[headerMagic:], "HdrS")
	binary.LittleEndian.PutUint32(image[payloadOffset:], 16)
	binary.LittleEndian.PutUint32(image[payloadLength:], uint32(len(payload)))
	image = append(image, make([]byte, 16)...)
	image = append(image, payload...)
	return append(image, "what follows"...)
}

// pack compresses as the kernel's build does: the length follows, but for gzip, which has
// it already.
func pack(t testing.TB, format string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var err error
	length := binary.LittleEndian.AppendUint32(nil, uint32(len(data)))
	switch format {
	case "gzip":
		w := gzip.NewWriter(&b)
		w.Write(data)
		err = w.Close()
		length = nil
	case "zstd":
		var w *zstd.Encoder
		if w, err = zstd.NewWriter(&b); err == nil {
			w.Write(data)
			err = w.Close()
		}
	case "lz4":
		w := lz4.NewWriter(&b)
		if err = w.Apply(lz4.LegacyOption(true)); err == nil {
			w.Write(data)
			err = w.Close()
		}
	case "xz":
		if _, missing := exec.LookPath("xz"); missing != nil {
			t.Skipf("xz is not here: %v", missing)
		}
		cmd := exec.Command("xz", "--check=crc32", "--x86", "--lzma2=dict=32MiB")
		cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &b
		err = cmd.Run()
	default:
		t.Fatalf("no format %q", format)
	}
	if err != nil {
		t.Fatal(err)
	}
	return append(b.Bytes(), length...)
}

// testModules are a kernel's modules by path: those that the guest needs, and one that it
// does not.
func testModules() map[string][]byte {
	dir := "lib/modules/" + release + "/"
	return map[string][]byte{
		dir + "modules.builtin":                                           []byte("kernel/fs/ext4/ext4.ko\nkernel/lib/crc16.ko\n"),
		dir + "kernel/drivers/virtio/virtio.ko":                           moduleThatNeeds(),
		dir + "kernel/drivers/virtio/virtio_ring.ko":                      moduleThatNeeds("virtio"),
		dir + "kernel/drivers/virtio/virtio_mmio.ko":                      moduleThatNeeds("virtio", "virtio_ring"),
		dir + "kernel/drivers/block/virtio_blk.ko":                        moduleThatNeeds("virtio_ring", "virtio"),
		dir + "kernel/drivers/char/hw_random/virtio-rng.ko":               moduleThatNeeds("virtio", "virtio-ring"),
		dir + "kernel/drivers/char/virtio_console.ko":                     moduleThatNeeds("virtio", "virtio_ring"),
		dir + "kernel/drivers/net/virtio_net.ko":                          moduleThatNeeds("virtio", "virtio_ring", "failover"),
		dir + "kernel/fs/erofs/erofs.ko":                                  moduleThatNeeds("libcrc32c"),
		dir + "kernel/lib/libcrc32c.ko":                                   moduleFile("softdep=pre: crc32c crypto-crc32c post: nothing", "vermagic="+release+" SMP"),
		dir + "kernel/fs/overlayfs/overlay.ko":                            moduleThatNeeds(),
		dir + "kernel/net/vmw_vsock/vsock.ko":                             moduleThatNeeds(),
		dir + "kernel/net/vmw_vsock/vmw_vsock_virtio_transport_common.ko": moduleThatNeeds("vsock"),
		dir + "kernel/net/vmw_vsock/vmw_vsock_virtio_transport.ko":        moduleThatNeeds("vmw_vsock_virtio_transport_common", "virtio", "virtio_ring", "vsock"),
	}
}

// debianPackage is a package with those files.
func debianPackage(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	var data bytes.Buffer
	archive := tar.NewWriter(&data)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := archive.WriteHeader(&tar.Header{Name: "./" + name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		archive.Write(files[name])
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return arArchive(member{"debian-binary", []byte("2.0\n")}, member{"control.tar.gz", []byte("odd")}, member{"data.tar.gz", pack(t, "gzip", data.Bytes())})
}

type member struct {
	name string
	data []byte
}

func arArchive(members ...member) []byte {
	var b bytes.Buffer
	b.WriteString(arMagic)
	for _, m := range members {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.data))
		b.Write(m.data)
		if len(m.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

func testPackage(t testing.TB) map[string][]byte {
	files := testModules()
	files["boot/vmlinuz-"+release] = bootImage(pack(t, "gzip", testKernel()))
	files["boot/config-"+release] = []byte("CONFIG_PVH=y\n")
	files["etc/passwd"] = []byte("nothing of the guest's\n")
	return files
}

func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeTree(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// entries reads an archive as the kernel does: several may follow each other.
func entries(t testing.TB, data []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	r := bytes.NewReader(data)
	for {
		var header [110]byte
		if _, err := io.ReadFull(r, header[:]); err == io.EOF {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		if string(header[:6]) != "070701" {
			t.Fatalf("a header begins with %q", header[:6])
		}
		var mode, size, length int
		if _, err := fmt.Sscanf(string(header[14:22])+" "+string(header[54:62])+" "+string(header[94:102]), "%x %x %x", &mode, &size, &length); err != nil {
			t.Fatal(err)
		}
		name := make([]byte, length+(-(110+length)&3))
		content := make([]byte, size+(-size&3))
		if _, err := io.ReadFull(r, name); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, content); err != nil {
			t.Fatal(err)
		}
		found[string(name[:length-1])] = fmt.Sprintf("%o %s", mode, content[:size])
	}
}
