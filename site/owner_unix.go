//go:build unix

package site

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

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

// CheckWay returns the owner of a directory, and refuses it if another account than
// the owner and root could put something else in its place, or in that of a directory
// or symbolic link on the way. It is for who is about to trust what the owner put
// there; whether the owner is to be trusted is for the caller to say.
func CheckWay(dir string) (owner int, err error) {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return 0, fault.New(fault.Invalid, "%q is not a clean absolute path", clip(dir))
	}
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	if owner, err = ownerOf(dir, info); err != nil {
		return 0, err
	}
	_, err = walk(dir, owner)
	return owner, err
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

// ownerOf returns whose a file is, and refuses one whose owner cannot be told from
// others.
func ownerOf(path string, info fs.FileInfo) (int, error) {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if Unmapped(owner) {
		return 0, fault.New(fault.Unavailable, "whose %s is cannot be known: its owner has no number in this user namespace", path).
			WithHint("run tendril outside of the user namespace, or map the owner's uid into it")
	}
	return owner, nil
}

func checkOwner(path string, info fs.FileInfo, uid int) error {
	owner, err := ownerOf(path, info)
	if err != nil {
		return err
	}
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
	owner, err := ownerOf(dir, info)
	if err != nil {
		return err
	}
	if owner != os.Geteuid() {
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
// nobody else can write.
func readOwned(path string, uid int) ([]byte, error) {
	data, _, err := readVersion(path, uid)
	return data, err
}

// version tells one content of a file from another without reading it. The zero
// version is that of a file that does not exist.
type version struct {
	dev, ino, size int64
	mtime, ctime   unix.Timespec
}

// settled reports whether a later change would make it another version. The clock
// of a file system ticks in steps of up to a jiffy (10 ms), and two changes within one step have
// the same times.
func (v version) settled(now time.Time) bool {
	return now.Sub(time.Unix(v.ctime.Unix())) > time.Second
}

func versionOf(stat *unix.Stat_t) version {
	return version{int64(stat.Dev), int64(stat.Ino), stat.Size, stat.Mtim, stat.Ctim}
}

// versionAt returns the version of what is at path, without following a link.
func versionAt(path string) (version, error) {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	if errors.Is(err, unix.ENOENT) {
		return version{}, nil
	}
	if err != nil {
		return version{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return versionOf(&stat), nil
}

// readVersion returns what readOwned does and the version that it is. A file that
// keeps changing while it is read is an error.
func readVersion(path string, uid int) (data []byte, read version, err error) {
	const attempts = 10 // a file that was replaced meanwhile is another one already
	for range attempts {
		var whole bool
		if data, read, whole, err = readOnce(path, uid); whole || err != nil {
			return data, read, err
		}
	}
	return nil, version{}, fault.New(fault.Unavailable, "%s changes while it is read", path).WithHint("try again")
}

// readOnce reads the file, and says whether it was the same before and after. The checks
// are made on the open file.
func readOnce(path string, uid int) (data []byte, read version, whole bool, err error) {
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, version{}, false, fault.New(fault.Unavailable, "%s is a symbolic link", path).WithHint("put the file itself there")
	}
	if err != nil {
		return nil, version{}, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, version{}, false, err
	}
	if err := checkFile(path, info, uid); err != nil {
		return nil, version{}, false, err
	}
	var before, after unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &before); err != nil {
		return nil, version{}, false, err
	}
	if data, err = readBounded(file); err != nil {
		return nil, version{}, false, err
	}
	if err := unix.Fstat(int(file.Fd()), &after); err != nil {
		return nil, version{}, false, err
	}
	return data, versionOf(&after), versionOf(&before) == versionOf(&after), nil
}

func checkFile(path string, info fs.FileInfo, uid int) error {
	if !info.Mode().IsRegular() {
		return fault.New(fault.Unavailable, "%s is not a regular file", path).WithHint("move it away")
	}
	owner, err := ownerOf(path, info)
	if err != nil {
		return err
	}
	if owner != uid {
		return fault.New(fault.Unavailable, "%s belongs to uid %d, and this is uid %d", path, owner, uid).
			WithHint("chown it, or put a file of your own there")
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fault.New(fault.Unavailable, "other accounts can write %s (mode %04o)", path, info.Mode().Perm()).
			WithHint("chmod go-w %s", path)
	}
	return nil
}

// lock waits for the lock of a file, and returns what gives it back. The lock's own
// file stays: to remove it would let two hold the lock of one name.
func lock(path string) (unlock func() error, err error) {
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if err == nil {
			return file.Close, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, file.Close())
		}
	}
}
