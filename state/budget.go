package state

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"tendril/budget"
	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
)

// createBudget holds what model requests have cost and can cost. The sums of a run go
// with its record; those of a day stay, because a Pollen whose runs are forgotten has
// still spent.
const createBudget = `
CREATE TABLE run_spending (
	run             TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
	settled_tokens  INTEGER NOT NULL,
	settled_spend   INTEGER NOT NULL,   -- this and the other spends: micro-USD
	reserved_tokens INTEGER NOT NULL,
	reserved_spend  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE day_spending (
	pollen          TEXT NOT NULL,
	day             INTEGER NOT NULL,   -- days since 1970-01-01, in UTC
	settled_tokens  INTEGER NOT NULL,
	settled_spend   INTEGER NOT NULL,
	reserved_tokens INTEGER NOT NULL,
	reserved_spend  INTEGER NOT NULL,
	PRIMARY KEY (pollen, day)
) STRICT, WITHOUT ROWID;

CREATE TABLE reservations (
	id     INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
	run    TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
	pollen TEXT NOT NULL,
	day    INTEGER NOT NULL,                  -- the one that is charged, also when the answer comes on the next
	tokens INTEGER NOT NULL,
	spend  INTEGER NOT NULL,
	closed INTEGER NOT NULL                   -- 1: settled, or kept because no usage was reported
) STRICT;

CREATE INDEX reservations_by_run ON reservations (run);
`

// Reservation is what one model request may come to, and on whose account.
type Reservation struct {
	Run    run.ID
	Pollen string
	At     time.Time // its day of UTC is charged
	Bound  budget.Amount
	Limits budget.Limits
}

// Spending is what model requests came to, and what those can come to whose usage was
// not reported, or not yet.
type Spending struct {
	Settled  budget.Amount
	Reserved budget.Amount
}

// Total is what counts against a limit.
func (s Spending) Total() budget.Amount { return s.Settled.Add(s.Reserved) }

