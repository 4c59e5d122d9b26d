//go:build linux

package guestimage

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tendril/fault"
)

func TestWhatAptSays(t *testing.T) {
	for text, want := range map[string]string{
		"Package: linux-image-cloud-amd64\nDepends: linux-image-6.1.0-57-cloud-amd64 (= 6.1.192-3)\nSection: kernel\n": "linux-image-6.1.0-57-cloud-amd64",
		"Depends: initramfs-tools, linux-image-6.12.100+deb12-cloud-amd64 (= 1)\n":                                     "linux-image-6.12.100+deb12-cloud-amd64",
	} {
		if got, ok := kernelOf(text); !ok || got != want {
			t.Errorf("of %q the kernel is %q (%v), want %q", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "Package: linux-image-6.1\n", "Depends: linux-image-generic\n", "Depends: --option\n", "Suggests: linux-image-6.1\n"} {
		if got, ok := kernelOf(text); ok {
			t.Errorf("of %q the kernel is %q", text, got)
		}
	}
	sum := strings.Repeat("0a", 32)
	if got, ok := sumIn("Size: 5\nSHA256: " + sum + "\nDescription: x\n"); !ok || got != sum {
		t.Errorf("the digest is %q (%v)", got, ok)
	}
	for _, text := range []string{"", "SHA256: 0a\n", "SHA1: " + sum + "\n", " SHA256: " + sum + "\n"} {
		if got, ok := sumIn(text); ok {
			t.Errorf("of %q the digest is %q", text, got)
		}
	}
}

// TestDownload makes a guest of what apt fetches, where there is an apt that knows such a
// kernel.
func TestDownload(t *testing.T) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skipf("there is no apt: %v", err)
	}
	dir := t.TempDir()
	source, err := Download(t.Context(), dir)
	if err != nil {
		t.Skipf("this apt fetches no kernel: %v", err)
	}
	if !strings.HasPrefix(source.Digest, "sha256:") || filepath.Dir(source.Package) != dir {
		t.Fatalf("it fetched %+v", source)
	}
	made, err := Build(t.Context(), source, filepath.Join(dir, "microvm"))
	if err != nil {
		t.Fatal(err)
	}
	if made.Digest != source.Digest || !made.PVH {
		t.Errorf("it made %+v", made)
	}
}

func TestDownloadIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Download(ctx, t.TempDir()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("giving up is told as %v", err)
	}
}
