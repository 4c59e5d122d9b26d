package microvm

import "sync"

// ring keeps the last bytes that were written to it. It is safe for concurrent use.
type ring struct {
	mu   sync.Mutex
	kept []byte
	next int  // where the next byte goes
	full bool // everything from next on is older than what is before
}

func newRing(size int) *ring { return &ring{kept: make([]byte, size)} }

// Write never fails and takes as long as a copy.
func (r *ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := p[max(0, len(p)-len(r.kept)):]
	for len(rest) > 0 {
		n := copy(r.kept[r.next:], rest)
		rest = rest[n:]
		if r.next += n; r.next == len(r.kept) {
			r.next, r.full = 0, true
		}
	}
	return len(p), nil
}

func (r *ring) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.full {
		return string(r.kept[:r.next])
	}
	return string(r.kept[r.next:]) + string(r.kept[:r.next])
}
