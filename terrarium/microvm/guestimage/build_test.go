//go:build linux

package guestimage

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tendril/fault"
)

func TestKernelsInEachPacking(t *testing.T) {
	want := testKernel()
	for _, format := range []string{"gzip", "xz", "zstd", "lz4"} {
		t.Run(format, func(t *testing.T) {
			k, err := readKernel("it", bootImage(pack(t, format, want)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(k.elf, want) || k.release != release || !k.pvh {
				t.Errorf("read as %d bytes of %q, pvh %v", len(k.elf), k.release, k.pvh)
			}
		})
	}
	k, err := readKernel("it", kernelELF("Linux version "+release, false))
	if err != nil || k.pvh {
		t.Errorf("a kernel without the note was read with pvh %v (%v)", k.pvh, err)
	}
}

func TestKernelsThatAreNone(t *testing.T) {
	good := pack(t, "gzip", testKernel())
	lies := func(change func([]byte)) []byte {
		image := bootImage(good)
		change(image)
		return image
	}
	for name, c := range map[string]struct {
		data  []byte
		names string
	}{
		"nothing":           {nil, "neither an ELF file nor a Linux image"},
		"text":              {[]byte(strings.Repeat("kernel ", 1000)), "neither an ELF file nor a Linux image"},
		"another machine's": {elfFile(executable, arm, ".notes", []byte("Linux version 6.1.0 "), noted), "EM_AARCH64"},
		"a module":          {moduleThatNeeds(), "ET_REL"},
		"without a banner":  {kernelELF("Linux release", true), "which Linux it is"},
		"a banner of the build's": {elfFile(executable, x86, ".notes", []byte("Linux version %s (%s)"), noted),
			"which Linux it is"},
		"a payload beyond its end": {lies(func(b []byte) { binary.LittleEndian.PutUint32(b[payloadLength:], 1<<31) }), "is not in the file"},
		"a payload far away":       {lies(func(b []byte) { binary.LittleEndian.PutUint32(b[payloadOffset:], 1<<32-1) }), "is not in the file"},
		"no payload":               {lies(func(b []byte) { binary.LittleEndian.PutUint32(b[payloadLength:], 0) }), "is not in the file"},
		"an unknown packing":       {bootImage([]byte("\x89LZO and so on\x00\x01\x00\x00")), "no format that is read here"},
		"more than it says":        {bootImage(lengthOf(pack(t, "zstd", testKernel()), 10)), "too large"},
		"less than it says":        {bootImage(lengthOf(pack(t, "zstd", testKernel()), 1<<20)), "unpacks to"},
		"a bomb that says so":      {bootImage(lengthOf(pack(t, "zstd", testKernel()), 1<<31)), "too large"},
		"cut short":                {bootImage(good[:len(good)/2]), "reading the kernel"},
		"an lz4 block too long":    {bootImage([]byte(lz4Legacy + "\xff\xff\xff\x7f" + "12345678" + "\x00\x01\x00\x00")), "lz4 block"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			k, err := readKernel("it", c.data)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("read as Linux %q (%v), want a refusal that says %q", k.release, err, c.names)
			}
		})
	}
}

// lengthOf changes what a payload says about its length.
func lengthOf(payload []byte, n uint32) []byte {
	binary.LittleEndian.PutUint32(payload[len(payload)-4:], n)
	return payload
}

func TestModulesInOrder(t *testing.T) {
	mods, err := pickFrom(t, testModules())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mods {
		got = append(got, strings.TrimSpace(m.name+" "+m.carrier))
	}
	want := []string{
		"libcrc32c", "erofs", "overlay", "virtio", "virtio_ring", "virtio_blk", "virtio_rng",
		"virtio_console virtio-serial",
		"vsock vsock", "vmw_vsock_virtio_transport_common vsock", "vmw_vsock_virtio_transport vsock",
		"virtio_mmio",
	}
	if !slices.Equal(got, want) {
		t.Errorf("picked %q, want %q", got, want)
	}
}

