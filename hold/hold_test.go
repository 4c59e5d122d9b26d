package hold_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/hold"
)

const holding = "TENDRIL_TEST_AREA"

// TestMain is also the main of a process that makes a scratch directory and waits for its
// death.
func TestMain(m *testing.M) {
	if dir := os.Getenv(holding); dir != "" {
		area, err := hold.OpenArea(dir, dir+".lock")
		if err == nil {
			_, err = area.New()
		}
		fmt.Println(err)
		io.Copy(io.Discard, os.Stdin)
		return
	}
	os.Exit(m.Run())
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := hold.Lock(path, unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := hold.Lock(path, unix.LOCK_EX|unix.LOCK_NB); f != nil || err != nil {
		t.Errorf("the lock was given twice: %v", err)
	}
	first.Close()
	second, err := hold.Lock(path, unix.LOCK_EX|unix.LOCK_NB)
	if second == nil || err != nil {
		t.Fatalf("the lock was not given back: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if f, err := hold.Wait(ctx, path); f != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	second.Close()
	if _, err := hold.Wait(ctx, filepath.Join(path, "none")); err == nil {
		t.Error("a lock below a file was given")
	}
}

// Who has a lock may remove its file: still nobody has it beside another.
func TestWaitExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside, times atomic.Int32
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 50 {
				f, err := hold.Wait(context.Background(), path)
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two have the lock")
				}
				times.Add(1)
				inside.Add(-1)
				os.Remove(path)
				f.Close()
			}
		})
	}
	wait.Wait()
	if times.Load() != 400 {
		t.Errorf("%d had the lock", times.Load())
	}
}

func TestEvict(t *testing.T) {
	dir := t.TempDir()
	var files []hold.Kept
	for i, name := range []string{"oldest", "held", "middle", "newest"} {
		path := filepath.Join(dir, name)
		write(t, path, "x")
		files = append(files, hold.Kept{Path: path, Size: 10, Used: time.Unix(int64(i), 0)})
	}
	slices.Reverse(files)
	held, err := hold.Open(filepath.Join(dir, "held"))
	if err != nil || held == nil {
		t.Fatal(err)
	}
	defer held.Close()
	left := func() string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	}
	if err := hold.Evict(files, 40, os.Remove); err != nil || left() != "held middle newest oldest" {
		t.Errorf("left are %s: %v", left(), err)
	}
	if err := hold.Evict(files, 20, os.Remove); err != nil || left() != "held newest" {
		t.Errorf("left are %s: %v", left(), err)
	}
	if err := hold.Evict(files, 0, os.Remove); err != nil || left() != "held" {
		t.Errorf("left are %s: %v", left(), err)
	}
	full := errors.New("no")
	held.Close()
	if err := hold.Evict(files, 0, func(string) error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if f, err := hold.Open(filepath.Join(dir, "none")); f != nil || err != nil {
		t.Errorf("a file that is not there was opened: %v", err)
	}
}

// Who waits for a file while it is removed gets what is there then.
func TestOpenAfterRemoval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "old")
	opened := make(chan *os.File)
	if _, err := hold.Remove(path, func(path string) error {
		go func() {
			f, err := hold.Open(path)
			if err != nil {
				t.Error(err)
			}
			opened <- f
		}()
		for waiting := false; !waiting; { // proc_locks(5) marks it with an arrow
			locks, err := os.ReadFile("/proc/locks")
			if err != nil {
				t.Skipf("who waits for a lock is not to be seen: %v", err)
			}
			waiting = slices.ContainsFunc(strings.Split(string(locks), "\n"), func(line string) bool {
				return strings.Contains(line, "-> FLOCK") && strings.Contains(line, fmt.Sprint(" ", os.Getpid(), " "))
			})
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.WriteFile(path, []byte("new"), 0o600)
	}); err != nil {
		t.Fatal(err)
	}
	f := <-opened
	if f == nil {
		t.Fatal("there is a file, and it was not found")
	}
	defer f.Close()
	if content, err := io.ReadAll(f); err != nil || string(content) != "new" {
		t.Errorf("the file that was removed is held: %q, %v", content, err)
	}
}

// Nobody comes to hold a file while it is removed, and what is held stays.
func TestOpenAndEvictExclude(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			gone, err := hold.Remove(path, os.Remove)
			if err == nil && gone {
				err = os.WriteFile(path, []byte("x"), 0o600)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2000 {
		f, err := hold.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if f == nil {
			continue
		}
		if gone, err := hold.Remove(path, func(string) error { t.Error("removed while it was held"); return nil }); err != nil {
			t.Fatal(gone, err)
		}
		f.Close()
	}
	close(stop)
	wait.Wait()
}

func TestArea(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "scratch")
	area, err := hold.OpenArea(dir, dir+".lock")
	if err != nil {
		t.Fatal(err)
	}
	mine, err := area.New()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(mine.Path, "file"), "x")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), holding+"="+dir)
	in, err1 := child.StdinPipe()
	out, err2 := child.StdoutPipe()
	if err := errors.Join(err1, err2, child.Start()); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var answer string
	if _, err := fmt.Fscan(out, &answer); err != nil || answer != "<nil>" {
		t.Fatalf("the process says %q: %v", answer, err)
	}
	count := func() int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	nothing := func() error { return nil }
	if err := area.Sweep(nothing); err != nil || count() != 2 {
		t.Errorf("%d directories of the living are left: %v", count(), err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if err := area.Sweep(nothing); err != nil || count() != 1 {
		t.Errorf("%d directories are left: %v", count(), err)
	}
	if _, err := os.Stat(filepath.Join(mine.Path, "file")); err != nil {
		t.Error(err)
	}
	if err := mine.Close(); err != nil || count() != 0 {
		t.Errorf("%d directories are left: %v", count(), err)
	}
	failure := errors.New("no")
	if err := area.Sweep(func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}

func TestSweepLocks(t *testing.T) {
	dir := t.TempDir()
	held, err := hold.Lock(filepath.Join(dir, "a.lock"), unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	write(t, filepath.Join(dir, "b.lock"), "")
	write(t, filepath.Join(dir, "c"), "")
	if err := hold.SweepLocks(filepath.Join(dir, "*.lock")); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, "a.lock"), filepath.Join(dir, "c")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %q: %v", left, err)
	}
}

func TestCheckOurs(t *testing.T) {
	dir := t.TempDir()
	if err := hold.CheckOurs(dir); err != nil {
		t.Error(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o720)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, open, "/proc/1/task"} {
		if os.Geteuid() == 0 && path == "/proc/1/task" {
			continue // it is root's
		}
		if err := hold.CheckOurs(path); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestNoSpace(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	if err := hold.NoSpace(full, "/disk"); !fault.Is(err, fault.Unavailable) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "/disk") {
		t.Errorf("got %v", err)
	}
	if err := hold.NoSpace(io.EOF, "/disk"); err != io.EOF {
		t.Errorf("got %v", err)
	}
}

// TestSweepBesideClose: who sweeps while others make and remove their directories meets none that
// is half gone.
func TestSweepBesideClose(t *testing.T) {
	dir := t.TempDir()
	area, err := hold.OpenArea(filepath.Join(dir, "scratch"), filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 300
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for range rounds {
				d, err := area.New()
				if err != nil {
					t.Error(err)
					return
				}
				if err := d.Close(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range rounds {
		if err := area.Sweep(func() error { return nil }); err != nil {
			t.Error(err)
			break
		}
	}
	others.Wait()
}
