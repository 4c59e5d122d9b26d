//go:build linux

package stem

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"tendril/run"
)

// tally is what one run has asked of the outside: sums for its record, and events.
type tally struct {
	events   *eventLog // nil: nobody follows
	telling  chan run.Event
	told     chan struct{}  // closed when all events are stored
	exceeded chan run.Limit // holds the limit once one is reached

	open   sync.RWMutex // for reading while something is told
	closed bool

	mu      sync.Mutex
	seen    map[string]*run.Reach // by destination
	asked   int
	refused int
	said    map[string]bool // once
}

const (
	// A request does not wait for its event to be stored: what decides is the ledger's row.
	// Events wait for each other this long, and so many may be waiting.
	tellEvery = 40 * time.Millisecond
	mostTold  = 1024
)

func newTally(events *eventLog) *tally {
	t := &tally{
		events: events, exceeded: make(chan run.Limit, 1), seen: map[string]*run.Reach{}, said: map[string]bool{},
		telling: make(chan run.Event, mostTold), told: make(chan struct{}),
	}
	go t.store() // ends with close
	return t
}

// store stores events in batches, until close.
func (t *tally) store() {
	defer close(t.told)
	for event := range t.telling {
		batch := []run.Event{event}
		late := time.NewTimer(tellEvery)
		for open := true; open && len(batch) < mostTold; {
			select {
			case event, more := <-t.telling:
				if open = more; more {
					batch = append(batch, event)
				}
			case <-late.C:
				open = false
			}
		}
		late.Stop()
		if t.events != nil {
			// That they could not be stored shows in the next thing that is.
			_ = t.events.append(context.Background(), batch...)
		}
	}
}

// tell hands an event over. It waits only when very many are waiting already. What is told
// after close, by a program inside that has not seen its end yet, is not stored.
func (t *tally) tell(data run.Data) {
	t.open.RLock()
	defer t.open.RUnlock()
	if !t.closed {
		t.telling <- run.Event{Data: data}
	}
}

// warn tells the Botanist something.
func (t *tally) warn(text string) { t.tell(run.Warning{Detail: text}) }

// close stores what is still to be told.
func (t *tally) close() {
	t.open.Lock()
	t.closed = true
	close(t.telling)
	t.open.Unlock()
	<-t.told
}

// count counts one more request, and says whether it may still be decided. Of one that is
// not allowed it remembers why.
func (t *tally) count(to, why string, allowed bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked++
	at := t.at(to)
	if allowed {
		at.Allowed++
	} else {
		refusedAt(at, why)
		t.refused++
	}
	if t.asked <= mostAsked && t.refused <= mostRefused {
		return true
	}
	t.exceed(run.Egress)
	return false
}

// longestRefusal is how many bytes of a reason a record keeps: it may hold names of a
// Sprout's choice.
const longestRefusal = 400

func refusedAt(at *run.Reach, why string) {
	if len(why) > longestRefusal {
		why = strings.ToValidUTF8(why[:longestRefusal], "") + "…"
	}
	at.Refused++
	at.Refusal = &why
}

// sum adds bytes, and moves a request that was permitted and then turned away.
func (t *tally) sum(to, why string, sent, received int64, refused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.at(to)
	at.Sent += sent
	at.Received += received
	if !refused {
		return
	}
	at.Allowed--
	refusedAt(at, why)
	if t.refused++; t.refused > mostRefused {
		t.exceed(run.Egress)
	}
}

// exceed says that a limit was reached, unless one was before.
func (t *tally) exceed(limit run.Limit) {
	select {
	case t.exceeded <- limit:
	default:
	}
}

// at is the sum of a destination. The caller holds the lock.
func (t *tally) at(to string) *run.Reach {
	if t.seen[to] == nil && len(t.seen) >= mostDestinations {
		to = "other"
	}
	if t.seen[to] == nil {
		t.seen[to] = &run.Reach{Destination: to}
	}
	return t.seen[to]
}

// once warns of something once for each run. It remembers a bounded number of things.
func (t *tally) once(text string) {
	if t.first(text) {
		t.warn(text)
	}
}

// first reports whether something is so for the first time in this run.
func (t *tally) first(what string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said[what] || len(t.said) >= mostDestinations {
		return false
	}
	t.said[what] = true
	return true
}

// limit delivers the limit that asking reached. It is silent for a nil reach.
func (r *reach) limit() <-chan run.Limit {
	if r == nil {
		return nil
	}
	return r.exceeded
}

// summary is what the record says of it.
func (r *reach) summary() []run.Reach {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []run.Reach{}
	for _, seen := range r.seen {
		list = append(list, *seen)
	}
	slices.SortFunc(list, func(a, b run.Reach) int { return strings.Compare(a.Destination, b.Destination) })
	return list
}
