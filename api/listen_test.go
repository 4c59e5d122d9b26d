//go:build linux

package api

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tendril/fault"
)

func TestListenMakesTheSocketWithItsMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // the mode does not come from it
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
		dir := openDirectory(t)
		path := filepath.Join(dir, "s")
		l, err := Listen(path, mode)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != fs.ModeSocket|mode {
			t.Errorf("%v, %v; want %v", info.Mode(), err, mode)
		}
		if l.Addr().String() != path {
			t.Errorf("the address is %s", l.Addr())
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("beside the socket there is %v, %v", entries, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("left is %v, %v", entries, err)
		}
	}
}

func TestListenRefuses(t *testing.T) {
	dir := openDirectory(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, put := range map[string]func(path string) error{
		"file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"fifo":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":      func(path string) error { return os.Symlink(at("elsewhere"), path) },
	} {
		if err := put(at(name)); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(at(name), 0o600); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a %s was replaced: %v", name, err)
		}
		if _, err := os.Lstat(at(name)); err != nil {
			t.Errorf("the %s is gone: %v", name, err)
		}
	}
	if _, err := os.Lstat(at("elsewhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a link was followed")
	}

	alive, err := net.Listen("unix", at("alive"))
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	if _, err := Listen(at("alive"), 0o600); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "another tendril serves") {
		t.Errorf("a socket that answers was replaced: %v", err)
	}

	for _, path := range []string{"s", "./s", dir + "/../s", dir + "//s", at("s") + "/", at(strings.Repeat("x", 100))} {
		if _, err := Listen(path, 0o600); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, mode := range []fs.FileMode{0, 0o400, 0o200, 0o066, 0o700, 0o777, fs.ModeSetuid | 0o600, 0o1600} {
		if _, err := Listen(at("s"), mode); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %v", mode, err)
		}
	}
	if _, err := Listen(at("none/s"), 0o600); !fault.Is(err, fault.Unavailable) {
		t.Errorf("no directory: %v", err)
	}
	if err := os.Symlink(dir, at("to-dir")); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(at("to-dir/s"), 0o600); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a directory behind a link: %v", err)
	}
	for _, mode := range []fs.FileMode{0o770, 0o707, 0o777} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(at("s"), 0o600); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a directory with mode %v: %v", mode, err)
		}
	}
	if err := os.Chmod(dir, fs.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(at("s"), 0o600)
	if err != nil {
		t.Fatalf("a sticky directory: %v", err)
	}
	l.Close()
}

func TestListenRefusesWhatIsAnothersAccounts(t *testing.T) {
	dir := openDirectory(t)
	if err := os.Chmod(dir, fs.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	err := as(t, 61234, func() error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		return l.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, 0o600); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "61234") {
		t.Errorf("another's dead socket was replaced: %v", err)
	}
	if err := os.Chown(dir, 61234, 61234); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(dir, "t"), 0o600); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "61234") {
		t.Errorf("another's directory was used: %v", err)
	}
}

func TestListenReplacesADeadSocket(t *testing.T) {
	path := filepath.Join(openDirectory(t), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// A socket that took the place of ours is not removed.
func TestListenRemovesOnlyItsOwn(t *testing.T) {
	path := filepath.Join(openDirectory(t), "s")
	l, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the second socket is gone: %v", err)
	}
}

// Of several that begin at once, one serves; the others are told so.
func TestListenAtOnce(t *testing.T) {
	path := filepath.Join(openDirectory(t), "s")
	type result struct {
		l   net.Listener
		err error
	}
	results := make(chan result)
	for range 16 {
		go func() {
			l, err := Listen(path, 0o600)
			results <- result{l, err}
		}()
	}
	serving := 0
	for range 16 {
		r := <-results
		if r.err == nil {
			serving++
			defer r.l.Close()
		} else if !fault.Is(r.err, fault.Unavailable) {
			t.Error(r.err)
		}
	}
	if serving != 1 {
		t.Errorf("%d serve", serving)
	}
}
