package embedded

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/fstest"

	"tendril/fault"
)

func program(data string) Program {
	return Program{"agent", fstest.MapFS{
		"built/README":                          {Data: []byte("x")},
		"built/agent-linux-" + runtime.GOARCH:   {Data: []byte(data)},
		"built/agent-linux-empty":               {},
		"built/agent-linux-directory/something": {},
	}}
}

func TestBytes(t *testing.T) {
	p := program("\x7fELF")
	if b, err := p.Bytes(runtime.GOARCH); err != nil || string(b) != "\x7fELF" {
		t.Fatalf("Bytes = %q, %v", b, err)
	}
	for goarch, want := range map[string]fault.Kind{"empty": fault.Unavailable, "absent": fault.Unavailable, "directory": fault.Internal} {
		if _, err := p.Bytes(goarch); !fault.Is(err, want) {
			t.Errorf("%s: %v, want %s", goarch, err, want)
		}
	}
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	first, err := program("first").Install(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := program("first").Install(dir)
	if err != nil || again != first {
		t.Errorf("the second time it is %s, %v, not %s", again, err, first)
	}
	second, err := program("second").Install(dir)
	if err != nil || second == first {
		t.Errorf("other bytes are at %s, %v", second, err)
	}
	for path, want := range map[string]string{first: "first", second: "second"} {
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", path, got, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o555 {
			t.Errorf("%s has the mode %v, %v", path, info.Mode(), err)
		}
	}
	// One of another size was not written by Install.
	if err := os.Chmod(first, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first, []byte("cut"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := program("first").Install(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(first); err != nil || string(got) != "first" {
		t.Errorf("what was cut is %q, %v", got, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
	if _, err := program("first").Install(filepath.Join(dir, "absent")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("into no directory: %v", err)
	}
}
