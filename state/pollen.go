package state

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"time"

	"tendril/fault"
	"tendril/ledger"
	"tendril/pollen"
)

// MostPollen is how many Pollen a site can have issued, those that are revoked
// included: their names stay taken.
const MostPollen = 10_000

const createPollen = `
CREATE TABLE pollen (
	id      INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
	name    TEXT NOT NULL UNIQUE,
	uid     INTEGER,                           -- the only one that may present it
	issued  INTEGER NOT NULL,                  -- this and the other times: Unix time in milliseconds
	expires INTEGER NOT NULL,
	rotated INTEGER,
	revoked INTEGER,
	digest  BLOB NOT NULL CHECK (length(digest) = 32),
	prefix  INTEGER NOT NULL                   -- the first 8 bytes of digest, to find it by
) STRICT;

CREATE INDEX pollen_by_prefix ON pollen (prefix);
`

// IssuePollen records a new Pollen, with its rows in the ledger, and returns it with
// its id. A name that was ever issued is a fault of the kind invalid, also after its
// revocation: the records of past runs name it.
func (s *Store) IssuePollen(ctx context.Context, record pollen.Record, entries ...ledger.Entry) (pollen.Record, error) {
	if _, err := pollen.ParseName(string(record.Name)); err != nil {
		return pollen.Record{}, err
	}
	err := s.transact(ctx, "issue Pollen "+string(record.Name), func(tx *sql.Tx) error {
		switch known, err := pollenByName(ctx, tx, record.Name); {
		case err == nil && known.Revoked != nil:
			return fault.New(fault.Invalid, "Pollen %s was revoked at %s, and its name stays taken", record.Name, known.Revoked.Format(time.RFC3339)).
				WithRule("a name is issued once: records of past runs name it").
				WithHint("choose another name")
		case err == nil:
			return fault.New(fault.Invalid, "there is a Pollen %s already", record.Name).
				WithHint("`tendril pollen rotate %s` replaces its token", record.Name)
		case !fault.Is(err, fault.NotFound):
			return err
		}
		var count int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM pollen`).Scan(&count); err != nil {
			return err
		}
		if count >= MostPollen {
			return fault.New(fault.Unavailable, "%d Pollen were issued, and no more can be", count).
				WithHint("rotate one that nobody uses any more")
		}
		const insert = `INSERT INTO pollen (name, uid, issued, expires, rotated, revoked, digest, prefix)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
		result, err := tx.ExecContext(ctx, insert, string(record.Name), record.UID, record.Issued.UnixMilli(), record.Expires.UnixMilli(),
			millis(record.Rotated), millis(record.Revoked), record.Digest[:], digestPrefix(record.Digest))
		if err != nil {
			return err
		}
		if record.ID, err = result.LastInsertId(); err != nil {
			return err
		}
		_, err = s.appendLedger(ctx, tx, entries)
		return err
	})
	if err != nil {
		return pollen.Record{}, err
	}
	return record, nil
}

// RotatePollen gives a Pollen another token, see [pollen.Record.Rotate], with its rows
// in the ledger. Until the transaction is durable the one before is good, and from then
// on only the new one.
func (s *Store) RotatePollen(ctx context.Context, name pollen.Name, now time.Time, entries ...ledger.Entry) (pollen.Record, pollen.Token, error) {
	var record pollen.Record
	var token pollen.Token
	err := s.transact(ctx, "rotate Pollen "+string(name), func(tx *sql.Tx) error {
		known, err := pollenByName(ctx, tx, name)
		if err != nil {
			return err
		}
		if record, token, err = known.Rotate(now); err != nil {
			return err
		}
		const update = `UPDATE pollen SET expires = ?, rotated = ?, digest = ?, prefix = ? WHERE id = ?`
		if _, err := tx.ExecContext(ctx, update, record.Expires.UnixMilli(), millis(record.Rotated), record.Digest[:],
			digestPrefix(record.Digest), record.ID); err != nil {
			return err
		}
		_, err = s.appendLedger(ctx, tx, entries)
		return err
	})
	if err != nil {
		return pollen.Record{}, pollen.Token{}, err
	}
	return record, token, nil
}

