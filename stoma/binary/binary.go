// Package binary carries the guest's half of the Stoma as a program, built for
// Linux and embedded, so that a Terrarium needs no second download. It promises
// the bytes that were there when this program was built, nothing about them.
package binary

import (
	"embed"
	"errors"
	"io/fs"

	"tendril/fault"
)

// The directory holds at least its README, so that this compiles before the
// Stoma was built.
//
//go:embed all:built
var built embed.FS

// Stoma returns the static program for Linux on the architecture, a GOARCH.
func Stoma(goarch string) ([]byte, error) {
	return load(built, goarch)
}

func load(files fs.FS, goarch string) ([]byte, error) {
	b, err := fs.ReadFile(files, "built/stoma-linux-"+goarch)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return nil, fault.New(fault.Unavailable, "this tendril was built without its Stoma for %s", goarch).
			WithHint("build it with `make`")
	}
	if err != nil {
		return nil, fault.New(fault.Internal, "read the embedded Stoma for %s: %w", goarch, err)
	}
	return b, nil
}
