package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
)

// CreateRun records a new run and its first event. Its state is
// [run.Queued]. The entries are recorded in the same transaction.
func (s *Store) CreateRun(ctx context.Context, r run.Run, entries ...ledger.Entry) error {
	return s.createRun(ctx, r, entries, func(*sql.Tx, int64) error { return nil })
}

// createRun records a run if admit, which is asked in the same transaction, lets it
// begin on that day.
func (s *Store) createRun(ctx context.Context, r run.Run, entries []ledger.Entry, admit func(tx *sql.Tx, day int64) error) error {
	if _, err := run.ParseID(string(r.ID)); err != nil {
		return err
	}
	if r.State != run.Queued {
		return fault.New(fault.Internal, "run %s begins as %s, not as %s", r.ID, r.State, run.Queued)
	}
	record, err := json.Marshal(r)
	if err != nil {
		return fault.New(fault.Internal, "encode run %s: %w", r.ID, err)
	}
	return s.transact(ctx, "create run "+string(r.ID), func(tx *sql.Tx) error {
		today := dayOf(time.Now())
		if err := admit(tx, today); err != nil {
			return err
		}
		if err := countRun(ctx, tx, r.Pollen, today); err != nil {
			return err
		}
		const insert = `INSERT INTO runs (id, state, substrate, record) VALUES (?, ?, ?, ?)`
		if _, err := tx.ExecContext(ctx, insert, string(r.ID), string(r.State), []byte(r.Substrate.String()), string(record)); err != nil {
			return err
		}
		if _, err := appendEvents(ctx, tx, r.ID, run.Event{Data: run.StateChange{State: r.State}}); err != nil {
			return err
		}
		_, err := s.appendLedger(ctx, tx, entries)
		return err
	})
}

// UpdateRun changes one run in one transaction: change gets the record as it
// is, and what it leaves there is stored. If the state changed, the event that
// says so is stored with it and returned. If change returns an error, nothing
// is stored and that error comes back. It holds the write lock meanwhile, so it
// must be quick, and must not call the store.
//
// Each record gets the run as it is stored, and makes the entry that is recorded with it
// in the ledger, in the same transaction.
//
// Refused are a transition that [run.Transition] refuses, another id, pollen or
// Substrate, and any change to a run that has ended but to its Review.
func (s *Store) UpdateRun(ctx context.Context, id run.ID, change func(*run.Run) error, record ...func(run.Run) ledger.Entry) (run.Run, []run.Event, error) {
	var after run.Run
	var events []run.Event
	err := s.transact(ctx, "update run "+string(id), func(tx *sql.Tx) error {
		before, err := getRun(ctx, tx, id)
		if err != nil {
			return err
		}
		after = before
		after.Flags, after.Boundary, after.Unenforced, after.Egress = // change may append
			slices.Clone(before.Flags), slices.Clone(before.Boundary), slices.Clone(before.Unenforced), slices.Clone(before.Egress)
		if err := change(&after); err != nil {
			return err
		}
		stored, err := checkChange(before, after)
		if err != nil {
			return err
		}
		const update = `UPDATE runs SET state = ?, record = ? WHERE id = ?`
		if _, err := tx.ExecContext(ctx, update, string(after.State), string(stored), string(id)); err != nil {
			return err
		}
		entries := make([]ledger.Entry, len(record))
		for i, entryOf := range record {
			entries[i] = entryOf(after)
		}
		if _, err := s.appendLedger(ctx, tx, entries); err != nil {
			return err
		}
		if before.State == after.State {
			return nil
		}
		events, err = appendEvents(ctx, tx, id, run.Event{Data: run.StateChange{State: after.State}})
		return err
	})
	if err != nil {
		return run.Run{}, nil, err
	}
	return after, events, nil
}

// checkChange refuses a change that a run may not make, and returns the new
// record's JSON.
func checkChange(before, after run.Run) ([]byte, error) {
	if after.ID != before.ID || after.Pollen != before.Pollen || after.Substrate != before.Substrate {
		return nil, fault.New(fault.Internal, "run %s cannot become another run", before.ID)
	}
	if after.State != before.State {
		if err := run.Transition(before.State, after.State); err != nil {
			return nil, err
		}
	}
	record, err := json.Marshal(after)
	if err != nil {
		return nil, fault.New(fault.Internal, "encode run %s: %w", before.ID, err)
	}
	if before.State.Ended() {
		reviewed := before
		reviewed.Review = after.Review
		allowed, err := json.Marshal(reviewed)
		if err != nil {
			return nil, fault.New(fault.Internal, "encode run %s: %w", before.ID, err)
		}
		if string(allowed) != string(record) {
			return nil, fault.New(fault.Internal, "run %s has ended; only its review may change", before.ID)
		}
	}
	return record, nil
}

// Get returns one run; a fault of the kind not-found if there is none.
func (s *Store) Get(ctx context.Context, id run.ID) (run.Run, error) {
	r, err := getRun(ctx, s.db, id)
	if err != nil {
		return run.Run{}, s.classify("read run "+string(id), err)
	}
	return r, nil
}

func getRun(ctx context.Context, q querier, id run.ID) (run.Run, error) {
	var record string
	err := q.QueryRowContext(ctx, `SELECT record FROM runs WHERE id = ?`, string(id)).Scan(&record)
	if errors.Is(err, sql.ErrNoRows) {
		return run.Run{}, noSuchRun(id)
	}
	if err != nil {
		return run.Run{}, err
	}
	return decodeRun(record)
}

func noSuchRun(id run.ID) error {
	return fault.New(fault.NotFound, "there is no run %s", id).WithHint("`tendril run list` shows the runs there are")
}

