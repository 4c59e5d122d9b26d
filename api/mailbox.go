//go:build linux

package api

import (
	"sync"

	"tendril/api/wire"
)

// mailbox holds what a client is to learn and nobody waits for: the latest progress,
// and how much stdin was taken. One goroutine sends it on.
type mailbox struct {
	mu       sync.Mutex
	progress *wire.Progress
	taken    int

	news chan struct{} // of capacity 1: there is something new
}

// takenBatch is how much stdin is taken before the client is told. The client still has
// room for the rest of its window then.
const takenBatch = wire.StdinChunk

func newMailbox() *mailbox { return &mailbox{news: make(chan struct{}, 1)} }

func (m *mailbox) setProgress(what string, done, total int64) {
	m.mu.Lock()
	m.progress = &wire.Progress{What: what, Done: done, Total: total}
	m.mu.Unlock()
	m.tell()
}

func (m *mailbox) addTaken(n int) {
	m.mu.Lock()
	m.taken += n
	enough := m.taken >= takenBatch
	m.mu.Unlock()
	if enough {
		m.tell()
	}
}

func (m *mailbox) tell() {
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// deliver sends what there is, until done is closed.
func (m *mailbox) deliver(to *connection, done <-chan struct{}) {
	for {
		select {
		case <-m.news:
		case <-done:
			return
		}
		m.mu.Lock()
		progress, taken := m.progress, 0
		m.progress = nil
		if m.taken >= takenBatch {
			taken, m.taken = m.taken, 0
		}
		m.mu.Unlock()
		if taken > 0 {
			to.send(wire.TakenLine{StdinTaken: taken})
		}
		if progress != nil {
			to.send(wire.ProgressLine{Progress: *progress})
		}
	}
}
