//go:build linux

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium/confine"
)

// process is the guest half: PID 1 of a namespace with all that the run starts.
type process struct {
	cmd     *exec.Cmd
	orders  *os.File
	carrier confine.Pipes
	stderr  *confine.Tail
	exited  <-chan struct{} // closed when it has been reaped
	once    sync.Once
}

// start starts the guest half, which waits until it is told its root: it can be put under
// its limits before it does anything.
func start(program string, args []string) (*process, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = []string{} // nothing of the caller's environment reaches the Sprout
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // Ctrl-C is for the Stem, which ends the run in order
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID,
	}
	if confine.Rootless() {
		// What mounts need, and to give it up; all other accounts lose it with the exec.
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SETPCAP}
	}
	confine.InUserNamespace(cmd.SysProcAttr, os.Getuid(), os.Getgid())
	p := &process{cmd: cmd, stderr: &confine.Tail{}}
	cmd.Stderr = p.stderr
	var err error
	if p.exited, err = confine.Launch(cmd, "the guest half of the Stoma "+program, p.connect); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) connect(ends *confine.Ends) error {
	stdin, stdout, carrier, err := ends.Carrier()
	if err != nil {
		return err
	}
	theirs, orders, err := ends.To()
	if err != nil {
		return err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.ExtraFiles = stdin, stdout, []*os.File{theirs}
	p.carrier, p.orders = carrier, orders
	return nil
}

// order tells it what to make its root of.
func (p *process) order(root stoma.HostRoot) error {
	return errors.Join(stoma.WriteMessage(p.orders, root.Message()), p.orders.Close())
}

// diagnoseTime is how long a guest half that failed to start may take to end.
const diagnoseTime = 10 * time.Second

// notStarted tells a caller that gave up from a guest half that failed, and turns the
// failure into what a person can act on.
func (p *process) notStarted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("opening a Terrarium on the host: %w", context.Cause(ctx))
	}
	ending, cancel := context.WithTimeoutCause(context.Background(), diagnoseTime, errors.New("it failed to start"))
	defer cancel()
	err = errors.Join(err, p.end(ending)) // and what it said is whole
	if said := strings.TrimSpace(p.stderr.String()); said != "" {
		err = fmt.Errorf("%w (it said: %q)", err, said)
	}
	return fault.New(fault.Unavailable, "the run did not start on the host: %w", err)
}

// kill ends it, and with it all that is in its PID namespace.
func (p *process) kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill() // it may have ended
	})
}

// end kills it and waits until nothing of it is left.
func (p *process) end(ctx context.Context) error {
	p.kill()
	p.carrier.Close()
	p.orders.Close()
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Unavailable, "the run on the host does not end: %w", context.Cause(ctx))
	}
}
