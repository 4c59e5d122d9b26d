//go:build linux

package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// limits bound the scan of one listed directory.
type limits struct {
	entries int
	depth   int
	hidden  int // directories of tests that may be hidden instead of refusing
	time    time.Duration
}

// scanLimits: a full set of language toolchains has a few hundred thousand entries
// and is scanned in seconds.
var scanLimits = limits{entries: 1_000_000, depth: 64, hidden: 64, time: 30 * time.Second}

// testDirs are names under which toolchains ship keys made for their own tests
// (CPython's test/certdata, Go's testdata). Such a directory is hidden instead of
// refusing the toolchain.
var testDirs = []string{"test", "tests", "testing", "testdata", "test-data", "test_data", "test_fixtures", "fixtures", "__tests__", "spec"}

// finding is something that must not be shown.
type finding struct {
	path string
	what string
	dir  string // the directory of tests that hides it
}

// scanner walks one directory tree without following a link or leaving the file
// system it began on.
type scanner struct {
	limits
	dev      uint64
	deadline time.Time
	seen     int
	hidden   []finding
}

// scan looks through dir for what must not be shown. It returns the directories to
// hide, and a fault for what can only be refused.
func scan(dir string, lim limits) ([]finding, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, fault.New(fault.Invalid, "toolchain directory %s cannot be scanned: %w", dir, err)
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fault.New(fault.Invalid, "toolchain directory %s cannot be scanned: %w", dir, err)
	}
	s := &scanner{limits: lim, dev: st.Dev, deadline: time.Now().Add(lim.time)}
	if err := checkReadable(dir, &st); err != nil {
		return nil, err
	}
	if err := s.walk(f, dir, "", 0); err != nil {
		return nil, err
	}
	return s.hidden, nil
}

// walk scans the open directory f, known as path. tests is the outermost directory
// of tests that path lies in, or "".
func (s *scanner) walk(f *os.File, path, tests string, depth int) error {
	if depth > s.depth {
		return fault.New(fault.Invalid, "toolchain directory is nested more than %d deep at %s", s.depth, path)
	}
	for {
		names, err := f.Readdirnames(512)
		for _, name := range names {
			if err := s.entry(int(f.Fd()), path+"/"+name, name, tests, depth); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fault.New(fault.Invalid, "toolchain directory cannot be scanned: %w", err)
		}
	}
}

// errHidden unwinds the walk to the directory of tests that is hidden: nothing
// below it is shown, so nothing below it matters.
var errHidden = errors.New("hidden")

func (s *scanner) entry(dirfd int, path, name, tests string, depth int) error {
	if s.seen++; s.seen > s.entries {
		return fault.New(fault.Invalid, "toolchain directory has more than %d entries (at %s)", s.entries, path).
			WithHint("list the directories of single tools instead")
	}
	if s.seen%256 == 0 && time.Now().After(s.deadline) {
		return fault.New(fault.Invalid, "toolchain directory could not be scanned within %s (at %s)", s.time, path).
			WithHint("list the directories of single tools instead, on a local disk")
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil // removed since it was listed
		}
		return fault.New(fault.Invalid, "toolchain file %s cannot be examined: %w", path, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil // it leads to what is shown anyway, or to nothing
	case unix.S_IFDIR:
		return s.directory(dirfd, path, name, tests, depth, &st)
	case unix.S_IFREG:
		if what, ok := secretByName(name); ok && st.Size > 0 {
			return s.found(path, what, tests)
		}
		if st.Mode&0o004 == 0 {
			return s.found(path, "is not readable by everybody on this host", tests)
		}
		if !mayHold(name, st.Size) {
			return nil
		}
		what, ok, err := readSecret(dirfd, name, &st)
		if err != nil {
			return fault.New(fault.Invalid, "toolchain file %s cannot be read: %w", path, err)
		}
		if ok {
			return s.found(path, what, tests)
		}
		return nil
	case unix.S_IFSOCK:
		return s.found(path, "is a socket", tests)
	case unix.S_IFIFO:
		return s.found(path, "is a FIFO", tests)
	default:
		return s.found(path, "is a device", tests)
	}
}

func (s *scanner) directory(dirfd int, path, name, tests string, depth int, st *unix.Stat_t) error {
	if slices.Contains(credentialDirs, name) {
		return s.found(path, "is a directory for credentials by its name", tests)
	}
	if st.Dev != s.dev {
		return s.found(path, "is a mount of another file system", tests)
	}
	if st.Mode&0o005 != 0o005 {
		return s.found(path, "is not readable by everybody on this host", tests)
	}
	if tests == "" && slices.Contains(testDirs, name) {
		tests = path
	}
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fault.New(fault.Invalid, "toolchain directory %s cannot be opened: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	err = s.walk(f, path, tests, depth+1)
	if errors.Is(err, errHidden) && tests == path {
		return nil // this is the directory that hides it; its parent goes on
	}
	return err
}

// found hides the finding when it lies in a directory of tests, and refuses it
// otherwise.
func (s *scanner) found(path, what, tests string) error {
	if tests != "" {
		if len(s.hidden) == s.limits.hidden {
			return fault.New(fault.Invalid, "toolchain directory has more than %d directories of tests with secrets in them (at %s)", s.limits.hidden, path).
				WithHint("list the directories of single tools instead")
		}
		s.hidden = append(s.hidden, finding{path: path, what: what, dir: tests})
		return errHidden
	}
	return fault.New(fault.Invalid, "toolchain file %s %s", path, what).
		WithHint("%s", remedy(path, what))
}

func remedy(path, what string) string {
	if strings.Contains(what, "readable") {
		return fmt.Sprintf("chmod -R o+rX %s, if everybody may read it; otherwise list a directory without it", filepath.Dir(path))
	}
	return "move it away, or list a directory without it"
}

func checkReadable(dir string, st *unix.Stat_t) error {
	if st.Mode&0o005 != 0o005 {
		return fault.New(fault.Invalid, "toolchain directory %s is not readable by everybody on this host", dir).
			WithHint("chmod -R o+rX %s, if everybody may read it", dir)
	}
	return nil
}

// readSecret reads the regular file that st describes and says what it gives away.
// A file that was exchanged since is not read.
func readSecret(dirfd int, name string, want *unix.Stat_t) (string, bool, error) {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENOENT) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", false, err
	}
	if st.Ino != want.Ino || st.Dev != want.Dev || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", false, errors.New("it was exchanged during the scan")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return "", false, err
	}
	what, ok := secretByContent(name, data)
	return what, ok, nil
}
