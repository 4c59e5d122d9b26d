// Package binary carries the built-in Sprout as a program, built for Linux and embedded.
// It promises the bytes that were there when this program was built, nothing about them.
package binary

import (
	"embed"

	"tendril/embedded"
)

// The directory holds at least its README, so that this compiles before the Sprout was
// built.
//
//go:embed all:built
var built embed.FS

// Sprout is the built-in agent.
var Sprout = embedded.Program{Name: "sprout", Files: built}
