package stoma

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"tendril/fault"
)

// Process is a command that runs inside.
type Process struct {
	Stdin  io.WriteCloser // Close is end of file
	Stdout io.Reader      // with a terminal, everything the terminal shows
	Stderr io.Reader      // empty with a terminal

	client *Client
	exec   *Stream
	stderr *Stream // nil with a terminal
	wait   *Stream

	started chan error // the answer to the request; buffered
	exited  chan struct{}
	exit    Exit  // valid once exited is closed
	err     error // valid once exited is closed
}

// Exec starts a command as the Sprout and returns when it runs. A command that
// does not start is an *[ExecError]. ctx bounds the start alone.
//
// Stdout and Stderr have to be read, or the command stalls at its pipe. The
// answer of Wait does not depend on them.
func (c *Client) Exec(ctx context.Context, r ExecRequest) (*Process, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	p := &Process{client: c, started: make(chan error, 1), exited: make(chan struct{})}
	if err := p.open(r); err != nil {
		p.reset()
		return nil, err
	}
	c.tasks.Go(func() { p.follow(r.Argv[0]) })
	select {
	case err := <-p.started:
		if err != nil {
			p.reset()
			return nil, c.judge(err)
		}
		return p, nil
	case <-ctx.Done():
		p.reset()
		return nil, ctx.Err()
	}
}

func (p *Process) open(r ExecRequest) (err error) {
	if p.exec, err = p.client.session.Open(r.header()); err != nil {
		return err
	}
	p.Stdin, p.Stdout, p.Stderr = &stdin{p.exec}, p.exec, strings.NewReader("")
	if r.TTY == nil {
		if p.stderr, err = p.client.session.Open(p.header(StreamStderr)); err != nil {
			return err
		}
		_ = p.stderr.CloseWrite() // never fails
		p.Stderr = p.stderr
	}
	if p.wait, err = p.client.session.Open(p.header(StreamWait)); err != nil {
		return err
	}
	_ = p.wait.CloseWrite() // never fails
	return nil
}

func (p *Process) header(kind string) []byte {
	return AppendUint(AppendBytes(nil, kind), uint64(p.exec.ID()))
}

// follow reads the wait stream: whether the command started, then how it ended.
func (p *Process) follow(name string) {
	defer close(p.exited)
	br := bufio.NewReader(p.wait)
	f, err := ReadMessage(br, 1024)
	if err == nil {
		err = parseStart(f, name)
	} else if err == io.EOF {
		err = violation("exec without an answer")
	}
	p.started <- err
	if err != nil {
		p.err = err
		return
	}
	f, err = ReadMessage(br, 1024)
	switch err {
	case nil:
		p.exit, p.err = parseExit(f)
	case io.EOF:
		p.err = violation("wait without an answer")
	default:
		p.err = err
	}
	// The answer is whole. If the stream breaks after it, it stays the answer.
	if err := expectEnd(br); p.err == nil && fault.Is(err, fault.BrokenBoundary) {
		p.err = err
	}
	if p.err != nil {
		p.err = p.client.judge(p.err)
	}
}

// Wait returns how the command ended. By then the guest has killed its whole
// tree. It may be called more than once.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.exited:
		return p.exit, p.err
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
}

// Signal sends signal n to the command's process group. A command that has
// ended already is no error.
func (p *Process) Signal(ctx context.Context, n int) error {
	if n < 1 || n > 64 {
		return fmt.Errorf("signal %d is out of range", n)
	}
	return p.control(ctx, AppendUint(p.header(StreamSignal), uint64(n)))
}

// Resize sets the size of the command's terminal.
func (p *Process) Resize(ctx context.Context, rows, cols uint16) error {
	return p.control(ctx, appendSize(p.header(StreamResize), Size{Rows: rows, Cols: cols}))
}

func (p *Process) control(ctx context.Context, header []byte) error {
	err := p.client.ask(ctx, header, end)
	var reset *ResetError
	if errors.As(err, &reset) && reset.Peer && reset.Code == CodeNotFound {
		return nil
	}
	return err
}

// Close ends the command, when it still runs, with its whole tree, and drops
// what was not read. Without a Close a Process keeps its streams until both its
// ends are reached.
func (p *Process) Close() error {
	p.reset()
	<-p.exited
	return nil
}

func (p *Process) reset() {
	for _, st := range []*Stream{p.wait, p.exec, p.stderr} {
		if st != nil {
			st.Reset(CodeCanceled, "")
		}
	}
}

// stdin is a stream whose Close ends one direction.
type stdin struct{ st *Stream }

func (s *stdin) Write(b []byte) (int, error) { return s.st.Write(b) }
func (s *stdin) Close() error                { return s.st.CloseWrite() }
