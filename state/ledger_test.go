//go:build linux

package state_test

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
	"tendril/state"
)

func permit(capability string) ledger.Entry {
	return ledger.Entry{Kind: ledger.Decision, Actor: "botanist", Proof: ledger.ByProcess, Capability: capability, Decision: ledger.Permit}
}

// export is what `tendril ledger export` prints.
func export(t testing.TB, s *state.Store) []byte {
	t.Helper()
	var all []byte
	for from := int64(0); ; {
		page, err := s.LedgerLines(t.Context(), from, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		for _, line := range page {
			all = append(append(all, line...), '\n')
		}
		from += int64(len(page))
	}
}

func checkpoint(t testing.TB, s *state.Store) []byte {
	t.Helper()
	signed, err := s.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return []byte(signed)
}

// verify fails unless the whole ledger holds against its own and the kept checkpoints.
func verify(t testing.TB, s *state.Store, kept ...[]byte) ledger.Report {
	t.Helper()
	signed := checkpoint(t, s)
	report, err := ledger.Verify(bytes.NewReader(export(t, s)), s.LedgerKey(), append(kept, signed)...)
	if err != nil {
		t.Fatal(err)
	}
	if size, err := s.LedgerSize(t.Context()); report.Newer != 0 || size != report.Rows || err != nil {
		t.Fatalf("the newest checkpoint covers %d of %d rows (%v)", report.Covered, size, err)
	}
	return report
}

func TestRecordIsThereAfterwards(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	before := checkpoint(t, s)
	rows, err := s.Record(t.Context(), permit("run.list"), permit("run.get"))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].Seq != 1 || rows[1].Seq != 2 || rows[1].Capability != "run.get" {
		t.Errorf("got %v", rows)
	}
	key := s.LedgerKey()
	s.Close()
	s = open(t, path)
	if s.LedgerKey() != key {
		t.Error("it has another key")
	}
	if report := verify(t, s, before); report.Rows != 3 || len(report.Checkpoints) != 2 {
		t.Errorf("got %+v", report)
	}
	lines, err := s.LedgerLines(t.Context(), 1, 1)
	if err != nil || len(lines) != 1 || !bytes.Equal(lines[0], rows[0].Line()) {
		t.Errorf("got %s, %v", lines, err)
	}
	for _, page := range []struct {
		from  int64
		limit int
	}{{-1, 1}, {0, 0}, {0, state.MostLines + 1}} {
		if _, err := s.LedgerLines(t.Context(), page.from, page.limit); !fault.Is(err, fault.Invalid) {
			t.Errorf("%d from %d: %v", page.limit, page.from, err)
		}
	}
	if lines, err := s.LedgerLines(t.Context(), 3, 10); err != nil || len(lines) != 0 {
		t.Errorf("after the last: %s, %v", lines, err)
	}
}

func TestTwoSitesAreTwoOrigins(t *testing.T) {
	one, other := open(t, filepath.Join(t.TempDir(), "state.db")), open(t, filepath.Join(t.TempDir(), "state.db"))
	if one.LedgerKey() == other.LedgerKey() {
		t.Error("two sites have one key")
	}
	if _, err := ledger.Verify(bytes.NewReader(export(t, one)), "", checkpoint(t, other)); err == nil {
		t.Error("the checkpoint of another site was taken")
	}
}

