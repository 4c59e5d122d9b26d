//go:build linux

package guestimage

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tendril/fault"
)

func built(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "microvm")
	if _, err := Build(t.Context(), Source{Package: write(t, "x.deb", debianPackage(t, testPackage(t)))}, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOpenMakesTheInitramfs(t *testing.T) {
	dir := built(t)
	stoma := write(t, "stoma", []byte("the program"))
	g, err := Open(dir, stoma)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(g.Initramfs)
	if err != nil {
		t.Fatal(err)
	}
	found := entries(t, data)
	for name, want := range map[string]string{
		"init": "100755 the program", "dev": "40755 ", "dev/console": "20600 ", "proc": "40755 ", "sys": "40755 ", "root": "40755 ", "modules": "40700 ",
		"modules/list": "100600 libcrc32c\nerofs\noverlay\nvirtio\nvirtio_ring\nvirtio_blk\nvirtio_rng\nvirtio_console virtio-serial\n" +
			"vsock vsock\nvmw_vsock_virtio_transport_common vsock\nvmw_vsock_virtio_transport vsock\nvirtio_mmio\n",
		"modules/erofs.ko": "100600 " + string(moduleThatNeeds("libcrc32c")),
	} {
		if found[name] != want {
			t.Errorf("%s is %.200q, want %.200q", name, found[name], want)
		}
	}
	for name := range found {
		if strings.Contains(name, "virtio_net") {
			t.Errorf("there is a module that the guest does not need: %s", name)
		}
	}
	again, err := Open(dir, stoma)
	if err != nil || again.Initramfs != g.Initramfs || again.Digest != g.Digest {
		t.Errorf("opened again it is %+v (%v)", again, err)
	}
	other, err := Open(dir, write(t, "stoma", []byte("another program")))
	if err != nil || other.Initramfs == g.Initramfs || other.Digest == g.Digest {
		t.Errorf("with another Stoma it is %+v (%v)", other, err)
	}
	if _, err := os.Stat(g.Initramfs); err == nil {
		t.Error("the initramfs of the Stoma before is still there")
	}
}

// TestOpenRefusesWhatChanged: nothing boots that is not what was made.
func TestOpenRefusesWhatChanged(t *testing.T) {
	stoma := write(t, "stoma", []byte("the program"))
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string, g Guest)
		names  string
	}{
		"the kernel":      {func(t *testing.T, dir string, g Guest) { flip(t, g.Kernel) }, "vmlinux is not what was made"},
		"a longer kernel": {func(t *testing.T, dir string, g Guest) { lengthen(t, g.Kernel) }, "vmlinux is not what was made"},
		"no kernel":       {func(t *testing.T, dir string, g Guest) { remove(t, g.Kernel) }, "vmlinux is not what was made"},
		"the modules":     {func(t *testing.T, dir string, g Guest) { flip(t, filepath.Join(dir, modulesFile)) }, "modules.cpio is not what was made"},
		"more modules":    {func(t *testing.T, dir string, g Guest) { lengthen(t, filepath.Join(dir, modulesFile)) }, "modules.cpio is not what was made"},
		"the initramfs":   {func(t *testing.T, dir string, g Guest) { flip(t, g.Initramfs) }, ".cpio is not what was made"},
		"no manifest":     {func(t *testing.T, dir string, g Guest) { remove(t, filepath.Join(dir, manifestFile)) }, "no guest"},
		"another manifest": {func(t *testing.T, dir string, g Guest) {
			replaceIn(t, filepath.Join(dir, manifestFile), `"version": 1`, `"version": 2`)
		}, "another tendril"},
		"a manifest with more": {func(t *testing.T, dir string, g Guest) {
			replaceIn(t, filepath.Join(dir, manifestFile), `"version"`, `"extra": 1, "version"`)
		}, "another tendril"},
		"a manifest of nothing": {func(t *testing.T, dir string, g Guest) { replaceIn(t, filepath.Join(dir, manifestFile), `{`, ``) }, "another tendril"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			dir := built(t)
			g, err := Open(dir, stoma)
			if err != nil {
				t.Fatal(err)
			}
			c.change(t, dir, g)
			if _, err := Open(dir, stoma); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("answered with %v, want a refusal that says %q", err, c.names)
			}
		})
	}
}

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, path string) {
	edit(t, path, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
}

func lengthen(t *testing.T, path string) {
	edit(t, path, func(b []byte) []byte { return append(b, 0) })
}

func replaceIn(t *testing.T, path, old, new string) {
	edit(t, path, func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(new), 1) })
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
