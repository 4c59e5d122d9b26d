//go:build !unix

package site

import (
	"os"
	"time"

	"tendril/fault"
)

// A Stem runs where files have a uid and a mode. Elsewhere there is only the
// client, which has no directories of its own.

var errNoStem = fault.New(fault.Unavailable, "a Stem does not run on this system").
	WithHint("use this program as the client of a Stem that runs on Linux")

func resolve(string, int) (string, error) { return "", errNoStem }

func walk(string, int) (string, error) { return "", errNoStem }

// CheckWay knows of no owners here.
func CheckWay(string) (owner int, err error) { return 0, errNoStem }

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

type version struct{}

func (version) settled(time.Time) bool { return true }

func versionAt(string) (version, error) { return version{}, errNoStem }

func readVersion(string, int) ([]byte, version, error) { return nil, version{}, errNoStem }

func lock(string) (func() error, error) { return nil, errNoStem }