// TestManyStoresAtOnce lets several Stores on one file write in several goroutines each.
func TestManyStoresAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	const stores, callers, calls = 3, 6, 5
	var mu sync.Mutex
	acknowledged := map[int64][]byte{}
	var kept [][]byte
	var working sync.WaitGroup
	for range stores {
		s := open(t, path)
		for range callers {
			working.Go(func() {
				for range calls {
					lines, err := recordSome(t.Context(), s)
					if err != nil {
						t.Error(err)
						return
					}
					signed, err := s.Checkpoint(t.Context())
					mu.Lock()
					for seq, line := range lines {
						if acknowledged[seq] != nil {
							t.Errorf("two calls got row %d", seq)
						}
						acknowledged[seq] = line
					}
					if kept = append(kept, []byte(signed)); err != nil {
						t.Error(err)
					}
					mu.Unlock()
				}
			})
		}
	}
	working.Wait()
	s := open(t, path)
	if report := verify(t, s, kept...); report.Rows != 1+stores*callers*calls*4 {
		t.Errorf("%d rows", report.Rows)
	}
	lines := bytes.Split(export(t, s), []byte("\n"))
	for seq, line := range acknowledged {
		if !bytes.Equal(lines[seq], line) {
			t.Errorf("row %d is %s, and %s was acknowledged", seq, lines[seq], line)
		}
	}
}

// TestAChangeAndItsRowAreOne: both are stored, or neither is.
func TestAChangeAndItsRowAreOne(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	size := func() int64 { return verify(t, s).Rows }
	last := func() ledger.Row {
		t.Helper()
		lines, err := s.LedgerLines(t.Context(), size()-1, 1)
		if err != nil {
			t.Fatal(err)
		}
		row, err := ledger.ParseRow(lines[0])
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	bad := ledger.Entry{Kind: "note"}
	ended := func(r run.Run) ledger.Entry {
		return ledger.Entry{Kind: ledger.Change, Run: string(r.ID), Change: "run.ended", State: string(r.State)}
	}
	r := newRun()
	if err := s.CreateRun(t.Context(), r, created(r)); err != nil {
		t.Fatal(err)
	}
	if row := last(); row.Seq != 1 || row.Change != "run.created" || row.Run != string(r.ID) || row.Subject != "/src/handbook\xff" {
		t.Errorf("got %+v", row)
	}
	if err := s.CreateRun(t.Context(), r, created(r)); err == nil || size() != 2 {
		t.Errorf("made twice: %v, %d rows", err, size())
	}
	spoiled := newRun()
	if err := s.CreateRun(t.Context(), spoiled, created(spoiled), bad); err == nil || size() != 2 {
		t.Errorf("with an entry that is none: %v, %d rows", err, size())
	}
	if _, err := s.Get(t.Context(), spoiled.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("it was made without its rows: %v", err)
	}

	refuse := func(r *run.Run) error { r.State = run.Refused; return nil }
	if _, _, err := s.UpdateRun(t.Context(), r.ID, refuse, func(run.Run) ledger.Entry { return bad }); err == nil || size() != 2 {
		t.Errorf("with an entry that is none: %v, %d rows", err, size())
	}
	if r, err := s.Get(t.Context(), r.ID); err != nil || r.State != run.Queued {
		t.Errorf("it was changed without its row: %s, %v", r.State, err)
	}
	changed := errors.New("changed my mind")
	if _, _, err := s.UpdateRun(t.Context(), r.ID, func(*run.Run) error { return changed }, ended); !errors.Is(err, changed) || size() != 2 {
		t.Errorf("without a change: %v, %d rows", err, size())
	}

	asked := ledger.Entry{Kind: ledger.Change, Actor: "ann", Run: string(r.ID), Change: "run.cancelled"}
	if err := s.RequestCancel(t.Context(), r.ID, "ann", bad); err == nil {
		t.Error("an entry that is none was taken")
	}
	if _, requested, err := s.CancelRequested(t.Context(), r.ID); requested || err != nil {
		t.Errorf("it is cancelled without its row: %v", err)
	}
	for range 2 { // the second changes nothing
		if err := s.RequestCancel(t.Context(), r.ID, "ann", asked); err != nil {
			t.Fatal(err)
		}
		if row := last(); row.Seq != 2 || row.Change != "run.cancelled" {
			t.Errorf("got %+v", row)
		}
	}

	if _, _, err := s.UpdateRun(t.Context(), r.ID, refuse, ended); err != nil {
		t.Fatal(err)
	}
	if row := last(); row.Seq != 3 || row.State != "refused" || row.Run != string(r.ID) {
		t.Errorf("got %+v", row)
	}
	before := export(t, s)
	if pruned, err := s.Prune(t.Context(), 0); err != nil || len(pruned) != 1 {
		t.Fatalf("pruned %v, %v", pruned, err)
	}
	if !bytes.Equal(export(t, s), before) {
		t.Error("pruning runs changed the ledger")
	}
	verify(t, s)
}

// alter runs statements on a database past the store, and past its triggers.
func alter(t *testing.T, path, statements string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`DROP TRIGGER ledger_rows_stay; DROP TRIGGER ledger_rows_keep;` + statements); err != nil {
		t.Fatal(err)
	}
}

func TestRowsStayAsTheyAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	open(t, path)
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{`DELETE FROM ledger_rows`, `UPDATE ledger_rows SET line = x'00'`} {
		if _, err := db.Exec(statement); err == nil || !strings.Contains(err.Error(), "never") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func TestOpenRefusesALedgerThatDoesNotFit(t *testing.T) {
	other := open(t, filepath.Join(t.TempDir(), "state.db"))
	if _, err := other.Record(t.Context(), permit("a"), permit("b"), permit("c")); err != nil {
		t.Fatal(err)
	}
	foreign := "CAST('" + string(checkpoint(t, other)) + "' AS BLOB)"
	for _, test := range []struct {
		name, statements, detail string
	}{
		{"the last row is gone", `DELETE FROM ledger_rows WHERE seq = 3`, "3 rows and 7 hashes, and its checkpoint signs 4"},
		{"the first row is gone", `DELETE FROM ledger_rows WHERE seq = 0`, "its first row"},
		{"the first row was changed", `UPDATE ledger_rows SET line = CAST(replace(CAST(line AS TEXT), 'tendril/', 'other/') AS BLOB)`, "its first row"},
		{"a hash is gone", `DELETE FROM ledger_hashes WHERE idx = 6`, "4 rows and 6 hashes"},
		{"a hash was changed", `UPDATE ledger_hashes SET hash = zeroblob(32) WHERE idx = 6`, "another root"},
		{"a hash that is needed is gone", `DELETE FROM ledger_rows WHERE seq = 3; UPDATE ledger_checkpoint SET signed = (SELECT old FROM kept);
			DELETE FROM ledger_hashes WHERE idx > 3; DELETE FROM ledger_hashes WHERE idx = 2`, "its tree"},
		{"an older checkpoint", `UPDATE ledger_checkpoint SET signed = (SELECT old FROM kept)`, "its checkpoint signs 3"},
		{"the checkpoint of another", `UPDATE ledger_checkpoint SET signed = ` + foreign, "its checkpoint"},
		{"no checkpoint", `DELETE FROM ledger_checkpoint`, "its checkpoint"},
		{"a row too many", `INSERT INTO ledger_rows VALUES (4, x'00')`, "5 rows"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			s := open(t, path)
			if _, err := s.Record(t.Context(), permit("a"), permit("b")); err != nil {
				t.Fatal(err)
			}
			old := checkpoint(t, s)
			if _, err := s.Record(t.Context(), permit("c")); err != nil {
				t.Fatal(err)
			}
			s.Close()
			alter(t, path, `CREATE TEMP TABLE kept AS SELECT CAST('`+string(old)+`' AS BLOB) AS old;`+test.statements)
			s, err := state.Open(t.Context(), path)
			if err == nil {
				s.Close()
			}
			checkUnavailable(t, err, path, test.detail, "restore a copy")
		})
	}
}

