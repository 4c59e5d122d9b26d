package site

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"tendril/fault"
)

// Edit replaces a file in the configuration directory by what change makes of its
// content, and returns its path. change gets nil for a file that does not exist, and its error
// leaves everything as it is. The directory is made if it does not exist.
//
// Whoever opens the file sees the old content or the new one, also after a crash. Edits wait for each
// other. A file that somebody else, such as a text editor, changed meanwhile is left to
// them: the fault is of the kind unavailable, and the edit can be tried again. What is
// saved between that last look and the replacement, some microseconds, is lost.
func (d Dirs) Edit(name string, change func(path string, old []byte) ([]byte, error)) (path string, err error) {
	path = filepath.Join(d.Config, name)
	if err := d.makeConfig(); err != nil {
		return path, err
	}
	unlock, err := lock(path)
	if err != nil {
		return path, unwritable(path, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	old, seen, err := readVersion(path, d.uid)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return path, unreadable(path, err)
	}
	content, err := change(path, old)
	if err != nil || (bytes.Equal(content, old) && seen != version{}) {
		return path, err
	}
	return path, replace(path, seen, content)
}

// makeConfig makes the configuration directory if it does not exist, and refuses one that
// [Dirs.Prepare] would.
func (d Dirs) makeConfig() error {
	_, err := resolve(d.Config, d.uid)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = prepare(d.Config, d.uid, "TENDRIL_CONFIG_DIR")
	}
	if err != nil {
		return withRemedy(err, "TENDRIL_CONFIG_DIR")
	}
	return nil
}

// replace puts content in the place of the version seen, and makes that durable.
func replace(path string, seen version, content []byte) error {
	dir := filepath.Dir(path)
	temporary, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return unwritable(path, err)
	}
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = replaceBy(temporary.Name(), path, seen)
	}
	if err != nil {
		return unwritable(path, errors.Join(err, os.Remove(temporary.Name())))
	}
	return syncDir(dir)
}

func replaceBy(temporary, path string, seen version) error {
	now, err := versionAt(path)
	if err != nil {
		return err
	}
	if now != seen {
		return fault.New(fault.Unavailable, "%s was changed by somebody else meanwhile", path).WithHint("look at it, and try again")
	}
	return os.Rename(temporary, path)
}

// syncDir makes a renaming durable (fsync(2)).
func syncDir(dir string) error {
	opened, err := os.Open(dir)
	if err != nil {
		return unwritable(dir, err)
	}
	if err := errors.Join(opened.Sync(), opened.Close()); err != nil {
		return unwritable(dir, err)
	}
	return nil
}

// unwritable makes a fault of what kept a file from being written.
func unwritable(path string, err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.New(fault.Unavailable, "write %s: %w", path, err).
		WithHint("make its directory writable for this account, or name another with TENDRIL_CONFIG_DIR")
}
