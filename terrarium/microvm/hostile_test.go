//go:build linux

package microvm

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tendril/fault"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

// hostileGuest is the wall with a guest whose first process does something else than the
// Stoma. It has so much time to start.
func hostileGuest(t *testing.T, mode string, patience time.Duration) *provider {
	t.Helper()
	p := emulated(t)
	program, guest := buildHostile(t, mode), copyGuest(t, p.Guest)
	q := p.machine.(qemu)
	q.patience = patience
	return &provider{Config: Config{Program: p.Program, Stoma: program, Guest: guest}, machine: q}
}

func buildHostile(t testing.TB, mode string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "hostile")
	build(t, program, "./testdata/hostile", "-X 'main.mode="+mode+"'")
	return program
}

// build builds a static program of this module.
func build(t testing.TB, program, of, flags string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("this test builds a program: %v", err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w "+flags, "-o", program, of)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", of, err, out)
	}
}

// copyGuest makes a guest of a test's own: the one that is shared stays as it is.
func copyGuest(t testing.TB, from string) string {
	t.Helper()
	guest := filepath.Join(t.TempDir(), "guest")
	if err := os.CopyFS(guest, os.DirFS(from)); err != nil {
		t.Fatalf("copying the guest: %v", err)
	}
	return guest
}

// TestHostileGuestsAreNamedAndEnded: whatever a guest does instead of what it is there for
// ends within its deadline, is told, and leaves nothing.
func TestHostileGuestsAreNamedAndEnded(t *testing.T) {
	const short, long = 8 * time.Second, emulatedBootTime
	for _, c := range []struct {
		mode     string
		patience time.Duration
		kind     fault.Kind
		names    string
	}{
		{"stall", short, fault.Unavailable, "did not start within 8s"},
		{"flood the console", short, fault.Unavailable, "did not start within 8s"},
		{"exit", long, fault.Unavailable, "Attempted to kill init"},
		{"garbage", long, fault.BrokenBoundary, "broke the protocol"},
		{"flood the stream", long, fault.BrokenBoundary, "broke the protocol"},
		{"another version", long, fault.BrokenBoundary, "speaks version 99"},
		{"silent after hello", short, fault.Unavailable, "did not start within 8s"},
		{"lies about memory", long, fault.BrokenBoundary, "bytes of memory"},
		{"lies about disk", long, fault.BrokenBoundary, "bytes of scratch"},
		{"lies about processes", long, fault.BrokenBoundary, "Pids"},
		{"lies about sizes", long, fault.BrokenBoundary, "broke the protocol"},
	} {
		t.Run(strings.ReplaceAll(c.mode, " ", "-"), func(t *testing.T) {
			p := hostileGuest(t, c.mode, c.patience)
			spec := specFor(t, "hostile")
			start := time.Now()
			opened, err := terrarium.Validated(p).Open(t.Context(), spec)
			if err == nil {
				closed(t, opened)
				t.Fatal("it was taken for a Terrarium")
			}
			t.Log(err)
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("told as %s: %v; want %s that says %q", fault.KindOf(err), err, c.kind, c.names)
			}
			if len(err.Error()) > 4*diagnosisKept || strings.ContainsRune(err.Error(), 0x1b) {
				t.Errorf("the error has %d bytes, or what a terminal would obey: %q", len(err.Error()), err)
			}
			if took := time.Since(start); took > c.patience+30*time.Second {
				t.Errorf("it took %v", took)
			}
			terrariumtest.LeavesNothing(t, spec, "after the refusal")
		})
	}
}

// TestDeathIsTold: what a machine said last is in the error of whoever waits for it.
func TestDeathIsTold(t *testing.T) {
	p := hostileGuest(t, "dies", emulatedBootTime)
	spec := specFor(t, "dies")
	// Nothing can be started in it, so it is not tested from inside.
	box, err := p.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, box)
	select {
	case <-box.Stoma().Done():
	case <-time.After(time.Minute):
		t.Fatal("a machine without its first process goes on")
	}
	if err := box.Stoma().Err(); !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") || !strings.Contains(err.Error(), "Attempted to kill init") {
		t.Errorf("its end is told as %v", err)
	}
	closed(t, box)
	terrariumtest.LeavesNothing(t, spec, "after its end")
}
