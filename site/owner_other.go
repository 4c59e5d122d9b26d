//go:build !unix

package site

import (
	"os"

	"tendril/fault"
)

// A Stem runs where files have a uid and a mode. Elsewhere there is only the
// client, which has no directories of its own.

var errNoStem = fault.New(fault.Unavailable, "a Stem does not run on this system").
	WithHint("use this program as the client of a Stem that runs on Linux")

func resolve(string, int) (string, error) { return "", errNoStem }

func checkWay(string, int) error { return errNoStem }

func checkPrivate(string) error { return errNoStem }

func readOwned(path string, _ int) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readBounded(file)
}