func decodeRun(record string) (run.Run, error) {
	var r run.Run
	if err := json.Unmarshal([]byte(record), &r); err != nil {
		return run.Run{}, fault.New(fault.Internal, "decode a run record: %w", err)
	}
	return r, nil
}

// Filter selects runs. A zero field selects all.
type Filter struct {
	State     run.State
	Substrate run.Substrate
	Visible   []Visible // only runs that one of them shows; nil: all
}

// Visible shows the runs on one Substrate that has a name.
type Visible struct {
	Substrate string
	Pollen    string // only those that it began; empty: those of all
}

// MostRuns is the most that one call of [Store.List] returns.
const MostRuns = 1000

// List returns at most limit runs, the newest first: those older than the run
// named after, or all from the newest if it is empty. A limit that is not
// between 1 and [MostRuns] is a fault of the kind invalid.
func (s *Store) List(ctx context.Context, filter Filter, limit int, after run.ID) ([]run.Run, error) {
	if limit < 1 || limit > MostRuns {
		return nil, fault.New(fault.Invalid, "a limit of %d runs is not between 1 and %d", limit, MostRuns)
	}
	query := `SELECT record FROM runs WHERE true`
	var args []any
	if filter.State != "" {
		query, args = query+` AND state = ?`, append(args, string(filter.State))
	}
	if filter.Substrate != (run.Substrate{}) {
		query, args = query+` AND substrate = ?`, append(args, []byte(filter.Substrate.String()))
	}
	if filter.Visible != nil {
		query += ` AND (false`
		for _, v := range filter.Visible {
			query, args = query+` OR substrate = ?`, append(args, []byte(v.Substrate))
			if v.Pollen != "" {
				query, args = query+` AND record ->> 'pollen' = ?`, append(args, v.Pollen)
			}
		}
		query += `)`
	}
	if after != "" {
		query, args = query+` AND id < ?`, append(args, string(after))
	}
	return s.listRuns(ctx, query+` ORDER BY id DESC LIMIT ?`, append(args, limit)...)
}

// Unended returns every run that has not ended, the oldest first.
func (s *Store) Unended(ctx context.Context) ([]run.Run, error) {
	return s.listRuns(ctx, `SELECT record FROM runs WHERE state IN (?, ?, ?, ?) ORDER BY id`,
		string(run.Queued), string(run.Preparing), string(run.Running), string(run.Collecting))
}

func (s *Store) listRuns(ctx context.Context, query string, args ...any) ([]run.Run, error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, s.classify("list runs", err)
	}
	defer rows.Close()
	list := []run.Run{}
	for rows.Next() {
		var record string
		if err := rows.Scan(&record); err != nil {
			return nil, s.classify("list runs", err)
		}
		r, err := decodeRun(record)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	if err := rows.Err(); err != nil {
		return nil, s.classify("list runs", err)
	}
	return list, nil
}

// RequestCancel asks the process that owns the run to stop it, on behalf of
// actor. Asking again changes nothing: the first actor stays. Asking for a run
// that has ended is a fault of the kind invalid. The entries are recorded in the
// same transaction, if it is the first that asks.
func (s *Store) RequestCancel(ctx context.Context, id run.ID, actor string, entries ...ledger.Entry) error {
	return s.transact(ctx, "cancel run "+string(id), func(tx *sql.Tx) error {
		r, err := getRun(ctx, tx, id)
		if err != nil {
			return err
		}
		if r.State.Ended() {
			return fault.New(fault.Invalid, "run %s has ended: it is %s", id, r.State)
		}
		const insert = `INSERT INTO cancels (run, actor, time) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
		inserted, err := tx.ExecContext(ctx, insert, string(id), actor, time.Now().UnixMilli())
		if err != nil {
			return err
		}
		if count, err := inserted.RowsAffected(); err != nil || count == 0 {
			return err
		}
		_, err = s.appendLedger(ctx, tx, entries)
		return err
	})
}

// CancelRequested returns the actor that asked for the run to be cancelled, and
// whether one did. The owner of a run polls it.
func (s *Store) CancelRequested(ctx context.Context, id run.ID) (actor string, requested bool, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT actor FROM cancels WHERE run = ?`, string(id)).Scan(&actor)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, s.classify("read the cancel of run "+string(id), err)
	}
	return actor, true, nil
}

// Prune forgets the ended runs but the newest keep, with their events, gives
// the room back to the file system, and returns the ids it forgot, so that the
// caller removes what else there is of them. Runs that have not ended stay.
func (s *Store) Prune(ctx context.Context, keep int) ([]run.ID, error) {
	if keep < 0 {
		return nil, fault.New(fault.Invalid, "cannot keep %d runs", keep)
	}
	var pruned []run.ID
	err := s.transact(ctx, "prune runs", func(tx *sql.Tx) error {
		const doomed = `DELETE FROM runs WHERE id IN (
			SELECT id FROM runs WHERE state NOT IN (?, ?, ?, ?) ORDER BY id DESC LIMIT -1 OFFSET ?) RETURNING id`
		rows, err := tx.QueryContext(ctx, doomed,
			string(run.Queued), string(run.Preparing), string(run.Running), string(run.Collecting), keep)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			pruned = append(pruned, run.ID(id))
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	if len(pruned) > 0 {
		return pruned, s.vacuum(ctx)
	}
	return pruned, nil
}

// vacuum gives free pages back to the file system. The pragma yields one row
// for each page and frees it when the row is asked for.
func (s *Store) vacuum(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, `PRAGMA incremental_vacuum`)
	if err != nil {
		return s.classify("give back room", err)
	}
	defer rows.Close()
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		return s.classify("give back room", err)
	}
	return nil
}
