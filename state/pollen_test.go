package state_test

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tendril/fault"
	"tendril/ledger"
	"tendril/pollen"
	"tendril/state"
)

var issued = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func issuePollen(t testing.TB, s *state.Store, name pollen.Name, uid *int) (pollen.Record, pollen.Token) {
	t.Helper()
	record, token, err := pollen.Issue(name, uid, issued, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if record, err = s.IssuePollen(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	return record, token
}

func TestPollenSurvivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	docs, docsToken := issuePollen(t, s, "ci-docs", new(1000))
	build, _ := issuePollen(t, s, "build", nil)
	if docs.ID != 1 || build.ID != 2 {
		t.Errorf("ids %d and %d", docs.ID, build.ID)
	}
	revoked, err := s.RevokePollen(t.Context(), "build", issued.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	rotated, rotatedToken, err := s.RotatePollen(t.Context(), "ci-docs", issued.Add(2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, path)
	list, err := s.Pollens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]pollen.Record{revoked, rotated}, list); diff != "" {
		t.Error(diff)
	}
	got, err := s.Pollen(t.Context(), "ci-docs")
	if diff := cmp.Diff(rotated, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	got, err = s.PollenByDigest(t.Context(), rotatedToken.Digest())
	if diff := cmp.Diff(rotated, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := s.PollenByDigest(t.Context(), docsToken.Digest()); !fault.Is(err, fault.NotFound) {
		t.Errorf("the token that was rotated out is found: %v", err)
	}
	if got, err := s.PollenByDigest(t.Context(), revoked.Digest); err != nil || got.Revoked == nil {
		t.Errorf("a revoked Pollen is not known as one: %v, %v", got, err)
	}
	if _, err := s.Pollen(t.Context(), "docs"); !fault.Is(err, fault.NotFound) {
		t.Errorf("err = %v", err)
	}
}

func TestPollenNamesAreNeverIssuedAgain(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	first, _ := issuePollen(t, s, "ci-docs", nil)
	again, _, err := pollen.Issue("ci-docs", nil, issued, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.IssuePollen(t.Context(), again); !fault.Is(err, fault.Invalid) {
		t.Errorf("a name that is taken: %v", err)
	}
	if _, err := s.RevokePollen(t.Context(), "ci-docs", issued); err != nil {
		t.Fatal(err)
	}
	if _, err := s.IssuePollen(t.Context(), again); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "revoked at 2026-03-01T12:00:00Z") {
		t.Errorf("the name of a revoked one: %v", err)
	}
	if _, err := s.RevokePollen(t.Context(), "ci-docs", issued.Add(time.Hour)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "2026-03-01T12:00:00Z") {
		t.Errorf("revoked twice: %v", err)
	}
	if _, _, err := s.RotatePollen(t.Context(), "ci-docs", issued); !fault.Is(err, fault.Invalid) {
		t.Errorf("a revoked one was rotated: %v", err)
	}
	if got, err := s.PollenByDigest(t.Context(), first.Digest); err != nil || got.Revoked == nil || !got.Revoked.Equal(issued) {
		t.Errorf("the first revocation does not stand: %+v, %v", got, err)
	}
	if _, err := s.RevokePollen(t.Context(), "docs", issued); !fault.Is(err, fault.NotFound) {
		t.Errorf("err = %v", err)
	}
	if _, _, err := s.RotatePollen(t.Context(), "docs", issued); !fault.Is(err, fault.NotFound) {
		t.Errorf("err = %v", err)
	}
	for _, name := range []pollen.Name{"botanist", "CI", ""} {
		if _, err := s.IssuePollen(t.Context(), pollen.Record{Name: name, Issued: issued, Expires: issued}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The index finds candidates by 8 bytes; the other 24 decide as well.
func TestPollenByDigestComparesTheWhole(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	record, _ := issuePollen(t, s, "ci-docs", nil)
	twin := record
	twin.Name, twin.Digest[31] = "twin", record.Digest[31]^1
	if _, err := s.IssuePollen(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	for _, want := range []pollen.Record{record, twin} {
		if got, err := s.PollenByDigest(t.Context(), want.Digest); err != nil || got.Name != want.Name {
			t.Errorf("got %s, %v; want %s", got.Name, err, want.Name)
		}
	}
	for i := range record.Digest {
		near := record.Digest
		near[i] ^= 2
		if got, err := s.PollenByDigest(t.Context(), near); !fault.Is(err, fault.NotFound) {
			t.Errorf("byte %d does not count: %s, %v", i, got.Name, err)
		}
	}
}

func TestPollenOfOneNameIsIssuedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var wg sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		s := open(t, path)
		record, _, err := pollen.Issue("ci-docs", nil, issued, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _, results[i] = s.IssuePollen(t.Context(), record) })
	}
	wg.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
		} else if !fault.Is(err, fault.Invalid) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d were issued", won)
	}
}

func TestPollenHasABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	direct, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	tx, err := direct.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for i := range state.MostPollen - 1 {
		digest := make([]byte, 32)
		binary.BigEndian.PutUint64(digest, uint64(i))
		if _, err := tx.Exec(`INSERT INTO pollen (name, issued, expires, revoked, digest, prefix) VALUES (?, 0, 0, 0, ?, ?)`, fmt.Sprintf("p%d", i), digest, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	issuePollen(t, s, "the-last", nil)
	record, _, err := pollen.Issue("one-more", nil, issued, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.IssuePollen(t.Context(), record); !fault.Is(err, fault.Unavailable) {
		t.Errorf("err = %v", err)
	}
}

// Nothing in the file is a token.
func TestPollenFileHoldsNoToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	_, token := issuePollen(t, s, "ci-docs", nil)
	_, rotated, err := s.RotatePollen(t.Context(), "ci-docs", issued)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{token.Reveal(), rotated.Reveal()} {
		for _, file := range []string{path, path + "-wal"} {
			if contains(t, file, secret[len("tendril_pollen_"):][:12]) {
				t.Errorf("%s holds a token", file)
			}
		}
	}
	if !contains(t, path+"-wal", "ci-docs") {
		t.Error("the search finds nothing at all")
	}
}

func contains(t *testing.T, file, text string) bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(data, []byte(text))
}

// A change of a Pollen and its row are there together, or neither is.
func TestPollenAndItsRowAreOne(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	docs, _, err := pollen.Issue("ci-docs", nil, issued, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		change string
		do     func(ledger.Entry) error
	}{
		{"pollen.issued", func(e ledger.Entry) error { _, err := s.IssuePollen(t.Context(), docs, e); return err }},
		{"pollen.rotated", func(e ledger.Entry) error {
			_, _, err := s.RotatePollen(t.Context(), "ci-docs", issued, e)
			return err
		}},
		{"pollen.revoked", func(e ledger.Entry) error { _, err := s.RevokePollen(t.Context(), "ci-docs", issued, e); return err }},
	} {
		records, rows := pollenAndRows(t, s)
		if err := step.do(ledger.Entry{Kind: "nonsense"}); err == nil {
			t.Errorf("%s: a row that cannot be written did not stop it", step.change)
		}
		if after, rowsAfter := pollenAndRows(t, s); !cmp.Equal(records, after) || rowsAfter != rows {
			t.Errorf("%s: something was done without its row: %+v", step.change, after)
		}
		change := ledger.Entry{Kind: ledger.Change, Actor: "botanist", Change: step.change, Target: "ci-docs"}
		if err := step.do(change); err != nil {
			t.Fatal(err)
		}
		after, rowsAfter := pollenAndRows(t, s)
		if cmp.Equal(records, after) || rowsAfter != rows+1 {
			t.Errorf("%s: %d rows became %d, and %+v", step.change, rows, rowsAfter, after)
		}
		if step.change == "pollen.rotated" {
			continue // again is as good as once
		}
		if err := step.do(change); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s, for the second time: %v", step.change, err)
		}
		if _, again := pollenAndRows(t, s); again != rowsAfter {
			t.Errorf("%s: what was refused has a row", step.change)
		}
	}
}

func pollenAndRows(t *testing.T, s *state.Store) ([]pollen.Record, int64) {
	t.Helper()
	list, err := s.Pollens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows, err := s.LedgerSize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list, rows
}