// Reserve sets the bound of a request aside, with the entries of the ledger in the same
// transaction, and returns the number of the reservation. Where a limit leaves no room
// for it, nothing is stored, and the error is the one of [budget.Limits.Check].
//
// What is reserved counts as spent until [Store.Settle] says what it came to. So a
// request whose Stem died in the middle stays spent.
func (s *Store) Reserve(ctx context.Context, r Reservation, entries ...ledger.Entry) (id int64, err error) {
	if !r.Bound.IsValid() {
		return 0, fault.New(fault.Internal, "reserve %d tokens and %d micro-USD for run %s", r.Bound.Tokens, r.Bound.Spend, r.Run)
	}
	err = s.transact(ctx, "reserve for run "+string(r.Run), func(tx *sql.Tx) error {
		account := account{r.Run, r.Pollen, dayOf(r.At)}
		ofRun, ofDay, err := account.read(ctx, tx)
		if err != nil {
			return err
		}
		if err := r.Limits.Check(ofRun.Total(), ofDay.Total(), r.Bound); err != nil {
			return err
		}
		ofRun.Reserved, ofDay.Reserved = ofRun.Reserved.Add(r.Bound), ofDay.Reserved.Add(r.Bound)
		if err := account.write(ctx, tx, ofRun, ofDay); err != nil {
			return err
		}
		const insert = `INSERT INTO reservations (run, pollen, day, tokens, spend, closed) VALUES (?, ?, ?, ?, ?, 0)`
		inserted, err := tx.ExecContext(ctx, insert, string(r.Run), r.Pollen, account.day, r.Bound.Tokens, r.Bound.Spend)
		if err != nil {
			return err
		}
		if id, err = inserted.LastInsertId(); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM day_spending WHERE day < ?`, account.day-keepDays); err != nil {
			return err
		}
		_, err = s.appendLedger(ctx, tx, entries)
		return err
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// Settle replaces a reservation by what the request came to, also where that is more
// than was reserved. Once it is settled or kept, nothing changes any more: a second call
// records nothing and returns nil.
func (s *Store) Settle(ctx context.Context, id int64, came budget.Amount, entries ...ledger.Entry) error {
	if !came.IsValid() {
		return fault.New(fault.Internal, "settle reservation %d with %d tokens and %d micro-USD", id, came.Tokens, came.Spend)
	}
	return s.closeReservation(ctx, id, entries, func(sum *Spending, reserved budget.Amount) {
		sum.Reserved = sum.Reserved.Less(reserved)
		sum.Settled = sum.Settled.Add(came)
	})
}

// Keep says that nobody will report what a request came to: what is reserved for it
// stays spent. Like Settle, it counts once.
func (s *Store) Keep(ctx context.Context, id int64, entries ...ledger.Entry) error {
	return s.closeReservation(ctx, id, entries, func(*Spending, budget.Amount) {})
}

func (s *Store) closeReservation(ctx context.Context, id int64, entries []ledger.Entry, change func(sum *Spending, reserved budget.Amount)) error {
	return s.transact(ctx, "close a reservation", func(tx *sql.Tx) error {
		const update = `UPDATE reservations SET closed = 1 WHERE id = ? AND closed = 0 RETURNING run, pollen, day, tokens, spend`
		var account account
		var reserved budget.Amount
		err := tx.QueryRowContext(ctx, update, id).Scan(&account.run, &account.pollen, &account.day, &reserved.Tokens, &reserved.Spend)
		if errors.Is(err, sql.ErrNoRows) {
			return reservationExists(ctx, tx, id)
		}
		if err != nil {
			return err
		}
		ofRun, ofDay, err := account.read(ctx, tx)
		if err != nil {
			return err
		}
		change(&ofRun, reserved)
		change(&ofDay, reserved)
		if err := account.write(ctx, tx, ofRun, ofDay); err != nil {
			return err
		}
		_, err = s.appendLedger(ctx, tx, entries)
		return err
	})
}

func reservationExists(ctx context.Context, q querier, id int64) error {
	var closed bool
	err := q.QueryRowContext(ctx, `SELECT closed FROM reservations WHERE id = ?`, id).Scan(&closed)
	if errors.Is(err, sql.ErrNoRows) {
		return fault.New(fault.NotFound, "there is no reservation %d", id)
	}
	return err
}

// account is where a reservation is counted: with its run, and with its Pollen on its
// day.
type account struct {
	run    run.ID
	pollen string
	day    int64
}

func (a account) read(ctx context.Context, q querier) (ofRun, ofDay Spending, err error) {
	if ofRun, err = spendingOf(ctx, q, `run_spending WHERE run = ?`, string(a.run)); err == nil {
		ofDay, err = spendingOf(ctx, q, `day_spending WHERE pollen = ? AND day = ?`, a.pollen, a.day)
	}
	return ofRun, ofDay, err
}

func spendingOf(ctx context.Context, q querier, from string, args ...any) (sum Spending, err error) {
	const columns = `SELECT settled_tokens, settled_spend, reserved_tokens, reserved_spend FROM `
	err = q.QueryRowContext(ctx, columns+from, args...).
		Scan(&sum.Settled.Tokens, &sum.Settled.Spend, &sum.Reserved.Tokens, &sum.Reserved.Spend)
	if errors.Is(err, sql.ErrNoRows) {
		return Spending{}, nil
	}
	return sum, err
}

func (a account) write(ctx context.Context, tx *sql.Tx, ofRun, ofDay Spending) error {
	const replaceRun = `REPLACE INTO run_spending (run, settled_tokens, settled_spend, reserved_tokens, reserved_spend) VALUES (?, ?, ?, ?, ?)`
	if _, err := tx.ExecContext(ctx, replaceRun, string(a.run),
		ofRun.Settled.Tokens, ofRun.Settled.Spend, ofRun.Reserved.Tokens, ofRun.Reserved.Spend); err != nil {
		return err
	}
	const replaceDay = `REPLACE INTO day_spending (pollen, day, settled_tokens, settled_spend, reserved_tokens, reserved_spend) VALUES (?, ?, ?, ?, ?, ?)`
	_, err := tx.ExecContext(ctx, replaceDay, a.pollen, a.day,
		ofDay.Settled.Tokens, ofDay.Settled.Spend, ofDay.Reserved.Tokens, ofDay.Reserved.Spend)
	return err
}

// Spent returns what a run's model requests came to; nothing for a run that made none.
func (s *Store) Spent(ctx context.Context, id run.ID) (Spending, error) {
	sum, err := spendingOf(ctx, s.db, `run_spending WHERE run = ?`, string(id))
	if err != nil {
		return Spending{}, s.classify("read what run "+string(id)+" spent", err)
	}
	return sum, nil
}

// SpentOn returns what a Pollen's model requests came to on the day of UTC that at is
// in, those of runs that are forgotten since included.
func (s *Store) SpentOn(ctx context.Context, pollen string, at time.Time) (Spending, error) {
	sum, err := spendingOf(ctx, s.db, `day_spending WHERE pollen = ? AND day = ?`, pollen, dayOf(at))
	if err != nil {
		return Spending{}, s.classify("read what "+pollen+" spent", err)
	}
	return sum, nil
}
