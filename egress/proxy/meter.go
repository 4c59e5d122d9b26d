package proxy

import (
	"sync"
	"sync/atomic"
)

// meter counts the bytes of a run against a limit.
type meter struct {
	limit          int64 // 0: none
	sent, received atomic.Int64
	once           sync.Once
	over           chan struct{} // closed once the limit was met
}

func newMeter(limit int64) *meter { return &meter{limit: limit, over: make(chan struct{})} }

// send counts bytes that are about to leave. It reports whether they may.
func (m *meter) send(n int) bool {
	ok := m.count(&m.sent, n)
	if !ok {
		m.sent.Add(int64(-n)) // they stay
	}
	return ok
}

// receive counts bytes that came in. It reports whether they may be used.
func (m *meter) receive(n int) bool { return m.count(&m.received, n) }

func (m *meter) count(of *atomic.Int64, n int) bool {
	of.Add(int64(n))
	if m.exhausted() {
		return false
	}
	if m.limit > 0 && m.sent.Load()+m.received.Load() > m.limit {
		m.once.Do(func() { close(m.over) })
		return false
	}
	return true
}

func (m *meter) exhausted() bool {
	select {
	case <-m.over:
		return true
	default:
		return false
	}
}
