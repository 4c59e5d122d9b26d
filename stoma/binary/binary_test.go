package binary

import (
	"testing"
	"testing/fstest"

	"tendril/fault"
)

func TestStoma(t *testing.T) {
	files := fstest.MapFS{
		"built/README":            {Data: []byte("x")},
		"built/stoma-linux-amd64": {Data: []byte("\x7fELF")},
		"built/stoma-linux-arm64": {},
	}
	if b, err := load(files, "amd64"); err != nil || string(b) != "\x7fELF" {
		t.Fatalf("load = %q, %v", b, err)
	}
	for _, arch := range []string{"arm64", "riscv64"} {
		if _, err := load(files, arch); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v, want unavailable", arch, err)
		}
	}
}
