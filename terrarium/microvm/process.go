//go:build linux

package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/terrarium/confine"
	"tendril/terrarium/microvm/jail"
)

// process is the one that emulates a machine: it begins as the jail and becomes what the
// order names.
type process struct {
	cmd     *exec.Cmd
	orders  *os.File     // open until the machine is closed; the jail ends without it
	console confine.Tail // what the guest's kernel and its first process said
	said    confine.Tail // what the process itself said
	exited  chan struct{}
}

// startJail starts the process, which waits for its order: it can be put under its limits
// before it does anything.
func startJail(program string, passed []*os.File) (*process, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fault.New(fault.Unavailable, "opening a pipe for the machine: %w", err)
	}
	defer reader.Close()
	p := &process{orders: writer, exited: make(chan struct{})}
	cmd := exec.Command(program)
	cmd.Args = []string{jail.Name}
	cmd.Env = []string{} // nothing of the caller's environment reaches the machine
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = &p.console, &p.said
	cmd.WaitDelay = time.Second // for what the process left in the pipes
	cmd.ExtraFiles = append([]*os.File{reader}, passed...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // Ctrl-C is for the Stem, which ends the run in order
		Pdeathsig:  unix.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	confine.InUserNamespace(cmd.SysProcAttr, 0, 0)
	p.cmd = cmd
	started := make(chan error)
	go func() {
		// The process dies with the thread that started it, so the thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // that it ended is what counts
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(confine.StartError("the machine's process", err), writer.Close())
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

// ended reports whether the process is gone.
func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// diagnosisKept is how many bytes of each are shown.
const diagnosisKept = 1500

// lastWords is what the machine and its process said last, quoted: it may be anybody's.
func (p *process) lastWords() string {
	var parts []string
	for _, s := range []struct {
		who  string
		tail *confine.Tail
	}{{"its process", &p.said}, {"its console", &p.console}} {
		if text := withoutTraces(s.tail.String()); text != "" {
			parts = append(parts, fmt.Sprintf("%s said last: %q", s.who, text[max(0, len(text)-diagnosisKept):]))
		}
	}
	if len(parts) == 0 {
		return "it said nothing"
	}
	return strings.Join(parts, "; ")
}

// refusal is what the Stoma said of what it met inside, if it did.
func (p *process) refusal() string {
	_, said, _ := strings.Cut("\n"+p.console.String(), "\nstoma: ")
	line, _, _ := strings.Cut(said, "\n")
	return strings.TrimSpace(line)
}

// withoutTraces leaves out the lines of a kernel's stack traces, which would hide what it
// said before: they are indented after the time.
func withoutTraces(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		said := line
		if _, after, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(line, "[") {
			said = after
		}
		if !strings.HasPrefix(said, " ") {
			kept.WriteString(line)
		}
	}
	return strings.TrimSpace(kept.String())
}

// socketPair is a stream of which the first end does not block a thread.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fds[0], true)
	}
	if err != nil {
		return nil, nil, fault.New(fault.Unavailable, "opening a stream for the machine: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "carrier"), os.NewFile(uintptr(fds[1]), "carrier"), nil
}
