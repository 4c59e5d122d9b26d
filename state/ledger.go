package state

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"tendril/fault"
	"tendril/ledger"
)

// createLedger holds the ledger: its rows, the hashes of its tree by their index in
// [tlog.StoredHashIndex]'s order, and the newest checkpoint. The triggers are against
// mistakes of ours; against others there are the kept checkpoints.
const createLedger = `
CREATE TABLE ledger_rows (
	seq  INTEGER PRIMARY KEY,  -- 0, 1, 2, …
	line BLOB NOT NULL         -- the bytes that the tree is over
) STRICT;

CREATE TABLE ledger_hashes (
	idx  INTEGER PRIMARY KEY,
	hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;

CREATE TABLE ledger_checkpoint (
	one    INTEGER PRIMARY KEY CHECK (one = 1),
	signed BLOB NOT NULL
) STRICT;

CREATE TRIGGER ledger_rows_stay BEFORE DELETE ON ledger_rows
	BEGIN SELECT raise(ABORT, 'rows of the ledger are never removed'); END;
CREATE TRIGGER ledger_rows_keep BEFORE UPDATE ON ledger_rows
	BEGIN SELECT raise(ABORT, 'rows of the ledger are never changed'); END;
`

// MostLines is the most that one call of [Store.LedgerLines] returns.
const MostLines = 1000

// openLedger begins the ledger if it has no rows, and otherwise checks that what there
// is fits together.
func (s *Store) openLedger(ctx context.Context) error {
	path := filepath.Join(filepath.Dir(s.path), keyFile)
	size, err := ledgerSize(ctx, s.db)
	if err != nil {
		return err
	}
	if size == 0 {
		// The write lock makes sure that one process makes the key and the first row.
		err := s.transact(ctx, "begin the ledger", func(tx *sql.Tx) error {
			if size, err := ledgerSize(ctx, tx); err != nil || size > 0 {
				return err
			}
			var err error
			if s.key, err = readOrMakeKey(path); err != nil {
				return err
			}
			_, err = s.appendLedger(ctx, tx, []ledger.Entry{{Kind: ledger.Open, Opening: s.key.Opening()}})
			return err
		})
		if err != nil {
			return err
		}
	}
	if s.key, err = readKey(path); errors.Is(err, errNoKey) {
		return fault.New(fault.Unavailable, "%s has a ledger, and the key that signs it is gone: there is no %s", s.path, path).
			WithHint("put the file back from a copy; or, to begin a new ledger, move %s and its -wal and -shm files away and keep them", s.path)
	} else if err != nil {
		return err
	}
	return s.checkLedger(ctx)
}

// checkLedger looks whether rows, hashes, checkpoint and key agree on the last row and
// the root. It reads as many hashes as the number of rows has bits, and no other row than
// the first: it finds what a mixed-up restore leaves, not what somebody changed.
func (s *Store) checkLedger(ctx context.Context) error {
	var size, hashes int64
	var opening, signed []byte
	// One statement sees one state of the database.
	const query = `SELECT (SELECT coalesce(max(seq) + 1, 0) FROM ledger_rows), (SELECT coalesce(max(idx) + 1, 0) FROM ledger_hashes),
		(SELECT line FROM ledger_rows WHERE seq = 0), (SELECT signed FROM ledger_checkpoint)`
	if err := s.db.QueryRowContext(ctx, query).Scan(&size, &hashes, &opening, &signed); err != nil {
		return err
	}
	first, err := ledger.ParseRow(opening)
	if err != nil {
		return s.ledgerDamaged("its first row: %w", err)
	}
	if first.Kind != ledger.Open || *first.Opening != *s.key.Opening() {
		return s.ledgerDamaged("it belongs to another key than that of %s beside it", keyFile)
	}
	checkpoint, err := ledger.OpenCheckpoint(signed, s.key.Verifier())
	if err != nil {
		return s.ledgerDamaged("its checkpoint: %w", err)
	}
	if checkpoint.Size != size || hashes != tlog.StoredHashCount(size) {
		return s.ledgerDamaged("it has %d rows and %d hashes, and its checkpoint signs %d rows", size, hashes, checkpoint.Size)
	}
	root, err := tlog.TreeHash(size, hashReader(ctx, s.db))
	if err != nil {
		return s.ledgerDamaged("its tree: %w", err)
	}
	if root != checkpoint.Root {
		return s.ledgerDamaged("its tree has another root than its checkpoint signs")
	}
	return nil
}

func (s *Store) ledgerDamaged(format string, args ...any) error {
	var e interface{ Code() int }
	for _, arg := range args {
		if err, ok := arg.(error); ok && errors.As(err, &e) {
			return err // SQLite's own word for it, which classify knows
		}
	}
	return fault.New(fault.Unavailable, "the ledger in "+s.path+" is damaged: "+format, args...).
		WithHint("restore a copy of the whole directory %s; or, to begin a new ledger, move what is in it away and keep it", filepath.Dir(s.path))
}

