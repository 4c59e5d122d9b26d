//go:build linux

package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
	"tendril/fault"
	"tendril/terrarium/microvm/jail"
)

// process is the one that runs a machine: it begins as the jail and becomes what the
// order names.
type process struct {
	cmd     *exec.Cmd
	orders  *os.File // open until the machine runs; the jail ends without it
	said    *ring    // the console of the machine
	errors  *ring    // what the process itself says
	exited  chan struct{}
	failure error // how it ended; read after exited is closed
}

// Sizes of what is kept of a machine's words.
const (
	consoleKept = 16 << 10
	errorsKept  = 4 << 10
)

// startJail starts the process, which waits for its order: it can be put under its limits
// before it does anything. passed become its descriptors from jail.FirstFD on; they are
// the caller's to close.
func startJail(program string, passed []*os.File) (*process, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fault.New(fault.Unavailable, "opening a pipe for the machine: %w", err)
	}
	defer reader.Close()
	p := &process{orders: writer, said: newRing(consoleKept), errors: newRing(errorsKept), exited: make(chan struct{})}
	cmd := exec.Command(program)
	cmd.Args = []string{jail.Name}
	cmd.Env = []string{} // nothing of the caller's environment reaches the machine
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = p.said, p.errors
	cmd.ExtraFiles = append([]*os.File{reader}, passed...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // Ctrl-C is for the Stem, which ends the run in order
		Pdeathsig:  unix.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	if rootless() {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	p.cmd = cmd
	started := make(chan error)
	go func() {
		// The process dies with the thread that started it, so the thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.failure = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fault.New(fault.Unavailable, "starting the machine's process: %w", err), writer.Close())
	}
	return p, nil
}

// order tells the process what to become.
func (p *process) order(o jail.Order) error {
	line, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("ordering the machine: %w", err)
	}
	if len(line) >= jail.MaxOrder {
		return fault.New(fault.Invalid, "the order for the machine has %d bytes, more than %d", len(line), jail.MaxOrder)
	}
	if _, err := p.orders.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("ordering the machine: %w", err)
	}
	return nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the machine at once.
func (p *process) kill() { _ = p.cmd.Process.Kill() } // it may have ended

// end kills the machine and waits until it is gone.
func (p *process) end(ctx context.Context) error {
	p.kill()
	defer p.orders.Close()
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the machine's process does not end: %w", context.Cause(ctx))
	}
}

func rootless() bool { return os.Geteuid() != 0 }

// socketPair is a stream of which the first end does not block a thread.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fault.New(fault.Unavailable, "opening a stream for the machine: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "carrier"), os.NewFile(uintptr(fds[1]), "carrier"), nil
}

var _ io.Writer = (*ring)(nil)
