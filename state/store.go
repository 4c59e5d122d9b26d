// Package state keeps runs, their events, Pollen and the ledger in one SQLite file.
// It is the only package that links SQLite.
//
// It promises that what a call acknowledged is on disk, also after a SIGKILL or
// a power cut; that a run only ever moves along [run.Transition]; that a change, its
// event and its rows of the ledger are one transaction; and that several processes
// may use the file at once. It does not guard against whoever can write the
// directory: that is the Stem's own account, and the store refuses a file or a
// directory that others can write.
package state

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strconv"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"tendril/fault"
	"tendril/ledger"
)

// Store is an open state database. It is safe for concurrent use: one call at a
// time is served within a process, in any order.
type Store struct {
	db       *sql.DB
	path     string
	key      ledger.Key // signs the ledger's checkpoints
	recorder recorder
}

// busyTimeoutMS is how long a call waits for another process's transaction.
// Transactions here are short; who waits longer than this waits for a process
// that hangs, and says so.
const busyTimeoutMS = 10_000

// Open opens the database at path and makes it, and its directory, if they do
// not exist; the file has mode 0600 and the directory 0700. A database that is
// damaged, foreign or newer than this program, and a file system that is full
// or read-only, are faults of the kind unavailable that name the path and the
// remedy.
func Open(ctx context.Context, path string) (*Store, error) {
	if !filepath.IsAbs(path) {
		return nil, fault.New(fault.Invalid, "the path of the state database is not absolute: %s", path)
	}
	if err := prepareFile(path); err != nil {
		return nil, err
	}
	// The pragmas run on each new connection. WAL lets others read while one
	// writes; FULL makes a commit wait for the disk. Every transaction is
	// IMMEDIATE: it takes the write lock first, because one that reads first
	// and then writes is refused without a wait when another wrote meanwhile.
	dsn := (&url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: url.Values{
		"_txlock": {"immediate"},
		"_pragma": {
			"busy_timeout(" + strconv.Itoa(busyTimeoutMS) + ")",
			"synchronous(FULL)",
			"foreign_keys(ON)",
		},
	}.Encode()}).String()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fault.New(fault.Internal, "open %s: %w", path, err)
	}
	// One connection: SQLite has one writer anyway, and each connection costs
	// its own page cache and its own set of pragmas.
	db.SetMaxOpenConns(1)
	s := &Store{db: db, path: path}
	err = s.migrate(ctx)
	if err == nil {
		err = s.openLedger(ctx)
	}
	if err != nil {
		db.Close()
		return nil, s.classify("open", err)
	}
	return s, nil
}

// Close releases the database. Calls that are under way end first.
func (s *Store) Close() error {
	s.recorder.close()
	if err := s.db.Close(); err != nil {
		return s.classify("close", err)
	}
	return nil
}

// classify turns what SQLite reports into a fault that names the file and the
// remedy. Faults and cancelled contexts pass as they are.
func (s *Store) classify(doing string, err error) error {
	var f *fault.Error
	if errors.As(err, &f) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return fault.New(fault.Internal, "%s: state database %s: %w", doing, s.path, err)
	}
	dir := filepath.Dir(s.path)
	f = fault.New(fault.Unavailable, "%s: state database %s: %w", doing, s.path, err)
	switch e.Code() & 0xff { // the primary code; the rest only says where
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return f.WithHint("it is damaged: move it and its -wal and -shm files away (branches of past runs stay in their repositories), or restore a copy")
	case sqlite3.SQLITE_FULL:
		return f.WithHint("make room on the file system of %s", dir)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return f.WithHint("make %s and the files in it writable for this account, or name another state directory with TENDRIL_STATE_DIR", dir)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return f.WithHint("another process held it for more than %d s; end the one that hangs (`fuser %s` names it)", busyTimeoutMS/1000, s.path)
	case sqlite3.SQLITE_IOERR:
		return f.WithHint("the disk under %s does not answer as it should, or is full: check it and the kernel's log", dir)
	case sqlite3.SQLITE_INTERRUPT:
		return context.Canceled
	default:
		return fault.New(fault.Internal, "%s: state database %s: %w", doing, s.path, err)
	}
}

// transact runs do in one transaction and commits it if do returns nil. Any
// error means that nothing was stored.
func (s *Store) transact(ctx context.Context, doing string, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return s.classify(doing, err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if err = do(tx); err == nil {
		err = tx.Commit()
	}
	if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil {
		return ctx.Err() // database/sql rolls back by itself when ctx ends
	}
	if err != nil {
		return s.classify(doing, err)
	}
	return nil
}
