//go:build linux

package source

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"tendril/credential"
	"tendril/fault"
	"tendril/site"
)

// Bits of a file's mode that other accounts must not have.
const (
	toRead  = 0o077 // of what is secret
	toWrite = 0o022 // of what is not
)

func fromFile(path string) (credential.Secret, error) {
	bytes, err := readFile(path, toRead, credential.LongestSecret+2)
	if err != nil {
		return credential.Secret{}, err
	}
	return credential.NewSecret(withoutLineEnd(bytes))
}

// readFile returns what a regular file of this account holds. Others must not have any
// of the forbidden bits of its mode, nor be able to put another file in its place. The
// checks are made on the open file.
func readFile(path string, forbidden fs.FileMode, longest int) ([]byte, error) {
	uid := os.Geteuid()
	dir := filepath.Dir(path)
	if owner, err := site.CheckWay(dir); err != nil {
		return nil, withoutPath(err)
	} else if owner != uid && owner != 0 {
		return nil, fault.New(fault.Unavailable, "the directory belongs to uid %d, and this is uid %d", owner, uid)
	}
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fault.New(fault.Unavailable, "it is a symbolic link").WithHint("name the file itself")
	}
	if err != nil {
		return nil, withoutPath(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, withoutPath(err)
	}
	switch owner := int(info.Sys().(*syscall.Stat_t).Uid); {
	case !info.Mode().IsRegular():
		return nil, fault.New(fault.Unavailable, "it is not a regular file")
	case owner != uid:
		return nil, fault.New(fault.Unavailable, "it belongs to uid %d, and this is uid %d", owner, uid).WithHint("chown %d %s", uid, path)
	case info.Mode().Perm()&forbidden != 0:
		return nil, fault.New(fault.Unavailable, "it is open to other accounts (mode %04o)", info.Mode().Perm()).WithHint("chmod go= %s", path)
	case info.Size() > int64(longest):
		return nil, fault.New(fault.Unavailable, "it has more than %d bytes", longest)
	}
	bytes := make([]byte, longest+1) // all of it at once, so that no copy stays behind
	n, err := io.ReadFull(file, bytes)
	switch {
	case err == nil:
		clear(bytes)
		return nil, fault.New(fault.Unavailable, "it has more than %d bytes", longest)
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		clear(bytes)
		return nil, withoutPath(err)
	}
	return bytes[:n], nil
}

// withoutPath is why something failed, without what it was done to: that is said once.
func withoutPath(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
