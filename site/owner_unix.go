//go:build unix

package site

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// mostLinks is how many symbolic links one path may lead through, as in Linux.
const mostLinks = 40

// resolve returns the path of dir without symbolic links on the way, and
// refuses what [walk] refuses, and dir itself if it is such a link. What does not
// exist is an error that is [fs.ErrNotExist].
func resolve(dir string, uid int) (string, error) {
	info, err := os.Lstat(dir)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return "", fault.New(fault.Unavailable, "%s is a symbolic link", dir).WithHint("put the directory itself there")
	}
	return walk(dir, uid)
}

// walk goes to dir from the root and returns its path without symbolic links.
// It refuses each directory on the way that an account other than uid
// and root owns or can write; one that is sticky, such as /tmp, may be written
// by all, because in it nobody can replace what is another's.
func walk(dir string, uid int) (string, error) {
	at, rest, links := "/", strings.Split(dir, "/"), 0
	for {
		info, err := os.Lstat(at)
		if err != nil {
			return "", err
		}
		if err := checkOwner(at, info, uid); err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if links++; links > mostLinks {
				return "", fault.New(fault.Unavailable, "%s leads through more than %d symbolic links", dir, mostLinks)
			}
			target, err := os.Readlink(at)
			if err != nil {
				return "", err
			}
			at = filepath.Dir(at)
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
		} else if !info.IsDir() {
			return "", fault.New(fault.Unavailable, "%s is not a directory", at).WithHint("move it away")
		}
		if len(rest) == 0 {
			return at, nil
		}
		// Join cleans "..": at holds no link, so its parent is the one above.
		at, rest = filepath.Join(at, rest[0]), rest[1:]
	}
}

// checkWay checks what exists of the way to dir.
func checkWay(dir string, uid int) error {
	for {
		_, err := walk(dir, uid)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		dir = filepath.Dir(dir)
	}
}

func checkOwner(path string, info fs.FileInfo, uid int) error {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if owner != uid && owner != 0 {
		return fault.New(fault.Unavailable, "%s belongs to uid %d, which could change what is in it", path, owner)
	}
	// The mode of a symbolic link means nothing.
	if mode := info.Mode(); mode&fs.ModeSymlink == 0 && mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0 {
		return fault.New(fault.Unavailable, "other accounts can write %s (mode %04o)", path, mode.Perm()).
			WithHint("chmod go-w %s", path)
	}
	return nil
}

// checkPrivate refuses a directory that is not this account's alone, or that it
// cannot write.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner := int(info.Sys().(*syscall.Stat_t).Uid); owner != os.Geteuid() {
		return fault.New(fault.Unavailable, "%s belongs to uid %d, and this is uid %d", dir, owner, os.Geteuid())
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fault.New(fault.Unavailable, "%s is open to other accounts (mode %04o)", dir, info.Mode().Perm()).
			WithHint("chmod 0700 %s", dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fault.New(fault.Unavailable, "%s cannot be written: %w", dir, err).
			WithHint("make it writable: chmod u+wx %s, or mount its file system read-write", dir)
	}
	return nil
}

// readOwned returns the content of a regular file that belongs to uid and that
// nobody else can write. The checks are made on the open file.
func readOwned(path string, uid int) ([]byte, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fault.New(fault.Unavailable, "%s is a symbolic link", path).WithHint("put the file itself there")
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Unavailable, "%s is not a regular file", path).WithHint("move it away")
	}
	if owner := int(info.Sys().(*syscall.Stat_t).Uid); owner != uid {
		return nil, fault.New(fault.Unavailable, "%s belongs to uid %d, and this is uid %d", path, owner, uid).
			WithHint("chown it, or put a file of your own there")
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fault.New(fault.Unavailable, "other accounts can write %s (mode %04o)", path, info.Mode().Perm()).
			WithHint("chmod go-w %s", path)
	}
	return readBounded(file)
}
