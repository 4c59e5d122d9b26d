//go:build linux

package source

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tendril/credential"
	"tendril/fault"
)

const (
	commandDeadline = 10 * time.Second
	commandKept     = 30 * time.Second // how long what a command wrote is used
)

// command is one program with its arguments, of which no two run at once.
type command struct {
	words []string
	busy  chan struct{} // holds one value while it runs

	mu     sync.Mutex
	kept   credential.Secret
	isKept bool
	timer  *time.Timer // forgets it
}

// command is the one for these words.
func (r *Reader) command(words credential.Command) *command {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := strings.Join(words, "\x00")
	if r.commands[key] == nil {
		r.commands[key] = &command{words: words, busy: make(chan struct{}, 1)}
	}
	return r.commands[key]
}

func (c *command) secret(ctx context.Context) (credential.Secret, error) {
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return credential.Secret{}, ctx.Err()
	}
	if secret, ok := c.known(); ok {
		return secret, nil
	}
	secret, err := run(ctx, c.words)
	if err == nil {
		c.keep(secret.Clone())
	}
	return secret, err
}

func (c *command) known() (credential.Secret, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Clone(), c.isKept
}

func (c *command) keep(secret credential.Secret) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept, c.isKept = secret, true
	c.timer = time.AfterFunc(commandKept, c.forget)
}

func (c *command) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.kept.Close()
	c.isKept = false
}

// run runs the program until it ends, with nothing but PATH and HOME, in a process
// group of its own of which nobody is left afterwards, and returns what it wrote. What
// it writes to its standard error may hold the secret, and is thrown away.
func run(ctx context.Context, words []string) (credential.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, commandDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // for a child that left the group and keeps the output open
	out := &bounded{space: make([]byte, credential.LongestSecret+3), full: cancel}
	defer clear(out.space)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		return credential.Secret{}, fault.New(fault.Unavailable, "it cannot be started: %w", withoutPath(notFound(err)))
	}
	awaitExit(cmd.Process.Pid)
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // its children; it is not reaped yet, so that the number is its own
	err := cmd.Wait()
	var failed *exec.ExitError
	switch {
	case out.isFull():
		return credential.Secret{}, fault.New(fault.Unavailable, "it wrote more than %d bytes", credential.LongestSecret)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return credential.Secret{}, fault.New(fault.Unavailable, "it did not end within %s", commandDeadline)
	case ctx.Err() != nil:
		return credential.Secret{}, ctx.Err()
	case errors.As(err, &failed):
		return credential.Secret{}, fault.New(fault.Unavailable, "it failed (%s)", failed.ProcessState).
			WithHint("run it by hand, as the Stem's account and with no more than PATH and HOME; what it says is not shown here, because it may hold the secret")
	case errors.Is(err, exec.ErrWaitDelay):
		return credential.Secret{}, fault.New(fault.Unavailable, "it left a process behind that keeps its output open")
	case err != nil:
		return credential.Secret{}, fault.New(fault.Unavailable, "its output cannot be read")
	}
	return credential.NewSecret(append([]byte(nil), withoutLineEnd(out.space[:out.used])...))
}

// notFound is why a program was not found, without the program.
func notFound(err error) error {
	var failed *exec.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// awaitExit waits for the end of a child and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// bounded takes what fits into its space, without a copy elsewhere.
type bounded struct {
	space []byte
	used  int
	full  func() // is called when it does not fit
}

func (b *bounded) isFull() bool { return b.used == len(b.space) }

// ReadFrom is what copying uses, so that no buffer in between holds the secret.
func (b *bounded) ReadFrom(from io.Reader) (int64, error) {
	before := b.used
	for !b.isFull() {
		n, err := from.Read(b.space[b.used:])
		b.used += n
		if err == io.EOF {
			return int64(b.used - before), nil
		}
		if err != nil {
			return int64(b.used - before), err
		}
	}
	b.full()
	return int64(b.used - before), io.ErrShortBuffer
}

// Write is never used: copying reads.
func (b *bounded) Write(bytes []byte) (int, error) {
	return 0, io.ErrShortBuffer
}