// appendLedger writes rows and signs the checkpoint that covers them, as part of tx. Who
// changes state calls it inside the transaction of the change.
func (s *Store) appendLedger(ctx context.Context, tx *sql.Tx, entries []ledger.Entry) ([]ledger.Row, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	size, err := ledgerSize(ctx, tx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	rows, lines := make([]ledger.Row, len(entries)), make([][]byte, len(entries))
	for i, entry := range entries {
		if rows[i], err = ledger.NewRow(size+int64(i), now, entry); err != nil {
			return nil, err
		}
		lines[i] = rows[i].Line()
	}
	first, hashes, root, err := ledger.Extend(size, lines, hashReader(ctx, tx))
	if err != nil {
		return nil, err
	}
	signed, err := s.key.Sign(size+int64(len(rows)), root)
	if err != nil {
		return nil, err
	}
	const insertRow = `INSERT INTO ledger_rows (seq, line) VALUES (?, ?)`
	if err := insertAll(ctx, tx, insertRow, len(lines), func(i int) []any { return []any{rows[i].Seq, lines[i]} }); err != nil {
		return nil, err
	}
	const insertHash = `INSERT INTO ledger_hashes (idx, hash) VALUES (?, ?)`
	if err := insertAll(ctx, tx, insertHash, len(hashes), func(i int) []any { return []any{first + int64(i), hashes[i][:]} }); err != nil {
		return nil, err
	}
	const replace = `INSERT INTO ledger_checkpoint (one, signed) VALUES (1, ?) ON CONFLICT DO UPDATE SET signed = excluded.signed`
	if _, err := tx.ExecContext(ctx, replace, signed); err != nil {
		return nil, err
	}
	return rows, nil
}

func insertAll(ctx context.Context, tx *sql.Tx, query string, count int, values func(i int) []any) error {
	insert, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	defer insert.Close()
	for i := range count {
		if _, err := insert.ExecContext(ctx, values(i)...); err != nil {
			return err
		}
	}
	return nil
}

func ledgerSize(ctx context.Context, q querier) (int64, error) {
	var size int64
	err := q.QueryRowContext(ctx, `SELECT coalesce(max(seq) + 1, 0) FROM ledger_rows`).Scan(&size)
	return size, err
}

func hashReader(ctx context.Context, q querier) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			var hash []byte
			err := q.QueryRowContext(ctx, `SELECT hash FROM ledger_hashes WHERE idx = ?`, index).Scan(&hash)
			if errors.Is(err, sql.ErrNoRows) {
				return nil, fault.New(fault.Internal, "hash %d of the ledger is missing", index)
			}
			if err != nil {
				return nil, err
			}
			copy(hashes[i][:], hash)
		}
		return hashes, nil
	})
}

// LedgerSize returns how many rows the ledger has: they are numbered from 0, without gaps.
func (s *Store) LedgerSize(ctx context.Context) (int64, error) {
	size, err := ledgerSize(ctx, s.db)
	if err != nil {
		return 0, s.classify("read the ledger", err)
	}
	return size, nil
}

// LedgerLines returns at most limit rows of the ledger as they are hashed, without
// newlines, from the row numbered from on. The next page begins at from plus what was
// returned; none means that there are no more.
func (s *Store) LedgerLines(ctx context.Context, from int64, limit int) ([][]byte, error) {
	if limit < 1 || limit > MostLines {
		return nil, fault.New(fault.Invalid, "a limit of %d rows is not between 1 and %d", limit, MostLines)
	}
	if from < 0 {
		return nil, fault.New(fault.Invalid, "there is no row %d: they begin at 0", from)
	}
	rows, err := s.db.QueryContext(ctx, `SELECT line FROM ledger_rows WHERE seq >= ? ORDER BY seq LIMIT ?`, from, limit)
	if err != nil {
		return nil, s.classify("read the ledger", err)
	}
	defer rows.Close()
	lines := [][]byte{}
	for rows.Next() {
		var line []byte
		if err := rows.Scan(&line); err != nil {
			return nil, s.classify("read the ledger", err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		return nil, s.classify("read the ledger", err)
	}
	return lines, nil
}

// Checkpoint returns the signed checkpoint that covers every row there is.
// [ledger.ReadCheckpoint] reads it.
func (s *Store) Checkpoint(ctx context.Context) (string, error) {
	var signed string
	if err := s.db.QueryRowContext(ctx, `SELECT signed FROM ledger_checkpoint`).Scan(&signed); err != nil {
		return "", s.classify("read the ledger's checkpoint", err)
	}
	return signed, nil
}

// LedgerKey returns the verifier key of the site's checkpoints. It is no secret.
func (s *Store) LedgerKey() string { return s.key.Verifier() }

// Digest names data in the ledger without letting anybody try what it was, see
// [ledger.Key.Digest].
func (s *Store) Digest(data []byte) string { return s.key.Digest(data) }
