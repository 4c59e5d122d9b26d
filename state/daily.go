package state

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
)

const createDaily = `
CREATE TABLE daily (
	pollen TEXT NOT NULL,
	day    INTEGER NOT NULL,   -- days since 1970-01-01, in UTC
	runs   INTEGER NOT NULL,   -- that began on it
	PRIMARY KEY (pollen, day)
) STRICT, WITHOUT ROWID;
`

// keepDays is for how many days counts are kept: nobody asks about any but today, and
// a clock that is set back finds what it counted.
const keepDays = 8

func dayOf(t time.Time) int64 { return t.UTC().Unix() / (24 * 60 * 60) }

// RunsOn returns how many runs the Pollen began on the day of UTC that at is in. Runs
// that are forgotten since count as well.
func (s *Store) RunsOn(ctx context.Context, pollen string, at time.Time) (int, error) {
	n, err := runsOn(ctx, s.db, pollen, dayOf(at))
	if err != nil {
		return 0, s.classify("count the runs of "+pollen, err)
	}
	return n, nil
}

func runsOn(ctx context.Context, q querier, pollen string, day int64) (n int, err error) {
	err = q.QueryRowContext(ctx, `SELECT runs FROM daily WHERE pollen = ? AND day = ?`, pollen, day).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

// CreateRunWithin is CreateRun for a Pollen that may begin at most so many runs on one
// day of UTC: one more is a fault of the kind denied, and nothing is recorded. Counting
// and creating are one transaction.
func (s *Store) CreateRunWithin(ctx context.Context, r run.Run, mostToday int64, entries ...ledger.Entry) error {
	return s.createRun(ctx, r, entries, func(tx *sql.Tx, day int64) error {
		n, err := runsOn(ctx, tx, r.Pollen, day)
		if err == nil && int64(n) >= mostToday {
			err = fault.New(fault.Denied, "the %d runs that %s may begin today are used up", mostToday, r.Pollen).
				WithRule("daily runs of the grant").WithHint("try again after 00:00 UTC, or ask the Botanist for more")
		}
		return err
	})
}

// countRun counts one more run of today, and forgets days that are long over.
func countRun(ctx context.Context, tx *sql.Tx, pollen string, day int64) error {
	const count = `INSERT INTO daily (pollen, day, runs) VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET runs = runs + 1`
	if _, err := tx.ExecContext(ctx, count, pollen, day); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM daily WHERE day < ?`, day-keepDays)
	return err
}
