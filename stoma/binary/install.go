package binary

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"tendril/fault"
)

// Install puts the guest half for this machine into dir, under a name made from
// its digest, and returns its path. A file of that name is left as it is: only its
// owner can have written it, and it was renamed into place whole.
func Install(dir string) (string, error) {
	data, err := Stoma(runtime.GOARCH)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("stoma-%x", sha256.Sum256(data)))
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == int64(len(data)) {
		return path, nil
	}
	if err := install(dir, path, data); err != nil {
		return "", fault.New(fault.Unavailable, "putting the Stoma into %s: %w", dir, err).
			WithHint("make the directory writable, or free some disk")
	}
	return path, nil
}

func install(dir, path string, data []byte) error {
	f, err := os.CreateTemp(dir, ".stoma-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o555), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		if removeErr := os.Remove(f.Name()); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}
