//go:build linux

package cgroup

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helperVariable turns the test binary into one of the processes that tests confine.
const helperVariable = "CGROUP_TEST_HELPER"

// groupPrefix names the groups of this test process.
var groupPrefix = "tendril-test-" + strconv.Itoa(os.Getpid()) + "-"

func TestMain(m *testing.M) {
	if role := os.Getenv(helperVariable); role != "" {
		os.Exit(helper(role))
	}
	code := m.Run()
	if left := ownGroups(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "tests left control groups: %q\n", left)
		code = 1
	}
	os.Exit(code)
}

// ownGroups lists the directories of groups that tests of this process made.
func ownGroups() []string {
	mounts, _, err := hostTree.read()
	if err != nil {
		return nil
	}
	var out []string
	for _, m := range mounts {
		dirs, _ := subtree(m.target)
		for _, d := range dirs {
			if strings.Contains(d, "/"+groupPrefix) {
				out = append(out, d)
			}
		}
	}
	return out
}

// helper waits for a line on standard input, so that it does nothing before it is in
// its group, then acts its role.
func helper(role string) int {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return 3
	}
	switch role {
	case "hog":
		block := make([]byte, 256<<20)
		for i := range len(block) / 4096 {
			block[i*4096] = 1
		}
		fmt.Println("done", block[4096])
	case "fork":
		n := 0
		for ; n < 200; n++ {
			c := exec.Command("/bin/sleep", "600")
			c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := c.Start(); err != nil {
				break
			}
		}
		fmt.Println("started", n)
		_, _ = io.Copy(io.Discard, in)
	case "burn":
		go func() {
			_, _ = io.Copy(io.Discard, in)
			os.Exit(0)
		}()
		//lint:ignore SA5002 it is there to burn
		for {
		}
	case "orphan":
		c := exec.Command("/bin/sh", "-c", "setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!")
		out, err := c.Output()
		if err != nil {
			return 4
		}
		fmt.Print("orphan ", string(out))
	case "bomb":
		_ = exec.Command("/bin/sh", "-c", "b() { b | b & }; b").Run()
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, in)
	case "hold":
		// Mapped and allocated directly, so that the Go heap has no part in it.
		anon, err := unix.Mmap(-1, 0, 32<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		if err != nil {
			return 4
		}
		fd, err := unix.MemfdCreate("held", 0)
		if err != nil {
			return 5
		}
		if err := unix.Fallocate(fd, 0, 0, 64<<20); err != nil {
			return 6
		}
		if _, err := unix.Dup(fd); err != nil { // the same file under a second number
			return 7
		}
		c := exec.Command("/bin/sleep", "600") // and in a second process
		c.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), "held")}
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			return 8
		}
		z := exec.Command("/bin/true")
		if err := z.Start(); err != nil { // and a zombie
			return 9
		}
		fmt.Println("holding", len(anon))
		_, _ = io.Copy(io.Discard, in)
	}
	return 0
}

// process is a helper that runs.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a helper that waits for go, and ends it with the test.
func start(t *testing.T, role string) *process {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = []string{helperVariable + "=" + role, "PATH=" + os.Getenv("PATH"), "GOMAXPROCS=1"}
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return &process{c, in, bufio.NewReader(out)}
}

func (p *process) proceed(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(p.in, "go\n"); err != nil {
		t.Fatal(err)
	}
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("helper said %q and ended: %v", s, err)
	}
	return strings.TrimSpace(s)
}

// group makes a group with the controllers, or skips the test by name.
func group(t *testing.T, limits Limits, controllers ...string) *Group {
	t.Helper()
	g, err := Create(groupPrefix+strings.ReplaceAll(t.Name(), "/", "_"), limits)
	if err != nil {
		t.Skipf("no control group here: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Kill(ctx); err != nil {
			t.Error(err)
		}
		if err := g.Delete(ctx); err != nil {
			t.Error(err)
		}
	})
	for _, c := range controllers {
		if _, ok := g.with(c); !ok {
			t.Skipf("this process may not use the %s controller: %q", c, g.Notes())
		}
	}
	return g
}
