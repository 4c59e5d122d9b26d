package stoma

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"
)

// Stream is one two-way byte stream of a [Session]. Read and Write may be called
// at the same time from different goroutines; Writes are serialised.
type Stream struct {
	session *Session
	id      uint32
	by      Side
	over    chan struct{} // closed when the stream was reset or the session ended

	writing sync.Mutex // held by one Write, so that its bytes stay together

	// Everything below is guarded by session.mu.

	readable sync.Cond
	writable sync.Cond
	err      error // the reset, or why the session ended

	in       bytes.Buffer // received and not yet read
	window   int64        // bytes that the peer may still send
	read     int64        // bytes that were read; the window grows once it is used
	grant    int64        // credit that was given and not yet sent
	discard  bool         // drop what is still on its way
	peerDone bool         // the peer sent EOF or RESET
	peerEOF  bool         // it was EOF, and nobody reset the stream since
	peerCut  bool         // it was RESET; nothing may follow

	openHeader []byte
	mustOpen   bool
	mustReset  bool
	cut        bool // a RESET is to be sent, or was
	stopPeer   bool // after EOF, tell the peer that nobody reads its bytes
	resetFrame []byte
	out        []byte // what the Write that is going on has left to send
	credit     int64  // bytes that this side may still send
	mustEOF    bool
	closed     bool // CloseWrite or Reset was called
	localDone  bool // EOF or RESET was sent
	inControl  bool // queued in session.control
	inData     bool // queued in session.data
}

// ID is the stream's number. It is never used again in the session.
func (st *Stream) ID() uint32 { return st.id }

// Over is closed when the stream was reset by either side or the session ended.
// It stays open when the stream ends well.
func (st *Stream) Over() <-chan struct{} { return st.over }

// Read reads what the peer sent. It returns io.EOF after the peer's last byte,
// and a *[ResetError] or the session's error when the stream did not end well.
func (st *Stream) Read(p []byte) (int, error) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for st.in.Len() == 0 && st.err == nil && !st.peerDone && len(p) > 0 {
		st.readable.Wait()
	}
	if st.in.Len() == 0 {
		switch {
		case st.peerEOF:
			return 0, io.EOF
		case st.err != nil:
			return 0, st.err
		default:
			return 0, nil // p is empty
		}
	}
	n, _ := st.in.Read(p) // cannot fail: the buffer is not empty
	st.read += int64(n)
	st.giveCredit()
	return n, nil
}

// giveCredit lets the peer send again what was read. A stream whose first window
// was used gets the full one, so short streams stay small. s.mu is held.
func (st *Stream) giveCredit() {
	if st.peerDone || st.discard || st.err != nil {
		return
	}
	target := int64(FirstWindow)
	if st.read >= FirstWindow {
		target = MaxWindow
	}
	give := target - st.window - int64(st.in.Len())
	if give < target/4 {
		return
	}
	st.window += give
	st.grant += give
	st.session.queueControl(st)
}

// Write sends p. It returns when all of it was handed to the carrier, or with
// the error that ended the stream.
func (st *Stream) Write(p []byte) (int, error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.err != nil {
		return 0, st.err
	}
	if st.closed {
		return 0, io.ErrClosedPipe
	}
	st.out = p
	s.queueData(st)
	for len(st.out) > 0 && st.err == nil && !st.closed {
		st.writable.Wait()
	}
	left := len(st.out)
	st.out = nil
	if left > 0 {
		err := st.err
		if err == nil {
			err = io.ErrClosedPipe
		}
		return len(p) - left, err
	}
	return len(p), nil
}

// CloseWrite ends this side's bytes; the peer reads io.EOF after them. It does
// not wait, and what the peer sends can still be read. A Write that is going on
// in another goroutine is cut.
func (st *Stream) CloseWrite() error {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.closed {
		return nil
	}
	st.closed = true
	st.mustEOF = true
	st.out = nil
	st.writable.Broadcast()
	s.queueData(st)
	return nil
}

// Reset ends the stream in both directions at once and tells the peer why.
// What was received and not read is dropped.
func (st *Stream) Reset(code Code, text string) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.err != nil {
		return
	}
	if !st.cut && (!st.localDone || !st.peerDone) {
		st.sendReset(code, cutReason(text))
	}
	st.drop()
	st.end(&ResetError{Code: code, Text: cutReason(text)})
}

