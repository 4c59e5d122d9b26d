//go:build linux

package api

import (
	"io"
	"sync"

	"tendril/api/wire"
	"tendril/fault"
)

// stdin is what a client sent for the Sprout to read: at most [wire.StdinWindow] bytes
// of it at a time. A client whose end was cut off is not one that sent its end: Read
// then waits for close, so that nobody takes half of an input for the whole.
type stdin struct {
	taken func(n int) // told what was read; must not block

	mu     sync.Mutex
	change sync.Cond // on mu
	held   []byte
	ended  bool // the client sent the end
	closed bool
}

func newStdin(taken func(int)) *stdin {
	s := &stdin{taken: taken}
	s.change.L = &s.mu
	return s
}

// add appends what the client sent, and refuses what it had no room for.
func (s *stdin) add(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return fault.New(fault.Invalid, "stdin goes on after its end")
	case len(s.held)+len(data) > wire.StdinWindow:
		return fault.New(fault.Invalid, "more than %d bytes of stdin came before they were taken", wire.StdinWindow)
	}
	s.held = append(s.held, data...)
	s.change.Broadcast()
	return nil
}

// end says that nothing follows.
func (s *stdin) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return fault.New(fault.Invalid, "stdin ends twice")
	}
	s.ended = true
	s.change.Broadcast()
	return nil
}

// close ends all reading, without an end of the input.
func (s *stdin) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.held = nil
	s.change.Broadcast()
}

// Read implements [io.Reader].
func (s *stdin) Read(into []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.held) == 0 && !s.ended && !s.closed && len(into) > 0 {
		s.change.Wait()
	}
	switch {
	case s.closed:
		return 0, io.ErrClosedPipe
	case len(into) == 0:
		return 0, nil
	case len(s.held) == 0:
		return 0, io.EOF
	}
	n := copy(into, s.held)
	if s.held = s.held[n:]; len(s.held) == 0 {
		s.held = nil // its memory is not kept between bursts
	}
	s.taken(n)
	return n, nil
}
