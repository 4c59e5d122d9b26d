package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"tendril/fault"
	"tendril/run"
)

const (
	// LargestChunk is the most bytes that one output event may carry.
	LargestChunk = 64 << 10
	// largestData bounds the JSON of any other event.
	largestData = 64 << 10
	// pageBytes is where one call of Events stops; it returns at least one.
	pageBytes = 4 << 20
	// MostEvents is the most that one call of [Store.Events] returns.
	MostEvents = 10_000
)

// AppendEvents stores events of one run in one transaction and returns them
// with their ids. An event without a time gets the current one. Each call waits
// for the disk once: batch what there is.
func (s *Store) AppendEvents(ctx context.Context, id run.ID, events ...run.Event) ([]run.Event, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var stored []run.Event
	err := s.transact(ctx, "append events of run "+string(id), func(tx *sql.Tx) error {
		var err error
		stored, err = appendEvents(ctx, tx, id, events...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

func appendEvents(ctx context.Context, tx *sql.Tx, id run.ID, events ...run.Event) ([]run.Event, error) {
	var last sql.NullInt64
	// One row even for a run without events; none for no such run.
	const newest = `SELECT (SELECT max(id) FROM events WHERE run = runs.id) FROM runs WHERE id = ?`
	err := tx.QueryRowContext(ctx, newest, string(id)).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, noSuchRun(id)
	}
	if err != nil {
		return nil, err
	}
	insert, err := tx.PrepareContext(ctx, `INSERT INTO events (run, id, time, kind, fd, data) VALUES (?, ?, ?, ?, ?, ?)`)
	if err != nil {
		return nil, err
	}
	defer insert.Close()
	stored := make([]run.Event, len(events))
	for i, event := range events {
		fd, data, err := encodeData(event.Data)
		if err != nil {
			return nil, fault.New(fault.Internal, "event of run %s: %w", id, err)
		}
		event.ID, event.Run = last.Int64+int64(i)+1, id
		if event.Time.IsZero() {
			event.Time.Time = time.Now()
		}
		event.Time = run.At(event.Time.Time)
		if _, err := insert.ExecContext(ctx, string(id), event.ID, event.Time.UnixMilli(), string(event.Data.Kind()), fd, data); err != nil {
			return nil, err
		}
		stored[i] = event
	}
	return stored, nil
}

// encodeData returns the two columns that hold an event's data.
func encodeData(data run.Data) (fd int, blob []byte, err error) {
	switch data := data.(type) {
	case nil:
		return 0, nil, fault.New(fault.Internal, "it has no data")
	case run.OutputChunk:
		if data.FD != 1 && data.FD != 2 {
			return 0, nil, fault.New(fault.Internal, "output of descriptor %d", data.FD)
		}
		if len(data.Bytes) > LargestChunk {
			return 0, nil, fault.New(fault.Internal, "a chunk of %d bytes is larger than %d", len(data.Bytes), LargestChunk)
		}
		if data.Bytes == nil {
			return data.FD, []byte{}, nil // NULL is not a chunk
		}
		return data.FD, data.Bytes, nil
	default:
		blob, err := json.Marshal(data)
		if err == nil && len(blob) > largestData {
			err = fault.New(fault.Internal, "its data of %d bytes is larger than %d", len(blob), largestData)
		}
		return 0, blob, err
	}
}

// Events returns at most limit events of the run, in order, from the one that
// follows the event with the id after; 0 is before the first. It may return
// fewer than there are, to bound its size, and none only when there is none.
//
// Who follows a run reads the record first and the events after it: once the
// record says that the run has ended, the event that says so is there too.
func (s *Store) Events(ctx context.Context, id run.ID, after int64, limit int) ([]run.Event, error) {
	if limit < 1 || limit > MostEvents {
		return nil, fault.New(fault.Invalid, "a limit of %d events is not between 1 and %d", limit, MostEvents)
	}
	doing := "read events of run " + string(id)
	const query = `SELECT id, time, kind, fd, data FROM events WHERE run = ? AND id > ? ORDER BY id LIMIT ?`
	rows, err := s.db.QueryContext(ctx, query, string(id), after, limit)
	if err != nil {
		return nil, s.classify(doing, err)
	}
	defer rows.Close()
	events := []run.Event{}
	for size := 0; size < pageBytes && rows.Next(); {
		var fd int
		var ms int64
		var kind string
		var blob []byte
		event := run.Event{Run: id}
		if err := rows.Scan(&event.ID, &ms, &kind, &fd, &blob); err != nil {
			return nil, s.classify(doing, err)
		}
		event.Time = run.At(time.UnixMilli(ms))
		if run.Kind(kind) == run.KindOutput {
			event.Data = run.OutputChunk{FD: fd, Bytes: append([]byte{}, blob...)} // nil would be null in JSON
		} else if event.Data, err = run.DecodeData(run.Kind(kind), blob); err != nil {
			return nil, fault.New(fault.Internal, "%s: event %d: %w", doing, event.ID, err)
		}
		events = append(events, event)
		size += len(blob)
	}
	if err := rows.Err(); err != nil {
		return nil, s.classify(doing, err)
	}
	return events, nil
}
