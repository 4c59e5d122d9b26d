//go:build linux

// Package dockertest gives tests a Docker daemon of their own: nothing of the host's daemon
// is asked, and nothing is left when the tests are over.
//
// Where the environment names a daemon (TENDRIL_TEST_DOCKER_HOST), that one is taken, so
// that the tests of several packages can have one; scripts/dockerd starts it. The daemon has
// gVisor as its runtime runsc when the shipped program is there (TENDRIL_TEST_BINARY).
package dockertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Variable names a daemon that somebody else started.
const Variable = "TENDRIL_TEST_DOCKER_HOST"

var own struct {
	sync.Mutex
	daemon *Daemon
	err    error
	tried  bool
	stop   chan struct{} // closed to end the thread that the daemon dies with
}

// Host is where the tests' daemon listens, as unix:///PATH. Without one the test is skipped.
// [Main] ends it.
func Host(t testing.TB) string {
	t.Helper()
	if host := os.Getenv(Variable); host != "" {
		return host
	}
	Needs(t)
	own.Lock()
	defer own.Unlock()
	if !own.tried {
		own.tried = true
		own.daemon, own.err = startOwn()
	}
	if own.err != nil {
		t.Fatal(own.err)
	}
	// For tests that start this binary again.
	if err := os.Setenv(Variable, own.daemon.Host); err != nil {
		t.Fatal(err)
	}
	return own.daemon.Host
}

// Needs skips a test that has to start a daemon where none can be started.
func Needs(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a Docker daemon needs root: run it as root, or name one in " + Variable)
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip("there is no dockerd: apt-get install docker.io")
	}
}

// startOwn starts a daemon that ends with this process, also when that is killed.
func startOwn() (*Daemon, error) {
	dir, err := os.MkdirTemp("", "tendril-dockerd-")
	if err != nil {
		return nil, err
	}
	type result struct {
		daemon *Daemon
		err    error
	}
	started := make(chan result)
	own.stop = make(chan struct{})
	go func() {
		// The signal comes when the thread ends that started it (prctl(2)).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		d, err := Start(dir, os.Getenv("TENDRIL_TEST_BINARY"), Options{Attributes: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}})
		started <- result{d, err}
		<-own.stop
	}()
	r := <-started
	return r.daemon, r.err
}

// Main runs the tests of a package, ends their daemon, and returns the exit status.
func Main(m *testing.M) int {
	code := m.Run()
	own.Lock()
	defer own.Unlock()
	if own.daemon == nil {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := own.daemon.Stop(ctx)
	close(own.stop)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ending the tests' Docker daemon:", err)
		return 1
	}
	return code
}
