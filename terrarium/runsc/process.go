//go:build linux

package runsc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"tendril/fault"
	"tendril/terrarium/confine"
	"tendril/terrarium/runsc/keeper"
)

// process is one keeper and, through it, one sandbox.
type process struct {
	cmd     *exec.Cmd
	control *os.File       // closing it ends the sandbox
	stream  stdio          // the Stoma's bytes
	reports *bufio.Scanner // the keeper's
	stderr  *tail
	sentry  int // pids of the host; 0 before it runs
	gofer   int
	tasks   atomic.Pointer[keeper.Tasks] // what the sandbox's kernel counted last; nil before it did
	exited  chan struct{}                // closed when the keeper has been reaped
	once    sync.Once
	target  atomic.Pointer[confine.Held] // the sentry again, for whoever kills it meanwhile
}

// stdio is the pipe pair that the Stoma speaks on.
type stdio struct {
	io.ReadCloser
	io.WriteCloser
}

func (s stdio) Close() error {
	return errors.Join(s.WriteCloser.Close(), s.ReadCloser.Close())
}

// carrierSize is the capacity of each pipe of the Stoma, in bytes: what anybody may
// have (pipe(7)), and room for several of its batches.
const carrierSize = 1 << 20

// enlarge makes a pipe hold more, if it may: that is a matter of speed only, and an
// account has only so much for its pipes.
func enlarge(pipe *os.File) {
	// Not Fd, which would make reading it block a thread.
	if raw, err := pipe.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, carrierSize) })
	}
}

// startKeeper starts the keeper, which waits for its order: it can be put under its
// limits before it does anything.
func startKeeper(program string) (*process, error) {
	cmd := exec.Command(program)
	cmd.Args = []string{keeper.Name}
	cmd.Env = []string{} // nothing of the caller's environment reaches the sandbox
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // Ctrl-C is for the Stem, which ends the run in order
		Cloneflags: unix.CLONE_NEWNS,
	}
	if rootless() {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.Credential = &syscall.Credential{NoSetGroups: true}
	}
	p := &process{cmd: cmd, stderr: &tail{max: 8 << 10}, exited: make(chan struct{})}
	cmd.Stderr = p.stderr
	var ours, theirs []*os.File
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			return r, w, nil
		}
		closeAll(ours)
		closeAll(theirs)
		return nil, nil, fault.New(fault.Unavailable, "opening a pipe for the sandbox: %w", err)
	}
	stdin, toStoma, err := pipe()
	if err != nil {
		return nil, err
	}
	ours, theirs = append(ours, toStoma), append(theirs, stdin)
	fromStoma, stdout, err := pipe()
	if err != nil {
		return nil, err
	}
	ours, theirs = append(ours, fromStoma), append(theirs, stdout)
	controlEnd, control, err := pipe()
	if err != nil {
		return nil, err
	}
	ours, theirs = append(ours, control), append(theirs, controlEnd)
	status, statusEnd, err := pipe()
	if err != nil {
		return nil, err
	}
	ours, theirs = append(ours, status), append(theirs, statusEnd)

	for _, end := range []*os.File{toStoma, fromStoma} {
		enlarge(end)
	}
	cmd.Stdin, cmd.Stdout = stdin, stdout
	cmd.ExtraFiles = []*os.File{controlEnd, statusEnd}
	err = cmd.Start()
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return nil, startError(program, err)
	}
	p.control, p.stream, p.reports = control, stdio{fromStoma, toStoma}, bufio.NewScanner(status)
	go func() {
		cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// order tells the keeper what to keep, and waits until the sandbox runs.
func (p *process) order(ctx context.Context, o keeper.Order) error {
	line, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("ordering the sandbox: %w", err)
	}
	if _, err := p.control.Write(append(line, '\n')); err != nil {
		return p.diagnose(fmt.Errorf("ordering the sandbox: %w", err))
	}
	stop := context.AfterFunc(ctx, func() { p.kill() })
	defer stop()
	for p.reports.Scan() {
		report, err := parseReport(p.reports.Bytes())
		if err != nil {
			return p.notStarted(ctx, err)
		}
		if report.Started {
			p.sentry, p.gofer = report.Sentry, report.Gofer
			target, err := confine.Hold(p.sentry)
			if err != nil || target == nil {
				return p.notStarted(ctx, errors.Join(err, errors.New("it ended at once")))
			}
			p.target.Store(target)
			go p.listen()
			return nil
		}
	}
	return p.notStarted(ctx, errors.New("its keeper ended before it ran"))
}

// notStarted tells a caller that gave up from a sandbox that failed.
func (p *process) notStarted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("opening the sandbox: %w", context.Cause(ctx))
	}
	return p.diagnose(err)
}

func parseReport(line []byte) (keeper.Report, error) {
	var report keeper.Report
	if err := json.Unmarshal(line, &report); err != nil {
		return report, fmt.Errorf("reading the keeper's report: %w", err)
	}
	if report.Error != "" {
		return report, errors.New(report.Error)
	}
	return report, nil
}

// listen follows the reports of a running sandbox. It ends with the keeper, whose
// exit is what counts: a report of its failure adds nothing.
func (p *process) listen() {
	for p.reports.Scan() {
		if report, err := parseReport(p.reports.Bytes()); err == nil && report.Tasks != nil {
			p.tasks.Store(report.Tasks)
		}
	}
}

// diagnoseTime is how long a sandbox that failed to start may take to end.
const diagnoseTime = 10 * time.Second

// diagnose ends a sandbox that failed to start, and turns the failure into what a
// person can act on. What the Stoma said is what it met inside and refused.
func (p *process) diagnose(err error) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), diagnoseTime, errors.New("it failed to start"))
	defer cancel()
	err = errors.Join(err, p.end(ctx)) // and what it said is whole
	said := strings.TrimSpace(p.stderr.String())
	if _, refusal, ok := strings.Cut("\n"+said, "\nstoma: "); ok {
		return fault.New(fault.BrokenBoundary, "the Stoma does not work in what was made for it: %s: %w", refusal, err)
	}
	if said != "" {
		err = fmt.Errorf("%w (it said: %q)", err, said)
	}
	return fault.New(fault.Unavailable, "the gVisor sandbox did not start: %w", err)
}

func startError(program string, err error) error {
	f := fault.New(fault.Unavailable, "starting the sandbox's keeper %s: %w", program, err)
	if rootless() && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EUSERS)) {
		return f.WithHint("%s", userNamespaceRemedy())
	}
	return f
}

// kill ends the sandbox from outside, at once.
func (p *process) kill() {
	p.once.Do(func() {
		if target := p.target.Load(); target != nil {
			_ = target.Signal(unix.SIGKILL) // its keeper ends it as well
		}
		p.control.Close()
	})
}

// end kills the sandbox and waits until its keeper has removed what it held.
func (p *process) end(ctx context.Context) error {
	p.kill()
	p.stream.Close()
	defer func() {
		if target := p.target.Swap(nil); target != nil {
			target.Release()
		}
	}()
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		p.cmd.Process.Kill() // the sentry and the gofer die with their keeper
		<-p.exited
		return fmt.Errorf("the sandbox's keeper did not end in time and was killed: %w", context.Cause(ctx))
	}
}

func rootless() bool { return os.Geteuid() != 0 }

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// tail keeps the last bytes written to it. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
	max int
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.max; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