func TestOpenRefusesAKeyThatIsNotOurs(t *testing.T) {
	otherDir := t.TempDir()
	open(t, filepath.Join(otherDir, "state.db"))
	otherKey, err := os.ReadFile(filepath.Join(otherDir, "ledger.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name         string
		place        func(t *testing.T, key string)
		detail, hint string
	}{
		{"a key that is gone", func(t *testing.T, key string) { os.Remove(key) }, "the key that signs it is gone", "put the file back"},
		{"a key that others can read", func(t *testing.T, key string) { os.Chmod(key, 0o640) }, "other accounts can read", "chmod 0600"},
		{"a key that everybody can read", func(t *testing.T, key string) { os.Chmod(key, 0o604) }, "other accounts can read", "chmod 0600"},
		{"a key that others can write", func(t *testing.T, key string) { os.Chmod(key, 0o620) }, "other accounts can write", "chmod 0600"},
		{"a key of another account", func(t *testing.T, key string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			os.Chown(key, 4242, -1)
		}, "belongs to uid 4242", "run as its owner"},
		{"a symbolic link", func(t *testing.T, key string) {
			os.Rename(key, key+".real")
			os.Symlink(key+".real", key)
		}, "symbolic link", "put the key itself there"},
		{"a directory", func(t *testing.T, key string) {
			os.Remove(key)
			os.Mkdir(key, 0o700)
		}, "not a regular file", "move it away"},
		{"a FIFO", func(t *testing.T, key string) {
			os.Remove(key)
			if err := unix.Mkfifo(key, 0o600); err != nil {
				t.Skip(err)
			}
		}, "not a regular file", "move it away"},
		{"an empty file", func(t *testing.T, key string) { os.Truncate(key, 0) }, "does not hold the signing key", "put the file back"},
		{"what is no key", func(t *testing.T, key string) { os.WriteFile(key, []byte("secret\n"), 0o600) }, "does not hold the signing key", "put the file back"},
		{"much", func(t *testing.T, key string) { os.Truncate(key, 1<<30) }, "does not hold the signing key", "put the file back"},
		{"the key of another site", func(t *testing.T, key string) { os.WriteFile(key, otherKey, 0o600) }, "another key", "restore a copy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "state.db")
			open(t, path).Close()
			key := filepath.Join(dir, "ledger.key")
			secret, err := os.ReadFile(key)
			if err != nil {
				t.Fatal(err)
			}
			test.place(t, key)
			s, err := state.Open(t.Context(), path)
			if err == nil {
				s.Close()
			}
			checkUnavailable(t, err, dir, test.detail, test.hint)
			if strings.Contains(err.Error(), string(secret[40:60])) {
				t.Errorf("the error tells of the key: %v", err)
			}
		})
	}
}

// TestAProcessThatDiedWhileItMadeTheKey left a part of one, or the whole key and no row.
func TestAProcessThatDiedWhileItMadeTheKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	partial := filepath.Join(dir, "ledger.key.new")
	if err := os.WriteFile(partial, []byte("PRIVATE+KEY+tend"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	key := s.LedgerKey()
	verify(t, s)
	s.Close()
	if _, err := os.Lstat(partial); !os.IsNotExist(err) {
		t.Errorf("the part is still there: %v", err)
	}
	for _, name := range []string{"state.db", "state.db-wal", "state.db-shm"} {
		os.Remove(filepath.Join(dir, name))
	}
	s = open(t, path)
	if s.LedgerKey() != key {
		t.Error("a key that was there was replaced")
	}
	verify(t, s)
}

// TestTheKeyIsNotInTheDatabase: a copy of the database signs nothing.
func TestTheKeyIsNotInTheDatabase(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "state.db"))
	if _, err := s.Record(t.Context(), permit("a")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	secret, err := os.ReadFile(filepath.Join(dir, "ledger.key"))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(strings.TrimSpace(string(secret)), "+")
	if len(parts) < 5 || !slices.Equal(parts[:2], []string{"PRIVATE", "KEY"}) {
		t.Fatal("the key has another form")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != "ledger.key" && bytes.Contains(data, []byte(parts[4])) {
			t.Errorf("the secret is in %s", e.Name())
		}
	}
}
