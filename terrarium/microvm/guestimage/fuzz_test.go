//go:build linux

package guestimage

import (
	"bytes"
	"io"
	"testing"
)

func FuzzReadKernel(f *testing.F) {
	f.Add(testKernel())
	f.Add(bootImage(pack(f, "gzip", testKernel())))
	f.Add(bootImage(pack(f, "lz4", testKernel())))
	f.Fuzz(func(t *testing.T, data []byte) {
		if k, err := readKernel("it", data); err == nil && (k.release == "" || len(k.elf) == 0) {
			t.Errorf("read as %q with %d bytes", k.release, len(k.elf))
		}
	})
}

func FuzzReadModuleInfo(f *testing.F) {
	f.Add(moduleThatNeeds("virtio", "virtio_ring"))
	f.Add(moduleFile("softdep=pre: a-b post: c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := readModuleInfo(data)
		if err == nil && len(info.depends) > len(data) {
			t.Errorf("%d bytes depend on %d modules", len(data), len(info.depends))
		}
	})
}

func FuzzPackage(f *testing.F) {
	f.Add(debianPackage(f, map[string][]byte{"boot/vmlinuz-1": []byte("x")}))
	f.Add(arArchive(member{"data.tar", nil}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := packedData(bytes.NewReader(data), int64(len(data))); err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
		}
	})
}
