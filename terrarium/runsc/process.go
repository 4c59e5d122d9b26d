//go:build linux

package runsc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	stream  confine.Pipes  // the Stoma's bytes
	reports *bufio.Scanner // the keeper's
	stderr  *confine.Tail
	sentry  int // pids of the host; 0 before it runs
	gofer   int
	tasks   atomic.Pointer[keeper.Tasks] // what the sandbox's kernel counted last; nil before it did
	exited  <-chan struct{}              // closed when the keeper has been reaped
	once    sync.Once
	target  atomic.Pointer[confine.Held] // the sentry again, for whoever kills it meanwhile
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
	confine.InUserNamespace(cmd.SysProcAttr, 0, 0)
	p := &process{cmd: cmd, stderr: &confine.Tail{}}
	cmd.Stderr = p.stderr
	var err error
	if p.exited, err = confine.Launch(cmd, "the sandbox's keeper "+program, p.connect); err != nil {
		return nil, err
	}
	return p, nil
}

// connect opens the pipes to the keeper.
func (p *process) connect(ends *confine.Ends) error {
	stdin, stdout, carrier, err := ends.Carrier()
	if err != nil {
		return err
	}
	controlEnd, control, err := ends.To()
	if err != nil {
		return err
	}
	statusEnd, status, err := ends.From()
	if err != nil {
		return err
	}
	p.cmd.Stdin, p.cmd.Stdout = stdin, stdout
	p.cmd.ExtraFiles = []*os.File{controlEnd, statusEnd}
	p.control, p.stream, p.reports = control, carrier, bufio.NewScanner(status)
	return nil
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
