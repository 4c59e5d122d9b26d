// Package client calls capabilities over the local socket of a Stem that serves.
//
// It promises that a call over the socket looks to its caller as one in the same
// process does: what travels in the context and what comes back are the same, faults
// with their kind, rule and hint included; that an answer which did not come is never
// taken for one; and that a token is sent to nobody but the Stem, see [Request]. It
// does not protect against whoever owns the directory of the socket: that is the Stem,
// by definition.
package client

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"reflect"
	"sync"
	"syscall"
	"time"

	"tendril/api/wire"
	"tendril/capability"
	"tendril/fault"
)

// Request is one call.
type Request struct {
	Socket string // absolute path

	// Token is presented as it is, whatever it is. It is sent only if the server runs
	// as root, as this account or as the owner of the socket's directory, and nobody
	// else could put another socket there; nil: this account's uid is all that is
	// presented.
	Token *string

	Capability string
	Input      any // of the capability's input type

	// Patience is how long to wait, once ctx has ended, for each next line of the Stem;
	// 0: 10 seconds.
	Patience time.Duration
}

const defaultPatience = 10 * time.Second

// Call makes one call and returns its output, of the capability's output type, and the
// row of the decision in the ledger, which is nil if there is none.
//
// Events and progress go to the sinks in ctx, and the Sprout's stdin and its terminal's
// sizes come from there, see package capability. When ctx ends, the Stem is asked to
// end the call in order, and its answer is waited for; whoever does not want to wait
// ends its process, and with the connection the call is cancelled. A connection that
// ends before the answer does, and a Stem that says nothing for [Request.Patience] when
// ctx has ended, are faults of the kind internal: what became of the call is not known.
func Call(ctx context.Context, r Request) (output any, row *int64, err error) {
	definition, err := capability.Lookup(r.Capability)
	if err != nil {
		return nil, nil, err
	}
	line, err := encode(r)
	if err != nil {
		return nil, nil, err
	}
	conn, err := dial(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	c := newCall(ctx, conn, cmp.Or(r.Patience, defaultPatience))
	defer c.close()
	c.begin(line)
	reply, err := c.await(ctx)
	if err != nil {
		return nil, nil, err
	}
	if reply.Error != nil {
		return nil, reply.Row, asFault(*reply.Error)
	}
	value := reflect.New(definition.Output)
	if err := wire.DecodeOutput(reply.Output, value.Interface()); err != nil {
		return nil, reply.Row, err
	}
	return value.Elem().Interface(), reply.Row, nil
}

// dial connects, and refuses a server that the token is not for.
func dial(ctx context.Context, r Request) (net.Conn, error) {
	var trusted []int
	if r.Token != nil {
		var err error
		if trusted, err = checkWay(r.Socket); err != nil {
			return nil, err
		}
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", r.Socket)
	if err != nil {
		return nil, unreachable(r.Socket, err)
	}
	if r.Token != nil {
		if err := checkPeer(conn, r.Socket, trusted); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

func unreachable(socket string, err error) error {
	f := fault.New(fault.Unavailable, "no Stem can be reached at %s: %w", socket, err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return f.WithHint("start one with `tendril serve`, or name its socket with --socket PATH")
	case errors.Is(err, fs.ErrPermission):
		return f.WithHint("this account may not open the socket; whoever serves says who may, with --socket-mode")
	default:
		return f.WithHint("look whether `tendril serve` still runs there")
	}
}

// asFault is a failure as the Stem meant it.
func asFault(f wire.Failure) error {
	switch f.Kind {
	case fault.Denied, fault.NeedsApproval, fault.NotFound, fault.Invalid, fault.Unavailable, fault.BrokenBoundary:
	default:
		f.Kind = fault.Internal
	}
	return &fault.Error{Kind: f.Kind, Detail: f.Detail, Rule: f.Rule, Hint: f.Hint}
}

// call is one call under way.
type call struct {
	conn   net.Conn
	lines  *wire.Lines
	ctx    context.Context // the caller's: what to send, and when to cancel
	room   *room
	over   chan struct{}
	beside sync.WaitGroup

	patience time.Duration // see Request

	sending sync.Mutex // one line at a time
}

func newCall(ctx context.Context, conn net.Conn, patience time.Duration) *call {
	return &call{conn: conn, lines: wire.NewLines(conn), ctx: ctx, room: newRoom(wire.StdinWindow), over: make(chan struct{}), patience: patience}
}

// close ends the call. All that belongs to it has ended then, but for a Read of stdin
// that does not return, see [capability.WithInput].
func (c *call) close() {
	close(c.over)
	c.room.close()
	c.conn.Close() // ends whoever writes to it
	c.beside.Wait()
}

// begin sends the call, and from then on what the caller has to say meanwhile. An error
// of a write shows in what is read: the server may have answered before it closed its
// end.
func (c *call) begin(line []byte) {
	input := capability.Input(c.ctx)
	c.beside.Go(func() {
		c.write(line)
		if input == nil {
			c.send(wire.Message{StdinEnd: true})
		} else {
			go c.pump(input) // not waited for, because of its Read
		}
		c.follow(capability.Resizes(c.ctx))
	})
}

// await returns the answer.
func (c *call) await(ctx context.Context) (wire.Reply, error) {
	shown := false
	defer func() {
		if shown { // what was done last is done
			capability.Progress(ctx, "", 0, 0)
		}
	}()
	hurry := func() { c.conn.SetReadDeadline(time.Now().Add(c.patience)) }
	defer context.AfterFunc(ctx, hurry)()
	for {
		if ctx.Err() != nil {
			hurry()
		}
		line, err := c.lines.Next(wire.LargestReply)
		if err != nil {
			return wire.Reply{}, c.unanswered(err)
		}
		reply, err := wire.ParseReply(line)
		switch {
		case err != nil:
			return wire.Reply{}, err
		case reply.Event != nil:
			capability.Emit(ctx, *reply.Event)
		case reply.Progress != nil:
			shown = true
			capability.Progress(ctx, reply.Progress.What, reply.Progress.Done, reply.Progress.Total)
		case reply.StdinTaken != nil:
			c.room.add(*reply.StdinTaken)
		default:
			return reply, nil
		}
	}
}

// unanswered is a call of which nobody says what became of it.
func (c *call) unanswered(err error) error {
	f := fault.New(fault.Internal, "the connection ended before the Stem had answered, so what became of the call is not known: %w", err)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f = fault.New(fault.Internal, "the Stem was asked to end the call and said nothing for %v, so what became of the call is not known: %w", c.patience, err)
	}
	return f.WithHint("`tendril run list` shows the runs there are")
}
