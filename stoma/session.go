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

// ErrClosed is what streams and calls return after this half closed the
// session itself.
var ErrClosed = errors.New("the Stoma is closed")

// Side says which half a Session is. It decides the stream ids it hands out.
type Side uint32

// The host opens odd streams, the guest even ones.
const (
	Host  Side = 1
	Guest Side = 2
)

func (s Side) other() Side { return Host + Guest - s }

// Session multiplexes streams over one byte stream. Both halves use it. All
// methods may be called from any goroutine.
type Session struct {
	rw     io.ReadWriteCloser
	side   Side
	accept func(*Stream, *Fields)

	loops sync.WaitGroup
	ready chan struct{} // closed when the peer's hello is here
	done  chan struct{} // closed when the session is over

	mu      sync.Mutex
	wake    sync.Cond // the writer waits here for something to send
	err     error     // why the session is over
	hello   Hello     // the peer's
	streams map[uint32]*Stream
	open    [3]int    // open streams, by the side that opened them
	last    [3]uint32 // the last id opened, by side
	control []*Stream // streams with an OPEN, CREDIT or RESET to send
	data    []*Stream // streams with DATA or EOF that may be sent now
}

// NewSession starts a session over rw, which it owns from then on. accept is
// called for each stream that the peer opens, in order, from the goroutine that
// reads: it must not block. Without accept, whatever the peer opens is refused.
// version is what this half calls itself in its HELLO.
func NewSession(rw io.ReadWriteCloser, side Side, version string, accept func(*Stream, *Fields)) *Session {
	s := &Session{
		rw:      rw,
		side:    side,
		accept:  accept,
		ready:   make(chan struct{}),
		done:    make(chan struct{}),
		streams: make(map[uint32]*Stream),
	}
	s.wake.L = &s.mu
	s.loops.Go(s.read)
	s.loops.Go(func() { s.write(appendHello(nil, ourHello(version))) })
	return s
}

