//go:build linux

package confine

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// Pipes is the Stoma's byte stream over two pipes.
type Pipes struct {
	io.ReadCloser
	io.WriteCloser
}

// Close ends both directions.
func (p Pipes) Close() error {
	return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close())
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

// Ends are the pipes between a wall and a process that it is going to start.
type Ends struct{ ours, theirs []*os.File }

func openPipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, fault.New(fault.Unavailable, "opening a pipe for the Terrarium: %w", err)
	}
	return r, w, nil
}

// To opens a pipe that the process reads.
func (e *Ends) To() (theirs, ours *os.File, err error) {
	if theirs, ours, err = openPipe(); err == nil {
		e.ours, e.theirs = append(e.ours, ours), append(e.theirs, theirs)
	}
	return theirs, ours, err
}

// From opens a pipe that the process writes.
func (e *Ends) From() (theirs, ours *os.File, err error) {
	if ours, theirs, err = openPipe(); err == nil {
		e.ours, e.theirs = append(e.ours, ours), append(e.theirs, theirs)
	}
	return theirs, ours, err
}

// Carrier opens the pipes of the Stoma: what the process has as standard input and output,
// and the wall's side of both.
func (e *Ends) Carrier() (stdin, stdout *os.File, carrier Pipes, err error) {
	stdin, in, err := e.To()
	if err != nil {
		return nil, nil, Pipes{}, err
	}
	stdout, out, err := e.From()
	if err != nil {
		return nil, nil, Pipes{}, err
	}
	enlarge(in)
	enlarge(out)
	return stdin, stdout, Pipes{out, in}, nil
}

// Started closes what is the process's, which has it by now.
func (e *Ends) Started() { closeAll(e.theirs) }

// Close closes everything: there is no process.
func (e *Ends) Close() {
	closeAll(e.ours)
	closeAll(e.theirs)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Tail keeps the last bytes written to it: what a process said. It is safe for concurrent
// use.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

// maxTail is how many bytes are kept.
const maxTail = 8 << 10

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(len(p)-maxTail, 0):]...)
	if over := len(t.buf) - maxTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
