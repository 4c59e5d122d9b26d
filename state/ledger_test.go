//go:build linux

package state_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"tendril/ledger"
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
		page, err := s.LedgerLines(t.Context(), from, 7)
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
	report, err := ledger.Verify(bytes.NewReader(export(t, s)), s.LedgerKey(), append(kept, checkpoint(t, s))...)
	if err != nil {
		t.Fatal(err)
	}
	if report.Newer != 0 {
		t.Fatalf("the newest checkpoint leaves %d rows out", report.Newer)
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
}
