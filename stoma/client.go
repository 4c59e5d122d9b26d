package stoma

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"tendril/fault"
)

// Options are the host's choices for a session.
type Options struct {
	// Version is what this program calls itself in its HELLO.
	Version string

	// Conn takes a connection that was accepted on a loopback listener inside,
	// on its own goroutine. c is closed when it returns, which has to be soon
	// after c fails. Nil refuses every connection.
	Conn func(listener string, c *Stream)

	// MaxConns is how many connections may be open at once; more are refused.
	// 0 is 128. With MaxWindow it bounds the memory that a guest can take.
	MaxConns int
}

// Client is the host's half of a Stoma. Its methods may be called from any
// goroutine. An error of kind broken-boundary means that the guest lied; the
// session is over then.
type Client struct {
	session *Session
	hello   Hello
	tasks   sync.WaitGroup // connections, and followers of processes
	slots   chan struct{}
	conn    func(string, *Stream)
}

// Connect shakes hands over rw, which the Client owns from then on: also when
// Connect fails it is closed. Closing rw must end a Read or Write that is going
// on.
func Connect(ctx context.Context, rw io.ReadWriteCloser, o Options) (*Client, error) {
	if o.MaxConns == 0 {
		o.MaxConns = 128
	}
	c := &Client{slots: make(chan struct{}, o.MaxConns), conn: o.Conn}
	accept := c.accept
	if o.Conn == nil {
		accept = nil
	}
	c.session = NewSession(rw, Host, o.Version, accept)
	hello, err := c.session.Ready(ctx)
	if err != nil {
		_ = c.session.Close() // the same error
		return nil, err
	}
	c.hello = hello
	return c, nil
}

// Hello is what the guest half said about itself.
func (c *Client) Hello() Hello { return c.hello }

// accept takes a stream that the guest opened. It does not block.
func (c *Client) accept(st *Stream, f *Fields) {
	kind, listener := f.Text(), f.Text()
	if f.End() != nil || kind != StreamConn {
		st.Reset(CodeUnsupported, "only connections may be opened from inside")
		return
	}
	select {
	case c.slots <- struct{}{}:
	default:
		st.Reset(CodeRefused, "too many connections")
		return
	}
	c.tasks.Go(func() {
		defer func() { <-c.slots }()
		defer st.Close()
		c.conn(listener, st)
	})
}

// Done is closed when the session is over.
func (c *Client) Done() <-chan struct{} { return c.session.Done() }

// Err says why the session is over, and nil while it is not.
func (c *Client) Err() error { return c.session.Err() }

// Close ends the session and waits for the goroutines it had. It does not ask
// the guest for anything: its PID 1 ends when the carrier does, and everything
// inside with it.
func (c *Client) Close() error {
	err := c.session.Close()
	c.tasks.Wait()
	return err
}

// ask opens a stream, says that nothing follows, and hands the answer to read.
// When ctx ends the stream is reset.
func (c *Client) ask(ctx context.Context, header []byte, read func(*Stream) error) error {
	st, err := c.session.Open(header)
	if err != nil {
		return err
	}
	_ = st.CloseWrite() // never fails
	return c.settle(ctx, st, read)
}

// settle runs read until it ends or ctx does. A violation ends the session.
func (c *Client) settle(ctx context.Context, st *Stream, read func(*Stream) error) error {
	stop := context.AfterFunc(ctx, func() { st.Reset(CodeCanceled, "") })
	err := read(st)
	if !stop() && err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		st.Reset(CodeCanceled, "")
		return c.judge(err)
	}
	return nil
}

// judge ends the session when err is a violation, and names a peer's refusal.
func (c *Client) judge(err error) error {
	if fault.Is(err, fault.BrokenBoundary) {
		c.session.fail(err)
		return err
	}
	var reset *ResetError
	if errors.As(err, &reset) && reset.Peer {
		return fault.New(fault.Unavailable, "the Terrarium refused: %w", err)
	}
	return err
}

// end is a read for answers that are no more than the end of the stream.
func end(st *Stream) error { return expectEnd(st) }

// expectEnd reads the end of a stream.
func expectEnd(r io.Reader) error {
	var b [1]byte
	switch _, err := r.Read(b[:]); err {
	case io.EOF:
		return nil
	case nil:
		return violation("data where none belongs")
	default:
		return err
	}
}

// Collect sends every entry of the workspace that differs from the base to sink,
// one at a time, in an order in which a directory comes before what is in it.
// The guest kills every process first. A sink that returns an error ends the
// collection with it. When Collect returns an error the collection is
// incomplete, whatever sink has seen.
func (c *Client) Collect(ctx context.Context, sink func(Record) error) (Summary, error) {
	var summary Summary
	err := c.ask(ctx, AppendBytes(nil, StreamCollect), func(st *Stream) (err error) {
		summary, err = readRecords(st, sink)
		return err
	})
	if err != nil {
		return Summary{}, err
	}
	return summary, nil
}

// Put unpacks the tar into the directory dir of the workspace ("" is its root)
// as the Sprout would. What the tar holds replaces what is there.
func (c *Client) Put(ctx context.Context, dir string, tar io.Reader) error {
	return c.send(ctx, AppendBytes(AppendBytes(nil, StreamPut), dir), tar)
}

// Plant brings the base into the empty workspace of a Terrarium that was made without it,
// before anything else: a tar in which a directory comes before what is in it, with
// files, directories and symbolic links, whose times and modes are kept. Collect compares with it.
func (c *Client) Plant(ctx context.Context, tar io.Reader) error {
	return c.send(ctx, AppendBytes(nil, StreamBase), tar)
}

// send gives the guest a tar, and waits until it took all of it.
func (c *Client) send(ctx context.Context, header []byte, tar io.Reader) error {
	st, err := c.session.Open(header)
	if err != nil {
		return err
	}
	return c.settle(ctx, st, func(st *Stream) error {
		_, err := io.Copy(struct{ io.Writer }{st}, tar)
		if err != nil {
			// The guest's reason, when it has one, says more than "closed".
			return fmt.Errorf("put files into the workspace: %w", err)
		}
		_ = st.CloseWrite() // never fails
		return expectEnd(st)
	})
}

// Stat asks what is going on inside.
func (c *Client) Stat(ctx context.Context) (Stat, error) {
	var stat Stat
	err := c.ask(ctx, AppendBytes(nil, StreamStat), func(st *Stream) error {
		br := bufio.NewReader(st)
		f, err := ReadMessage(br, 256)
		if err == io.EOF {
			err = violation("stat without an answer")
		}
		if err != nil {
			return err
		}
		if stat, err = parseStat(f); err != nil {
			return err
		}
		return expectEnd(br)
	})
	return stat, err
}

// Quiesce kills every process but PID 1 and returns when none is left. A
// command may be started again afterwards.
func (c *Client) Quiesce(ctx context.Context) error {
	return c.ask(ctx, AppendBytes(nil, StreamQuiesce), end)
}

// Shutdown is Quiesce, after which the guest starts nothing any more. The guest
// exits when the session is closed.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.ask(ctx, AppendBytes(nil, StreamShutdown), end)
}
