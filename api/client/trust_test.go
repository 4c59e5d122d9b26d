//go:build linux

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tendril/api/client"
	"tendril/capability"
	"tendril/fault"
)

const stranger = 61234

// impostor listens as a stranger, answers, and counts what it gets.
func impostor(t *testing.T, socket string) *atomic.Int64 {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	var listener net.Listener
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, stranger, stranger, stranger); errno != 0 {
			made <- errno
			return
		}
		var err error
		listener, err = net.Listen("unix", socket)
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	var got atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			n, _ := conn.Read(make([]byte, 1<<16))
			got.Add(int64(n))
			conn.Write([]byte(`{"row":null,"output":[]}` + "\n"))
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return &got
}

func list(t *testing.T, socket string, token *string) error {
	t.Helper()
	_, _, err := client.Call(context.Background(), client.Request{Socket: socket, Token: token, Capability: "run.list", Input: capability.ListInput{}})
	return err
}

func notSent(t *testing.T, what string, err error) {
	t.Helper()
	if (!fault.Is(err, fault.Denied) && !fault.Is(err, fault.Invalid)) || !strings.HasPrefix(err.Error(), "the token was not sent: ") || strings.Contains(err.Error(), "hush") {
		t.Errorf("%s: %v", what, err)
	}
}

func TestTokenIsNotSentToStrangers(t *testing.T) {
	token := "hush"
	dir := privateDir(t)
	if err := os.Chmod(dir, os.ModeSticky|0o777); err != nil { // as /tmp is: anybody can be first
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	got := impostor(t, socket)
	notSent(t, "a stranger in a public directory", list(t, socket, &token))
	if got.Load() != 0 {
		t.Errorf("the stranger got %d bytes", got.Load())
	}
	if err := list(t, socket, nil); err != nil {
		t.Errorf("the test's server does not answer: %v", err)
	}
}

// A Stem has an account of its own in a governed installation; its directory says which.
func TestTokenIsSentToTheOwnerOfTheDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	token := "hush"
	dir := privateDir(t)
	if err := os.Chown(dir, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	got := impostor(t, socket)
	if err := list(t, socket, &token); err != nil || got.Load() == 0 {
		t.Errorf("%v; %d bytes were sent", err, got.Load())
	}
	// The same directory behind one that others can write.
	outer := privateDir(t)
	if err := os.Symlink(dir, filepath.Join(outer, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(outer, 0o777); err != nil {
		t.Fatal(err)
	}
	before := got.Load()
	notSent(t, "a link that others can replace", list(t, filepath.Join(outer, "link", "s"), &token))
	if got.Load() != before {
		t.Error("it was sent all the same")
	}
}

func TestTokenIsNotSentWhereOthersCanWrite(t *testing.T) {
	token := "hush"
	socket := serve(t, yes)
	dir := filepath.Dir(socket)
	if err := list(t, socket, &token); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o720, 0o702, 0o777} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		notSent(t, "a directory that others can write", list(t, socket, &token))
		if err := list(t, socket, nil); err != nil {
			t.Errorf("without a token: %v", err)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	notSent(t, "a path that is not clean", list(t, dir+"/../"+filepath.Base(dir)+"/s", &token))
	t.Chdir(dir)
	notSent(t, "a relative path", list(t, "s", &token))
	notSent(t, "no directory", list(t, dir+"/none/s", &token))
}

// TestTokenIsNotSentOutOfAUserNamespace: there, strangers have one uid, which is also
// the owner's of the directory. That the place is safe does not help.
func TestTokenIsNotSentOutOfAUserNamespace(t *testing.T) {
	if socket := os.Getenv("SOCKET_IN_USER_NAMESPACE"); socket != "" {
		token := "hush"
		fmt.Println("inside:", list(t, socket, &token))
		return
	}
	dir := privateDir(t)
	if err := errors.Join(os.Chown(dir, stranger, stranger), os.Chmod(dir, 0o755)); err != nil {
		t.Skip(err)
	}
	socket := filepath.Join(dir, "s")
	got := impostor(t, socket)
	// The directory is one stranger's and the server another.
	if err := errors.Join(os.Chmod(socket, 0o666), os.Chown(dir, stranger+1, stranger+1)); err != nil {
		t.Fatal(err)
	}
	self := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	for name, uids := range map[string][]syscall.SysProcIDMap{"unshare -U": nil, "unshare -r": self} {
		inside := exec.Command(os.Args[0], "-test.run=^TestTokenIsNotSentOutOfAUserNamespace$")
		inside.Env = append(os.Environ(), "SOCKET_IN_USER_NAMESPACE="+socket)
		inside.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: uids}
		output, err := inside.CombinedOutput()
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
			t.Skipf("user namespaces are not possible here: %v", err)
		}
		if err != nil || !strings.Contains(string(output), "inside: the token was not sent: ") || !strings.Contains(string(output), "no number in this user namespace") {
			t.Errorf("%s: %v\n%s", name, err, output)
		}
		if n := got.Load(); n != 0 {
			t.Errorf("%s: a stranger got %d bytes", name, n)
		}
	}
}

// TestServingWhereNoTokenIsSent: what is said to who serves is what the clients do.
func TestServingWhereNoTokenIsSent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	public, own, writable := privateDir(t), privateDir(t), privateDir(t)
	if err := errors.Join(os.Chmod(public, os.ModeSticky|0o777), os.Chmod(own, 0o755), os.Chown(own, stranger, stranger), os.Chmod(writable, 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dir    string
		uid    int
		others bool
		want   string
	}{
		{public, stranger, true, "the directory is uid 0's"},
		{public, stranger, false, ""},
		{public, 0, true, ""}, // root is trusted wherever it serves
		{own, stranger, true, ""},
		{writable, 0, false, "other accounts can write"},
	} {
		checked := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(test.uid), uintptr(test.uid), uintptr(test.uid)); errno != 0 {
				checked <- errno
				return
			}
			checked <- client.CheckServing(filepath.Join(test.dir, "s"), test.others)
		}()
		if err := <-checked; (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
