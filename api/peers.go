//go:build linux

package api

import (
	"context"
	"sync"
	"time"

	"tendril/fault"
)

// peers counts the connections of each uid.
type peers struct {
	bounds bounds
	owner  int // the uid that the server runs as

	mu    sync.Mutex
	total int
	byUID map[int]*peer // those that have a connection
}

// peer is one uid, while it has connections.
type peer struct {
	uid   int
	large chan struct{} // has an element for each large first line under way

	connections int       // under peers.mu
	answered    time.Time // when the last answer to nobody goes out; under peers.mu
}

// enter counts one more connection of the uid. Each needs a [peers.leave].
func (p *peers) enter(uid int) (*peer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of, most := p.byUID[uid], p.bounds.connections
	if uid != p.owner {
		most -= p.bounds.kept
	}
	switch {
	case p.total >= most:
		return nil, fault.New(fault.Unavailable, "%d calls are under way, and no more are taken", p.total).
			WithHint("try again when some have ended")
	case of == nil:
		of = &peer{uid: uid, large: make(chan struct{}, p.bounds.largeCalls)}
		p.byUID[uid] = of
	case of.connections >= p.bounds.perUID:
		return nil, fault.New(fault.Unavailable, "%d calls of uid %d are under way, and no more are taken", of.connections, uid).
			WithHint("try again when some have ended")
	}
	p.total++
	of.connections++
	return of, nil
}

func (p *peers) leave(of *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	if of.connections--; of.connections == 0 {
		delete(p.byUID, of.uid)
	}
}

// slow waits for the turn of an answer to a caller who is nobody: one after the other
// for each uid, bounds.denial apart. Whoever waits keeps its connection, also when its
// client is gone, so that one uid can have no more than bounds.perUID refusals written
// at once, and from then on one in bounds.denial.
func (p *peers) slow(ctx context.Context, of *peer) {
	p.mu.Lock()
	turn := time.Now()
	if of.answered.After(turn) {
		turn = of.answered
	}
	turn = turn.Add(p.bounds.denial)
	of.answered = turn
	p.mu.Unlock()
	timer := time.NewTimer(time.Until(turn))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
