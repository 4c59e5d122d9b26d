//go:build linux

package guestimage

import (
	"errors"
	"fmt"
	"io"
)

// Bounds of what is read. They are several times what a distribution ships.
const (
	maxPackage = 1 << 30 // a package's payload, unpacked
	maxKernel  = 256 << 20
	maxModule  = 16 << 20 // one module, unpacked
	maxText    = 1 << 20  // modules.builtin
	maxEntries = 100_000  // files of a package or a modules directory
)

var errTooLarge = errors.New("it is too large")

// readAll is io.ReadAll with a bound.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	}
	return data, nil
}