// Ready waits until the peer said HELLO and returns it. When ctx ends first the
// session is closed: half a handshake is of no use to anybody.
func (s *Session) Ready(ctx context.Context) (Hello, error) {
	select {
	case <-s.ready:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.hello, nil
	case <-s.done:
		return Hello{}, s.Err()
	case <-ctx.Done():
		s.fail(fault.New(fault.Unavailable, "the other half of the Stoma did not answer: %w", ctx.Err()))
		return Hello{}, s.Err()
	}
}

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the session is over, and nil while it is not.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and every stream, closes the carrier and waits for the
// goroutines that used it. The carrier's Close has to end its Read and Write.
func (s *Session) Close() error {
	s.fail(ErrClosed)
	s.loops.Wait()
	if err := s.Err(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// fail ends the session for the first reason that is given.
func (s *Session) fail(err error) {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = err
		close(s.done)
		for _, st := range s.streams {
			st.end(err)
		}
		s.wake.Broadcast()
	}
	s.mu.Unlock()
	if first {
		_ = s.rw.Close() // its error adds nothing to why the session is over
	}
}

// Open opens a stream with the header. It does not wait for the peer, which
// may answer with a reset.
func (s *Session) Open(header []byte) (*Stream, error) {
	if len(header) > MaxHeader {
		return nil, fault.New(fault.Invalid, "a request of %d bytes is over the Stoma's limit of %d", len(header), MaxHeader).
			WithHint("shorten the command line and the environment, or pass the text on standard input")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if s.open[s.side] >= MaxStreams {
		return nil, fault.New(fault.Unavailable, "%d streams of the Stoma are open already", MaxStreams)
	}
	id := s.last[s.side] + 2
	if s.last[s.side] == 0 {
		id = uint32(s.side)
	}
	if id < s.last[s.side] {
		return nil, fault.New(fault.Unavailable, "the Stoma has no stream ids left")
	}
	st := s.add(id, s.side)
	st.openHeader = append(make([]byte, 0, len(header)), header...)
	st.mustOpen = true
	s.queueControl(st)
	return st, nil
}

// add makes the stream id known. s.mu is held.
func (s *Session) add(id uint32, by Side) *Stream {
	st := &Stream{session: s, id: id, by: by, window: FirstWindow, credit: FirstWindow, over: make(chan struct{})}
	st.readable.L = &s.mu
	st.writable.L = &s.mu
	s.streams[id] = st
	s.open[by]++
	s.last[by] = id
	return st
}

// settle forgets a stream that both sides have finished. s.mu is held.
func (s *Session) settle(st *Stream) {
	if st.localDone && st.peerDone && s.streams[st.id] == st {
		delete(s.streams, st.id)
		s.open[st.by]--
	}
}

func (s *Session) queueControl(st *Stream) {
	if !st.inControl {
		st.inControl = true
		s.control = append(s.control, st)
		s.wake.Signal()
	}
}

func (s *Session) queueData(st *Stream) {
	if !st.inData && st.sendable() {
		st.inData = true
		s.data = append(s.data, st)
		s.wake.Signal()
	}
}

// write is the one goroutine that writes. What waits to be sent lives in the
// streams, not in a queue of frames, so a peer that does not read makes nothing
// grow.
func (s *Session) write(buf []byte) {
	for {
		if len(buf) > 0 {
			if _, err := s.rw.Write(buf); err != nil {
				s.fail(fault.New(fault.Unavailable, "the Stoma's carrier broke: %w", err))
				return
			}
		}
		s.mu.Lock()
		for s.err == nil && len(s.control) == 0 && len(s.data) == 0 {
			s.wake.Wait()
		}
		if s.err != nil {
			s.mu.Unlock()
			return
		}
		buf = s.batch(buf[:0])
		s.mu.Unlock()
	}
}

// maxBatch bounds what is written at once. A control frame waits for no more than
// one batch.
const maxBatch = 4 * MaxPayload

// batch takes what to send next: control frames first, then data, a frame of
// each stream in turn. Control frames cannot starve data: at least one frame of
// it goes with them. s.mu is held.
func (s *Session) batch(buf []byte) []byte {
	for len(s.control) > 0 && len(buf) < maxBatch {
		st := s.control[0]
		s.control = s.control[1:]
		st.inControl = false
		buf = st.appendControl(buf)
		s.settle(st)
	}
	for len(s.data) > 0 {
		st := s.data[0]
		s.data = s.data[1:]
		st.inData = false
		buf = st.appendData(buf)
		s.queueData(st)
		s.settle(st)
		if len(buf) >= maxBatch {
			break
		}
	}
	return buf
}

// read is the one goroutine that reads.
func (s *Session) read() {
	s.fail(s.readFrames())
}

func (s *Session) readFrames() error {
	br := bufio.NewReaderSize(s.rw, maxBatch)
	hello, err := readHello(br)
	if err != nil {
		return carrierError(err)
	}
	s.mu.Lock()
	s.hello = hello
	s.mu.Unlock()
	close(s.ready)
	fr := newFrameReader(br)
	for {
		f, err := fr.next()
		if err != nil {
			return carrierError(err)
		}
		if err := s.handle(f); err != nil {
			return err
		}
	}
}

func carrierError(err error) error {
	if fault.Is(err, fault.BrokenBoundary) {
		return err
	}
	return fault.New(fault.Unavailable, "the other half of the Stoma is gone: %w", err)
}

// handle applies one frame. A non-nil error ends the session.
func (s *Session) handle(f frame) error {
	if f.kind == frameOpen {
		return s.handleOpen(f)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	st := s.streams[f.stream]
	if st == nil {
		by := sideOf(f.stream)
		if s.last[by] == 0 || f.stream > s.last[by] {
			return violation("frame for a stream that was never opened")
		}
		// A credit or a reset may cross the end of the stream on its way.
		if f.kind == frameCredit || f.kind == frameReset {
			return nil
		}
		return violation("data after the end of a stream")
	}
	if st.peerCut {
		return violation("frame after a reset")
	}
	switch f.kind {
	case frameData:
		return st.receive(f.payload)
	case frameCredit:
		if uint64(st.credit)+uint64(f.length) > MaxWindow {
			return violation("credit overflow")
		}
		st.credit += int64(f.length)
		s.queueData(st)
	case frameEOF:
		if st.peerDone {
			return violation("data after the end of a stream")
		}
		st.peerDone = true
		st.peerEOF = !st.discard
		st.readable.Broadcast()
		s.settle(st)
	case frameReset:
		st.peerReset(f.payload)
	}
	return nil
}

func sideOf(id uint32) Side {
	if id%2 == 1 {
		return Host
	}
	return Guest
}

func (s *Session) handleOpen(f frame) error {
	peer := s.side.other()
	s.mu.Lock()
	if s.err != nil { // nobody would end a stream that is added now
		s.mu.Unlock()
		return s.err
	}
	if sideOf(f.stream) != peer || f.stream <= s.last[peer] {
		s.mu.Unlock()
		return violation("stream id out of order")
	}
	if s.open[peer] >= MaxStreams {
		s.mu.Unlock()
		return violation(fmt.Sprintf("more than %d open streams", MaxStreams))
	}
	st := s.add(f.stream, peer)
	s.mu.Unlock()
	if s.accept == nil {
		st.Reset(CodeRefused, "nothing may be opened from this side")
		return nil
	}
	s.accept(st, NewFields(append([]byte(nil), f.payload...)))
	return nil
}
