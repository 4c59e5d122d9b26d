//go:build linux

package confine

import (
	"errors"
	"os"
	"path/filepath"
)

// ReplaceFile writes a file, readable by its owner alone, that other processes may read or
// replace at the same time: they meet what was there before, or all of it. It does not make
// it durable.
func ReplaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error says why
	}
	return err
}
