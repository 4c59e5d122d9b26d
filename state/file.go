package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"tendril/fault"
)

// prepareFile makes the directory and an empty file with their modes, which
// SQLite would take from the umask, and refuses either if somebody else could
// write it. SQLite gives its log files the mode of the database file.
func prepareFile(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unavailable("create "+dir, path, err)
	}
	if err := checkDir(dir); err != nil {
		return err
	}
	creating.Lock()
	defer creating.Unlock()
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createEmpty(path); err != nil {
			return unavailable("create "+path, path, err)
		}
		info, err = os.Lstat(path)
	}
	if err != nil {
		return unavailable("look at "+path, path, err)
	}
	return checkFile(path, info)
}

// creating makes sure that no Store of this process has the file open while
// createEmpty does: a process that closes any descriptor of a file loses all its
// POSIX locks on it (fcntl(2)), those of SQLite included.
var creating sync.Mutex

func createEmpty(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was quicker
	}
	if err != nil {
		return err
	}
	return file.Close()
}

func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fault.New(fault.Unavailable, "look at %s: %w", dir, err)
	}
	if !info.IsDir() {
		return fault.New(fault.Unavailable, "%s is not a directory", dir).
			WithHint("move it away, or name another state directory with TENDRIL_STATE_DIR")
	}
	return checkOwner(dir, info, "0700")
}

func checkFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fault.New(fault.Unavailable, "%s is not a regular file", path).
			WithHint("move it away, or name another state directory with TENDRIL_STATE_DIR")
	}
	return checkOwner(path, info, "0600")
}

// checkOwner refuses what another account owns or could write.
func checkOwner(path string, info fs.FileInfo, mode string) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fault.New(fault.Unavailable, "%s belongs to uid %d, and this is uid %d", path, stat.Uid, os.Geteuid()).
			WithHint("run as its owner, or name another state directory with TENDRIL_STATE_DIR")
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fault.New(fault.Unavailable, "other accounts can write %s (mode %04o)", path, info.Mode().Perm()).
			WithHint("chmod %s %s", mode, path)
	}
	return nil
}

// unavailable turns an error of the file system into a fault with a remedy.
func unavailable(doing, path string, err error) error {
	f := fault.New(fault.Unavailable, "%s: %w", doing, err)
	dir := filepath.Dir(path)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return f.WithHint("make room on the file system of %s", dir)
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return f.WithHint("make %s writable for this account, or name another state directory with TENDRIL_STATE_DIR", dir)
	default:
		return f.WithHint("check %s, or name another state directory with TENDRIL_STATE_DIR", dir)
	}
}
