//go:build linux

package state_test

import (
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/run"
	"tendril/state"
)

// again runs a test of this binary once more, as another process that attr
// describes, and fails if it fails. inside is what [os.Getenv]("INSIDE") says
// there.
func again(t *testing.T, inside string, attr *syscall.SysProcAttr) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), "INSIDE="+inside)
	child.SysProcAttr = attr
	out, err := child.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this host gives no user namespaces")
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// ownMounts are namespaces in which a process may mount.
func ownMounts() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}

// checkUnavailable fails unless err names the path and the remedy.
func checkUnavailable(t *testing.T, err error, path, detail, hint string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Unavailable {
		t.Fatalf("err = %v", err)
	}
	if !strings.Contains(f.Detail, path) || !strings.Contains(f.Detail, detail) {
		t.Errorf("%q names neither %s nor %q", f.Detail, path, detail)
	}
	if !strings.Contains(f.Hint, hint) {
		t.Errorf("hint %q, want %q", f.Hint, hint)
	}
}

func TestOpenMakesPrivateFiles(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	dir := filepath.Join(t.TempDir(), "made", "too")
	path := filepath.Join(dir, "state.db")
	s := open(t, path)
	create(t, s) // so that there is a log
	for file, mode := range map[string]os.FileMode{
		dir: 0o700, filepath.Dir(dir): 0o700, path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600,
		filepath.Join(dir, "ledger.key"): 0o600,
	} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode {
			t.Errorf("%s has mode %04o, want %04o", file, info.Mode().Perm(), mode)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 4 {
		t.Errorf("the directory holds %v", entries)
	}
}

// TestOpenTwiceInOneProcess: opening a database must not take away the locks of
// a Store that has it open already. Another process has to look, because a
// process does not see its own POSIX locks.
func TestOpenTwiceInOneProcess(t *testing.T) {
	if path := os.Getenv("INSIDE"); path != "" {
		checkLocked(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "state.db")
	one := open(t, path)
	r := create(t, one)
	_, _, err := one.UpdateRun(t.Context(), r.ID, func(r *run.Run) error {
		two, err := state.Open(t.Context(), path)
		if err != nil {
			return err
		}
		defer two.Close()
		again(t, path, nil)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkLocked looks for the two locks of a process that writes: on the bytes of
// the database that mean "in use" (SHARED_FIRST and SHARED_SIZE of SQLite's
// os.h), and on byte 120 of the -shm file, which means "writing"
// (sqlite.org/walformat.html, section 2.2.1).
func checkLocked(t *testing.T, path string) {
	for file, lock := range map[string]unix.Flock_t{
		path:          {Type: unix.F_WRLCK, Start: 0x40000002, Len: 510},
		path + "-shm": {Type: unix.F_WRLCK, Start: 120, Len: 1},
	} {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
			t.Fatal(err)
		}
		if lock.Type == unix.F_UNLCK {
			t.Errorf("nobody holds the lock of %s", file)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	const sqliteHeader = "SQLite format 3\x00"
	other := func(t *testing.T, path string, statements string) {
		t.Helper()
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(statements); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name         string
		place        func(t *testing.T, path string)
		detail, hint string
	}{
		{"what is no database", func(t *testing.T, path string) {
			os.WriteFile(path, []byte(strings.Repeat("not a database\n", 1000)), 0o600)
		}, "not a database", "it is damaged: move it"},
		{"a header and nothing else", func(t *testing.T, path string) {
			os.WriteFile(path, []byte(sqliteHeader), 0o600)
		}, "not a database", "it is damaged: move it"},
		{"a database of another program", func(t *testing.T, path string) {
			other(t, path, `CREATE TABLE bookmarks (url TEXT)`)
		}, "database of another program", "move it away"},
		{"a database with another mark", func(t *testing.T, path string) {
			other(t, path, `PRAGMA application_id = 42; CREATE TABLE t (x)`)
		}, "database of another program", "move it away"},
		{"a newer schema", func(t *testing.T, path string) {
			open(t, path).Close()
			other(t, path, `PRAGMA user_version = 99`)
		}, "written by a newer tendril: its schema is version 99", "use the newer tendril"},
		{"a directory", func(t *testing.T, path string) {
			os.Mkdir(path, 0o700)
		}, "not a regular file", "move it away"},
		{"a symbolic link", func(t *testing.T, path string) {
			os.Symlink("/etc/passwd", path)
		}, "not a regular file", "move it away"},
		{"a FIFO", func(t *testing.T, path string) {
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Skip(err)
			}
		}, "not a regular file", "move it away"},
		{"a file that others can write", func(t *testing.T, path string) {
			os.WriteFile(path, nil, 0o600)
			os.Chmod(path, 0o660)
		}, "other accounts can write", "chmod 0600"},
		{"a directory that others can write", func(t *testing.T, path string) {
			os.Chmod(filepath.Dir(path), 0o777)
		}, "other accounts can write", "chmod 0700"},
		{"a file of another account", func(t *testing.T, path string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			os.WriteFile(path, nil, 0o600)
			os.Chown(path, 4242, -1)
		}, "belongs to uid 4242", "run as its owner"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "state.db")
			test.place(t, path)
			s, err := state.Open(t.Context(), path)
			if err == nil {
				s.Close()
			}
			checkUnavailable(t, err, dir, test.detail, test.hint)
		})
	}
	if _, err := state.Open(t.Context(), "state.db"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a relative path: %v", err)
	}
}

// TestDamageIsNamed overwrites the pages behind the first, and Open says what it met.
func TestDamageIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	for range 50 {
		create(t, s)
	}
	s.Close() // which empties the log into the file
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(data); i++ {
		data[i] = 0xa5
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = state.Open(t.Context(), path)
	if err == nil {
		s.Close()
	}
	checkUnavailable(t, err, path, "malformed", "it is damaged: move it")
}

// mountTmpfs mounts a file system of so many bytes. The caller is in namespaces of
// its own.
func mountTmpfs(t *testing.T, dir, size string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+size); err != nil {
		t.Fatal(err)
	}
}

func TestAReadOnlyFileSystem(t *testing.T) {
	dir := os.Getenv("INSIDE")
	if dir == "" {
		again(t, t.TempDir(), ownMounts())
		return
	}
	mountTmpfs(t, dir, "4m")
	there := filepath.Join(dir, "there", "state.db")
	open(t, there).Close()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for path, detail := range map[string]string{
		filepath.Join(dir, "state.db"):           "read-only file system",
		filepath.Join(dir, "absent", "state.db"): "read-only file system",
		there:                                    "unable to open",
	} {
		s, err := state.Open(t.Context(), path)
		if err == nil {
			s.Close()
		}
		checkUnavailable(t, err, filepath.Dir(path), detail, "TENDRIL_STATE_DIR")
	}
}

// TestAFullFileSystem fills one, and finds everything that was acknowledged
// once there is room again.
func TestAFullFileSystem(t *testing.T) {
	dir := os.Getenv("INSIDE")
	if dir == "" {
		again(t, t.TempDir(), ownMounts())
		return
	}
	mountTmpfs(t, dir, "2m")
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.db")
	s := open(t, path)
	r := create(t, s)
	acknowledged := 1
	var err error
	for err == nil {
		if _, err = s.AppendEvents(t.Context(), r.ID, run.Event{Data: run.OutputChunk{FD: 1, Bytes: make([]byte, 10_000)}}); err == nil {
			acknowledged++
		}
		if acknowledged > 1000 {
			t.Fatal("10 MB went into 2 MB")
		}
	}
	checkUnavailable(t, err, path, "full", "make room on the file system of "+dir)
	if n := len(events(t, s, r.ID)); n != acknowledged {
		t.Errorf("%d events are there, %d were acknowledged", n, acknowledged)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	to(t, s, r.ID, run.Stopped) // it goes on where it was
	s.Close()
	if n := len(events(t, open(t, path), r.ID)); n != acknowledged+1 {
		t.Errorf("%d events are there, %d were acknowledged", n, acknowledged+1)
	}
}

func TestAFullFileSystemFromTheStart(t *testing.T) {
	dir := os.Getenv("INSIDE")
	if dir == "" {
		again(t, t.TempDir(), ownMounts())
		return
	}
	mountTmpfs(t, dir, "64k")
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 56<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.db")
	s, err := state.Open(t.Context(), path)
	if err == nil {
		s.Close()
	}
	checkUnavailable(t, err, path, "full", "make room on the file system of "+dir)
}

func TestADirectoryThatThisAccountCannotWrite(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755)
	if os.Geteuid() == 0 {
		// Root can write any directory. A thread with another uid towards file
		// systems (setfsuid(2)) cannot.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		unix.SetfsuidRetUid(4242)
		defer unix.SetfsuidRetUid(0)
	}
	_, err := state.Open(t.Context(), filepath.Join(dir, "state.db"))
	checkUnavailable(t, err, dir, "permission denied", "make "+dir+" writable")
}