func TestModulesMayBePacked(t *testing.T) {
	files := testModules()
	for name, data := range testModules() {
		if base, ok := moduleName(name); ok {
			delete(files, name)
			format, ending := "zstd", ".zst"
			if base == "erofs" {
				format, ending = "gzip", ".gz"
			}
			packed := pack(t, format, data)
			if format == "zstd" {
				packed = packed[:len(packed)-4]
			}
			files[name+ending] = packed
		}
	}
	mods, err := pickFrom(t, files)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mods {
		if !bytes.HasPrefix(m.content, []byte("\x7fELF")) {
			t.Errorf("the module %s stayed packed", m.name)
		}
	}
}

func TestModulesThatAreNot(t *testing.T) {
	dir := "lib/modules/" + release + "/"
	erofs := dir + "kernel/fs/erofs/erofs.ko"
	for name, c := range map[string]struct {
		change func(map[string][]byte)
		names  string
	}{
		"one is missing":               {func(m map[string][]byte) { delete(m, erofs) }, "has no erofs"},
		"one is needed by another":     {func(m map[string][]byte) { delete(m, dir+"kernel/lib/libcrc32c.ko") }, "as erofs depends on it"},
		"nobody knows what is builtin": {func(m map[string][]byte) { delete(m, dir+"modules.builtin") }, "no modules.builtin"},
		"a circle":                     {func(m map[string][]byte) { m[dir+"kernel/lib/libcrc32c.ko"] = moduleThatNeeds("erofs") }, "depends on itself"},
		"of another kernel":            {func(m map[string][]byte) { m[erofs] = moduleFile("vermagic=5.10.0 SMP") }, `for Linux "5.10.0"`},
		"of no kernel":                 {func(m map[string][]byte) { m[erofs] = moduleFile("license=GPL") }, `for Linux ""`},
		"of another machine": {func(m map[string][]byte) {
			m[erofs] = elfFile(relocatable, arm, ".modinfo", []byte("vermagic="+release+" "), loaded)
		}, "EM_AARCH64"},
		"something else":  {func(m map[string][]byte) { m[erofs] = elfFile(relocatable, x86, ".text", []byte("code"), loaded) }, "not a kernel module"},
		"text":            {func(m map[string][]byte) { m[erofs] = []byte("insmod me") }, "no format that is read here"},
		"a huge one":      {func(m map[string][]byte) { m[erofs] = make([]byte, maxModule+1) }, "too large"},
		"one that swells": {func(m map[string][]byte) { m[erofs] = pack(t, "gzip", make([]byte, maxModule+1)) }, "too large"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			files := testModules()
			c.change(files)
			mods, err := pickFrom(t, files)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("%d modules were picked (%v), want a refusal that says %q", len(mods), err, c.names)
			}
		})
	}
}

func pickFrom(t *testing.T, files map[string][]byte) ([]module, error) {
	t.Helper()
	tr := tree{files: map[string]func(int64) ([]byte, error){}}
	for name, data := range files {
		tr.files[name] = func(limit int64) ([]byte, error) { return readAll(bytes.NewReader(data), limit) }
	}
	return pickModules(tr, release)
}

// TestBuildFromEither: a package, and the same kernel and modules by themselves, make the
// same guest, and each time the same bytes.
func TestBuildFromEither(t *testing.T) {
	files := testPackage(t)
	deb := write(t, "linux-image.deb", debianPackage(t, files))
	kernel := write(t, "vmlinuz", files["boot/vmlinuz-"+release])
	modules := filepath.Join(writeTree(t, testModules()), "lib/modules", release)
	first := filepath.Join(t.TempDir(), "microvm")
	made, err := Build(t.Context(), Source{Package: deb}, first)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []Source{{Package: deb, Digest: made.Digest}, {Kernel: kernel, Modules: modules}} {
		dir := filepath.Join(t.TempDir(), "deeper", "microvm")
		again, err := Build(t.Context(), source, dir)
		if err != nil {
			t.Fatal(err)
		}
		if again.Kernel != made.Kernel || again.Modules != made.Modules || again.Release != release {
			t.Errorf("from %+v became %+v, and before %+v", source, again, made)
		}
	}
	described, err := Describe(first)
	if err != nil || described.Digest != made.Digest || !slices.Equal(described.Loads, made.Loads) {
		t.Errorf("described as %+v (%v)", described, err)
	}
}

