// Package binary carries the guest's half of the Stoma as a program, built for Linux and
// embedded. It promises the bytes that were there when this program was built, nothing
// about them.
package binary

import (
	"embed"

	"tendril/embedded"
)

// The directory holds at least its README, so that this compiles before the Stoma was
// built.
//
//go:embed all:built
var built embed.FS

// Stoma is the guest's half.
var Stoma = embedded.Program{Name: "stoma", Files: built}