// RevokePollen ends a Pollen for good, with its rows in the ledger. A second time is a
// fault of the kind invalid that says when the first was.
func (s *Store) RevokePollen(ctx context.Context, name pollen.Name, now time.Time, entries ...ledger.Entry) (pollen.Record, error) {
	var record pollen.Record
	err := s.transact(ctx, "revoke Pollen "+string(name), func(tx *sql.Tx) error {
		known, err := pollenByName(ctx, tx, name)
		if err != nil {
			return err
		}
		if record, err = known.Revoke(now); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE pollen SET revoked = ? WHERE id = ?`, millis(record.Revoked), record.ID); err != nil {
			return err
		}
		_, err = s.appendLedger(ctx, tx, entries)
		return err
	})
	if err != nil {
		return pollen.Record{}, err
	}
	return record, nil
}

// Pollen returns the Pollen with the name; a fault of the kind not-found if none was
// issued. One that is revoked or expired is returned as well: the caller checks it.
func (s *Store) Pollen(ctx context.Context, name pollen.Name) (pollen.Record, error) {
	record, err := pollenByName(ctx, s.db, name)
	if err != nil {
		return pollen.Record{}, s.classify("read Pollen "+string(name), err)
	}
	return record, nil
}

const selectPollen = `SELECT id, name, uid, issued, expires, rotated, revoked, digest FROM pollen`

func pollenByName(ctx context.Context, q querier, name pollen.Name) (pollen.Record, error) {
	record, err := scanPollen(q.QueryRowContext(ctx, selectPollen+` WHERE name = ?`, string(name)))
	if errors.Is(err, sql.ErrNoRows) {
		return pollen.Record{}, fault.New(fault.NotFound, "there is no Pollen %q", string(name)).
			WithHint("`tendril pollen list` shows those there are")
	}
	return record, err
}

// PollenByDigest returns the Pollen whose token has the digest, and a fault of the kind
// not-found if there is none, which is so for a token that was rotated out. How long it
// takes tells at most which of the stored digests share the first 8 bytes with the one
// that is asked for; the rest is compared in constant time.
func (s *Store) PollenByDigest(ctx context.Context, digest pollen.Digest) (pollen.Record, error) {
	list, err := s.listPollen(ctx, selectPollen+` WHERE prefix = ?`, digestPrefix(digest))
	if err != nil {
		return pollen.Record{}, err
	}
	for _, record := range list {
		if record.Digest.Equal(digest) {
			return record, nil
		}
	}
	return pollen.Record{}, fault.New(fault.NotFound, "no Pollen has this token").
		WithHint("it was mistyped, rotated out, or issued by another site")
}

// Pollens returns every Pollen that was issued, by name; the revoked and expired ones
// as well.
func (s *Store) Pollens(ctx context.Context) ([]pollen.Record, error) {
	return s.listPollen(ctx, selectPollen+` ORDER BY name`)
}

func (s *Store) listPollen(ctx context.Context, query string, args ...any) ([]pollen.Record, error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, s.classify("list Pollen", err)
	}
	defer rows.Close()
	list := []pollen.Record{}
	for rows.Next() {
		record, err := scanPollen(rows)
		if err != nil {
			return nil, s.classify("list Pollen", err)
		}
		list = append(list, record)
	}
	if err := rows.Err(); err != nil {
		return nil, s.classify("list Pollen", err)
	}
	return list, nil
}

func scanPollen(row interface{ Scan(...any) error }) (pollen.Record, error) {
	var record pollen.Record
	var issued, expires int64
	var rotated, revoked *int64
	var digest []byte
	err := row.Scan(&record.ID, (*string)(&record.Name), &record.UID, &issued, &expires, &rotated, &revoked, &digest)
	if err != nil {
		return pollen.Record{}, err
	}
	record.Issued, record.Expires = time.UnixMilli(issued).UTC(), time.UnixMilli(expires).UTC()
	record.Rotated, record.Revoked = instant(rotated), instant(revoked)
	if copy(record.Digest[:], digest) != len(record.Digest) {
		return pollen.Record{}, fault.New(fault.Internal, "the digest of Pollen %s has %d bytes", record.Name, len(digest))
	}
	return record, nil
}

// digestPrefix is what the index holds, as SQLite's signed integer.
func digestPrefix(digest pollen.Digest) int64 { return int64(binary.BigEndian.Uint64(digest[:8])) }

func millis(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	return new(t.UnixMilli())
}

func instant(ms *int64) *time.Time {
	if ms == nil {
		return nil
	}
	return new(time.UnixMilli(*ms).UTC())
}
