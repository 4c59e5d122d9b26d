package state

import (
	"context"
	"database/sql"
	"slices"
	"sync"

	"tendril/fault"
	"tendril/ledger"
)

// MostEntries is the most that one call of [Store.Record] takes, and about the most rows
// that one transaction of several calls writes.
const MostEntries = 256

// Record writes entries to the ledger, in their order and with no row of anybody else
// between them, and returns their rows once they are on disk. Any error means that none
// of them was recorded.
//
// Calls that come while the disk is busy share the next transaction, and so one wait for
// the disk; if that fails, it fails for all of them. A call whose ctx ends while it waits
// for its turn returns ctx's error; once its turn has come it is carried out.
func (s *Store) Record(ctx context.Context, entries ...ledger.Entry) ([]ledger.Row, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	if len(entries) > MostEntries {
		return nil, fault.New(fault.Internal, "%d entries are more than %d", len(entries), MostEntries)
	}
	for _, entry := range entries { // here, so that it spoils nobody else's transaction
		if err := ledger.CheckEntry(entry); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &recording{entries: entries, done: make(chan struct{})}
	if !s.recorder.add(r, s.serveRecordings) {
		return nil, fault.New(fault.Internal, "record in the ledger: state database %s is closed", s.path)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if s.recorder.withdraw(r) {
			return nil, ctx.Err()
		}
		<-r.done
	}
	return r.rows, r.err
}

// recording is one call of Record. Whoever closes done has set rows and err before.
type recording struct {
	entries []ledger.Entry
	rows    []ledger.Row
	err     error
	done    chan struct{}
}

// recorder is the queue of calls that wait for a transaction. One goroutine serves it
// while it is not empty.
type recorder struct {
	mu      sync.Mutex
	queue   []*recording
	serving bool
	closed  bool
	server  sync.WaitGroup
}

// add queues a call and starts serve if nobody serves. It returns false after close.
func (q *recorder) add(r *recording, serve func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.queue = append(q.queue, r)
	if !q.serving {
		q.serving = true
		q.server.Go(serve)
	}
	return true
}

// withdraw takes a call out of the queue, and returns false if its turn has come.
func (q *recorder) withdraw(r *recording) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.queue, r)
	if i < 0 {
		return false
	}
	q.queue = slices.Delete(q.queue, i, i+1)
	return true
}

// more reports whether there is something to serve. If not, whoever asked has stopped
// serving.
func (q *recorder) more() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.serving = len(q.queue) > 0
	return q.serving
}

// take removes calls from the queue with at most [MostEntries] entries together.
func (q *recorder) take() []*recording {
	q.mu.Lock()
	defer q.mu.Unlock()
	count, entries := 0, 0
	for _, r := range q.queue {
		if entries += len(r.entries); entries > MostEntries {
			break
		}
		count++
	}
	taken := slices.Clone(q.queue[:count])
	q.queue = slices.Delete(q.queue, 0, count)
	return taken
}

// close refuses further calls and waits for those that are queued.
func (q *recorder) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.server.Wait()
}

func (s *Store) serveRecordings() {
	// No single caller's context: the transaction belongs to several.
	ctx := context.Background()
	for s.recorder.more() {
		var batch []*recording
		var rows []ledger.Row
		err := s.transact(ctx, "record in the ledger", func(tx *sql.Tx) error {
			// Only now, with the lock held: who came while we waited for it is part of it.
			batch = s.recorder.take()
			var entries []ledger.Entry
			for _, r := range batch {
				entries = append(entries, r.entries...)
			}
			var err error
			rows, err = s.appendLedger(ctx, tx, entries)
			return err
		})
		if err != nil && batch == nil {
			batch = s.recorder.take() // there was no transaction to be had
		}
		for _, r := range batch {
			if r.err = err; err == nil {
				r.rows, rows = rows[:len(r.entries):len(r.entries)], rows[len(r.entries):]
			}
			close(r.done)
		}
	}
}