// Close ends the stream as a connection is closed: what this side has written
// still arrives, then EOF; what the peer sends is dropped, and the peer told so.
func (st *Stream) Close() error {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.err != nil {
		return nil
	}
	switch {
	case !st.localDone:
		st.mustEOF, st.stopPeer, st.discard = true, true, true
		st.out = nil
		st.drop()
		st.end(io.ErrClosedPipe)
		s.queueData(st)
	case !st.peerDone:
		st.sendReset(CodeCanceled, "")
		fallthrough
	default:
		st.drop()
		st.end(io.ErrClosedPipe)
	}
	return nil
}

// sendReset queues a RESET in place of whatever was left to send. s.mu is held.
func (st *Stream) sendReset(code Code, text string) {
	st.discard, st.cut, st.mustReset = true, true, true
	st.mustEOF = false
	st.resetFrame = append(binary.BigEndian.AppendUint16(nil, uint16(code)), text...)
	st.session.queueControl(st)
}

// drop forgets what was received. s.mu is held.
func (st *Stream) drop() {
	st.in = bytes.Buffer{}
	st.peerEOF = false
}

// end wakes everybody who waits on the stream. What was received can still be
// read. s.mu is held.
func (st *Stream) end(err error) {
	if st.err != nil {
		return
	}
	st.err = err
	st.closed = true
	close(st.over)
	st.readable.Broadcast()
	st.writable.Broadcast()
}

// receive takes the payload of a DATA frame. s.mu is held.
func (st *Stream) receive(p []byte) error {
	if st.peerDone {
		return violation("data after the end of a stream")
	}
	if int64(len(p)) > st.window {
		return violation("data beyond credit")
	}
	st.window -= int64(len(p))
	if !st.discard {
		st.in.Write(p)
		st.readable.Broadcast()
	}
	return nil
}

// peerReset takes the payload of a RESET. After an EOF it means no more than that
// the peer reads nothing any more: what it sent is whole. The answer is a RESET, unless this side
// has finished: only then do both sides know that the stream is over. s.mu is
// held.
func (st *Stream) peerReset(p []byte) {
	st.peerDone, st.peerCut = true, true
	if !st.peerEOF {
		st.drop()
	}
	if !st.localDone && !st.cut {
		st.sendReset(CodeCanceled, "")
	}
	st.end(&ResetError{Code: Code(binary.BigEndian.Uint16(p)), Text: string(p[2:]), Peer: true})
	st.session.settle(st)
}

// appendControl takes the stream's OPEN, CREDIT and RESET. s.mu is held.
func (st *Stream) appendControl(buf []byte) []byte {
	if st.mustOpen {
		st.mustOpen = false
		buf = appendFrame(buf, frameOpen, st.id, uint32(len(st.openHeader)), st.openHeader)
		st.openHeader = nil
		st.session.queueData(st)
	}
	if st.grant > 0 && !st.peerDone && !st.discard {
		buf = appendFrame(buf, frameCredit, st.id, uint32(st.grant), nil)
		st.grant = 0
	}
	if st.mustReset {
		st.mustReset = false
		st.localDone = true
		buf = appendFrame(buf, frameReset, st.id, uint32(len(st.resetFrame)), st.resetFrame)
		st.resetFrame = nil
	}
	return buf
}

// sendable reports whether the stream has data or its end to send, and may.
func (st *Stream) sendable() bool {
	if st.mustOpen || st.cut || st.localDone {
		return false
	}
	return len(st.out) > 0 && st.credit > 0 || len(st.out) == 0 && st.mustEOF
}

// appendData takes one frame of data, or the end. s.mu is held.
func (st *Stream) appendData(buf []byte) []byte {
	if !st.sendable() {
		return buf
	}
	if len(st.out) == 0 {
		st.localDone = true
		st.mustEOF = false
		if st.stopPeer && !st.peerDone {
			st.sendReset(CodeCanceled, "")
		}
		return appendFrame(buf, frameEOF, st.id, 0, nil)
	}
	n := min(int64(len(st.out)), st.credit, MaxPayload)
	buf = appendFrame(buf, frameData, st.id, uint32(n), st.out[:n])
	st.out = st.out[n:]
	st.credit -= n
	if len(st.out) == 0 {
		st.writable.Broadcast()
	}
	return buf
}