func TestBuildRefuses(t *testing.T) {
	files := testPackage(t)
	deb := debianPackage(t, files)
	two := testPackage(t)
	two["boot/vmlinuz-6.2"] = two["boot/vmlinuz-"+release]
	none := testModules()
	damaged := bytes.Clone(deb)
	copy(damaged[len(arMagic)+48:], "99999999")
	for name, c := range map[string]struct {
		source Source
		names  string
	}{
		"nothing":               {Source{}, "is made from"},
		"both":                  {Source{Package: "x", Kernel: "y", Modules: "z"}, "is made from"},
		"a kernel alone":        {Source{Kernel: "x"}, "belong together"},
		"modules alone":         {Source{Package: "x", Modules: "z"}, "belong together"},
		"no such package":       {Source{Package: "/nowhere/x.deb"}, "no such file"},
		"a directory":           {Source{Package: "/"}, "is a directory"},
		"no package":            {Source{Package: write(t, "x", []byte("hello"))}, "not a Debian package"},
		"a damaged package":     {Source{Package: write(t, "x", damaged)}, "damaged"},
		"a package cut short":   {Source{Package: write(t, "x", deb[:len(deb)-200])}, "damaged"},
		"a package without":     {Source{Package: write(t, "x", arArchive(member{"debian-binary", []byte("2.0\n")}))}, "no data.tar"},
		"an unknown packing":    {Source{Package: write(t, "x", arArchive(member{"data.tar.lzo", []byte("whatever it is")}))}, "no format"},
		"another digest":        {Source{Package: write(t, "x", deb), Digest: "sha256:" + strings.Repeat("0", 64)}, "has the digest"},
		"a package of two":      {Source{Package: write(t, "x", debianPackage(t, two))}, "holds 2 kernels"},
		"a package of none":     {Source{Package: write(t, "x", debianPackage(t, none))}, "holds 0 kernels"},
		"modules not there":     {Source{Kernel: write(t, "k", testKernel()), Modules: "/nowhere"}, "no such file"},
		"another kernel digest": {Source{Kernel: write(t, "k", testKernel()), Modules: "/", Digest: "sha256:x"}, "has the digest"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "microvm")
			_, err := Build(t.Context(), c.source, dir)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("answered with %v, want a refusal that says %q", err, c.names)
			}
			if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
				t.Errorf("it left %v (%v)", left, err)
			}
		})
	}
}

// TestBuildReplaces: a new guest takes the old one's place as a whole, and one that fails
// leaves the old one.
func TestBuildReplaces(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "microvm")
	first := write(t, "one.deb", debianPackage(t, testPackage(t)))
	if _, err := Build(t.Context(), Source{Package: first}, dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kvm-qemu.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(t.Context(), Source{Package: write(t, "bad.deb", []byte("no"))}, dir); err == nil {
		t.Fatal("a bad package made a guest")
	}
	if m, err := Describe(dir); err != nil || m.Source != "one.deb" {
		t.Errorf("after a failure there is %+v (%v)", m, err)
	}
	if _, err := Build(t.Context(), Source{Package: write(t, "two.deb", debianPackage(t, testPackage(t)))}, dir); err != nil {
		t.Fatal(err)
	}
	if m, err := Describe(dir); err != nil || m.Source != "two.deb" {
		t.Errorf("after another there is %+v (%v)", m, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kvm-qemu.json")); err == nil {
		t.Error("what was found out with the old guest is still believed")
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
		t.Errorf("beside it there is %v (%v)", left, err)
	}
	for _, want := range []bool{true, false} {
		if there, err := Remove(dir); err != nil || there != want {
			t.Errorf("removing it: %v, %v", there, err)
		}
	}
}
