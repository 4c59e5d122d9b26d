//go:build linux

package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"tendril/api/wire"
	"tendril/capability"
	"tendril/fault"
	"tendril/run"
)

// serve serves one connection, and returns once all that belongs to it has ended.
func (s *Server) serve(ctx context.Context, conn net.Conn, p *peer) {
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := newConnection(conn, s.bounds.stall, cancel)
	defer c.close()
	lines := wire.NewLines(conn)
	request, err := s.receive(ctx, conn, lines, p)
	if err != nil {
		c.fail(nil, s.failure(err, false))
		return
	}
	answer := s.call(callCtx, c, conn, lines, cancel, p, request)
	if !answer.Authenticated {
		s.peers.slow(ctx, p)
	}
	var output json.RawMessage
	if answer.Err == nil {
		output, answer.Err = encode(answer.Output)
	}
	if answer.Err != nil {
		c.fail(answer.Row, s.failure(answer.Err, answer.Botanist))
		return
	}
	c.answer(answer.Row, output)
}

// receive reads the first line. Nothing was done of a call that it refuses, and there
// is nothing to record.
func (s *Server) receive(ctx context.Context, conn net.Conn, lines *wire.Lines, p *peer) (wire.Call, error) {
	deadline, stop := context.WithTimeout(ctx, s.bounds.firstLine)
	defer stop()
	// A deadline of the past ends a read that is under way.
	unblock := context.AfterFunc(deadline, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	line, err := lines.Next(smallCall)
	if errors.Is(err, wire.ErrTooLong) {
		select {
		case p.large <- struct{}{}:
			defer func() { <-p.large }()
			line, err = lines.Next(wire.LargestCall)
		case <-deadline.Done():
		}
	}
	unblock()
	switch {
	case ctx.Err() != nil:
		return wire.Call{}, fault.New(fault.Unavailable, "the Stem is ending")
	case deadline.Err() != nil: // also if the line came with it: the connection may have the deadline already
		return wire.Call{}, fault.New(fault.Unavailable, "no call came within %v", s.bounds.firstLine).
			WithHint("send the first line at once; large ones of one uid wait for each other")
	case errors.Is(err, wire.ErrTooLong):
		return wire.Call{}, fault.New(fault.Invalid, "the call is larger than %d bytes", wire.LargestCall)
	case err != nil:
		return wire.Call{}, fault.New(fault.Invalid, "the call ends before its first line does")
	}
	return wire.ParseCall(line)
}

// call has the kernel do what was asked for, while it passes on what the client says
// meanwhile.
func (s *Server) call(ctx context.Context, c *connection, conn net.Conn, lines *wire.Lines, cancel context.CancelFunc, p *peer, request wire.Call) Answer {
	box := newMailbox()
	in := &inbound{stdin: newStdin(box.addTaken), sizes: make(chan capability.Size, 1), cancel: cancel}
	ctx = capability.WithEvents(ctx, func(event run.Event) { c.send(wire.EventLine{Event: event}) })
	ctx = capability.WithProgress(ctx, box.setProgress)
	ctx = capability.WithInput(ctx, in.stdin)
	ctx = capability.WithResizes(ctx, in.sizes)

	var beside sync.WaitGroup
	over := make(chan struct{})
	beside.Go(func() { box.deliver(c, over) })
	beside.Go(func() { in.read(lines) })

	answer := s.kernel.Call(ctx, Caller{UID: p.uid, Token: request.Token}, request.Capability, request.Input)

	close(over)
	conn.SetReadDeadline(time.Unix(1, 0)) // of the past: it ends the read that is under way
	in.stdin.close()
	beside.Wait()
	if in.violation != nil {
		answer.Output, answer.Err = nil, in.violation
	}
	return answer
}

// inbound is what a client says after its first line.
type inbound struct {
	stdin  *stdin
	sizes  chan capability.Size // the latest
	cancel context.CancelFunc

	violation error // what was wrong with what the client said; to be read after read has returned
}

// read reads until the client or the call ends, or the client says something that
// nobody says. A client that is gone has cancelled its call.
func (in *inbound) read(lines *wire.Lines) {
	defer in.cancel()
	for {
		line, err := lines.Next(wire.LargestMessage)
		if errors.Is(err, wire.ErrTooLong) {
			in.violation = fault.New(fault.Invalid, "a line after the first is longer than %d bytes", wire.LargestMessage)
			return
		}
		if err != nil {
			return
		}
		if err := in.take(line); err != nil {
			in.violation = err
			return
		}
	}
}

func (in *inbound) take(line []byte) error {
	message, err := wire.ParseMessage(line)
	switch {
	case err != nil:
		return err
	case message.Stdin != nil:
		return in.stdin.add(message.Stdin)
	case message.StdinEnd:
		return in.stdin.end()
	case message.Cancel:
		in.cancel()
	default:
		select {
		case <-in.sizes: // it is out of date
		default:
		}
		in.sizes <- *message.Resize // only this goroutine sends
	}
	return nil
}

// failure is an error as the client may see it.
func (s *Server) failure(err error, botanist bool) wire.Failure {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Internal, "%w", err)
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			f = fault.New(fault.Unavailable, "the call was cancelled before it was done: %w", err)
		}
	}
	if f.Kind == fault.Internal && !botanist {
		reference := rand.Text()
		s.notice(fmt.Sprintf("internal error %s: %v", reference, err))
		return wire.Failure{Kind: fault.Internal, Detail: "something went wrong inside the Stem", Hint: "tell the Botanist the reference " + reference}
	}
	// What wraps a fault was not written for a caller.
	return wire.Failure{Kind: f.Kind, Detail: f.Detail, Rule: f.Rule, Hint: f.Hint}
}
