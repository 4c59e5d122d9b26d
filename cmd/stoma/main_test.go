//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxSize bounds the program that is copied into every Terrarium.
const maxSize = 4 << 20

func TestSize(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		out := filepath.Join(t.TempDir(), "stoma")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build for %s: %v\n%s", arch, err, b)
		}
		info, err := os.Stat(out)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() >= maxSize {
			t.Errorf("the Stoma for %s has %d bytes, want less than %d", arch, info.Size(), maxSize)
		}
	}
}

// TestDependencies keeps PID 1 small enough to be read: whatever it links runs
// with more privileges inside than the Sprout has.
func TestDependencies(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	ours := map[string]bool{
		"tendril/cmd/stoma": true, "tendril/fault": true, "tendril/ignore": true, "tendril/probe": true,
		"tendril/stoma": true, "tendril/stoma/guest": true,
	}
	for _, pkg := range strings.Fields(string(out)) {
		first, _, _ := strings.Cut(pkg, "/")
		switch {
		case ours[pkg]:
			delete(ours, pkg)
		case first == "tendril":
			t.Errorf("the Stoma links %s: it is made of the protocol, its guest half and the probes", pkg)
		case strings.HasPrefix(pkg, "golang.org/x/sys/"), strings.HasPrefix(pkg, "vendor/golang.org/x/"):
		case strings.Contains(first, "."):
			t.Errorf("the Stoma links %s: it is made of the standard library and golang.org/x/sys", pkg)
		case pkg == "net", pkg == "os/exec":
			t.Errorf("the Stoma links %s, which PID 1 has no use for", pkg)
		}
	}
	for pkg := range ours {
		t.Errorf("the Stoma does not link %s any more: take it off the list", pkg)
	}
}
