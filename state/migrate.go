package state

import (
	"context"
	"database/sql"
	"fmt"

	"tendril/fault"
)

// applicationID marks the file as ours in SQLite's header: "tndr".
const applicationID = 0x746e6472

// migrations lead from one schema to the next: migrations[n] makes version n+1.
// One that has been released is never changed.
var migrations = []string{`
CREATE TABLE runs (
	id        TEXT PRIMARY KEY,
	state     TEXT NOT NULL,
	substrate BLOB NOT NULL,   -- the name, or the path in bytes
	record    TEXT NOT NULL    -- the run record as JSON
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_by_state ON runs (state, id);

CREATE TABLE events (
	run  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
	id   INTEGER NOT NULL,     -- 1, 2, 3, … per run
	time INTEGER NOT NULL,     -- Unix time in milliseconds
	kind TEXT NOT NULL,
	fd   INTEGER NOT NULL,     -- of an output event; otherwise 0
	data BLOB NOT NULL,        -- the bytes of an output event; otherwise JSON
	PRIMARY KEY (run, id)
) STRICT;

CREATE TABLE cancels (
	run   TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
	actor TEXT NOT NULL,
	time  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
`,
	createPollen,
	createLedger,
	createDaily,
	createBudget,
}

// migrate brings the schema to this program's version. In the ordinary case it
// is one read.
func (s *Store) migrate(ctx context.Context) error {
	version, err := s.version(ctx, s.db)
	if err != nil || version == len(migrations) {
		return err
	}
	if version == 0 {
		// Both settings live in the file and are refused inside a transaction.
		// Another process may be doing the same; doing it twice does no harm.
		const once = `PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL`
		if _, err := s.db.ExecContext(ctx, once); err != nil {
			return err
		}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	// Whoever held the lock before us may have migrated it.
	if version, err = s.version(ctx, tx); err != nil {
		return err
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
			return err
		}
	}
	if err := setVersion(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version reads the schema's version and refuses a file that is not ours or is
// newer than this program.
func (s *Store) version(ctx context.Context, q querier) (int, error) {
	var application, version, tables int
	const query = `SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
		FROM pragma_application_id, pragma_user_version`
	if err := q.QueryRowContext(ctx, query).Scan(&application, &version, &tables); err != nil {
		return 0, err
	}
	fresh := application == 0 && version == 0 && tables == 0
	switch {
	case !fresh && application != applicationID:
		return 0, fault.New(fault.Unavailable, "%s is a database of another program", s.path).
			WithHint("move it away, or name another state directory with TENDRIL_STATE_DIR")
	case version < 0 || version > len(migrations):
		return 0, fault.New(fault.Unavailable, "%s was written by a newer tendril: its schema is version %d, this program knows %d",
			s.path, version, len(migrations)).
			WithHint("use the newer tendril, or name another state directory with TENDRIL_STATE_DIR")
	}
	return version, nil
}

func setVersion(ctx context.Context, tx *sql.Tx) error {
	// A pragma takes no bound parameter; both numbers are our own.
	_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d",
		applicationID, len(migrations)))
	return err
}
