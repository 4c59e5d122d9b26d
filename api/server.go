//go:build linux

// Package api serves the Stem's capabilities on a Unix socket, one call per connection;
// package wire has the lines that both ends write.
//
// It promises that what the kernel is told of a caller is proven or marked as a token
// still to be judged; that a client which floods, stalls, leaves or sends nonsense
// costs no more than its own call, a bounded amount of memory and a bounded time; and
// that a call whose client is gone is cancelled. It decides nothing: every call goes to
// the kernel, those for capabilities that do not exist included, so that the refusal is
// recorded. It does not hide calls from root, nor from who can trace the process at
// either end.
package api

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"tendril/fault"
)

// Caller is what a peer proved, and what it presents.
type Caller struct {
	UID   int     // of the peer's process when it connected, from the kernel, in this process's user namespace
	Token *string // what the peer sent as a token, not checked in any way; nil: none
}

// Kernel does what callers ask for. It is called from many goroutines.
type Kernel interface {
	// Call authenticates the caller, decides, records and does. input is JSON that
	// nobody has looked at yet but for its form. Events, stdin, terminal sizes and
	// progress travel in ctx, see package capability. When ctx ends, the call ends in
	// order and still has an answer.
	Call(ctx context.Context, caller Caller, capability string, input []byte) Answer
}

// Answer is what came of a call.
type Answer struct {
	Row    *int64 // the decision's row in the ledger; nil if there is none
	Output any    // of the capability's output type
	Err    error  // if it is not nil, there is no Output

	Authenticated bool // the caller proved to be somebody
	Botanist      bool // the Botanist, who may read what went wrong inside
}

// Server serves connections. It is made by [NewServer].
type Server struct {
	kernel Kernel
	notice func(string)
	bounds bounds
	peers  peers
}

// bounds are how much, and for how long, a client may occupy the server.
type bounds struct {
	connections int           // at once
	kept        int           // of those, for the uid that the server runs as, so that its owner can always call
	perUID      int           // at once
	largeCalls  int           // first lines above smallCall that one uid may be sending at once
	firstLine   time.Duration // until the first line is complete
	stall       time.Duration // until the client has taken writePiece bytes
	denial      time.Duration // between the answers to callers of one uid who are nobody
}

const (
	smallCall  = 64 << 10
	writePiece = 64 << 10
)

// NewServer returns a server for the kernel. notice is told what a person has to know
// and no caller may; it is called from several goroutines.
func NewServer(kernel Kernel, notice func(string)) *Server {
	return newServer(kernel, notice, bounds{
		connections: 512,
		kept:        32,
		perUID:      128,
		largeCalls:  4,
		firstLine:   10 * time.Second,
		stall:       time.Minute,
		denial:      50 * time.Millisecond,
	})
}

func newServer(kernel Kernel, notice func(string), b bounds) *Server {
	return &Server{kernel: kernel, notice: notice, bounds: b, peers: peers{bounds: b, owner: os.Geteuid(), byUID: map[int]*peer{}}}
}

// Serve serves the connections of a Unix listener until ctx ends, and returns once
// every call has ended. The calls' contexts end with ctx; their answers are still sent.
// How long to wait for that is the caller's to say. The listener is closed in any case.
// The error is nil if ctx ended.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer listener.Close()
	defer stop()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if isPassing(err) {
			s.notice("the socket takes no connections for now: " + err.Error())
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		if err != nil {
			return fault.New(fault.Unavailable, "accepting connections: %w", err)
		}
		s.admit(ctx, conn, &calls)
	}
}

// acceptPause is how long an accept is not tried again after the host had nothing left
// to do it with.
const acceptPause = 100 * time.Millisecond

// isPassing says whether accept(2) failed for want of something that others may give
// back.
func isPassing(err error) bool {
	for _, passing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// admit begins to serve a connection, or turns it away.
func (s *Server) admit(ctx context.Context, conn net.Conn, calls *sync.WaitGroup) {
	uid, err := peerUID(conn)
	var p *peer
	if err == nil {
		p, err = s.peers.enter(uid)
	}
	if err != nil {
		// Its buffer is empty, so that the write does not wait for the peer.
		c := newConnection(conn, s.bounds.stall, func() {})
		c.fail(nil, s.failure(err, false))
		c.close()
		return
	}
	calls.Go(func() {
		defer s.peers.leave(p)
		s.serve(ctx, conn, p)
	})
}
