//go:build linux

package stem

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tendril/capability"
	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
)

// rowsOf exports the rows of a kind.
func rowsOf(t *testing.T, s *Stem, kind ledger.Kind) []ledger.Row {
	t.Helper()
	answer, err := s.Invoke(t.Context(), ByProcess(), "ledger.export", capability.LedgerPageInput{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []ledger.Row
	for _, line := range answer.Output.(capability.LedgerPage).Rows {
		row, err := ledger.ParseRow([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if row.Kind == kind {
			rows = append(rows, row)
		}
	}
	return rows
}

// Each edit of the control plane leaves a row that says of what, and what the file is since.
func TestEditsOfFilesAreRecorded(t *testing.T) {
	s := bare(t)
	for _, edit := range []struct {
		capability           string
		input                any
		change, target, file string
	}{
		{"grant.add", capability.GrantAddInput{Pollen: "ci-docs", Substrates: []string{"handbook"}, Classes: []string{"run.get"}}, "grant.added", "ci-docs", "grants.yaml"},
		{"grant.revoke", capability.GrantRevokeInput{Pollen: "ci-docs", Class: "run.get"}, "grant.revoked", "ci-docs", "grants.yaml"},
		{"substrate.add", capability.SubstrateAddInput{Name: "handbook", URL: "https://git.example.com/handbook.git"}, "substrate.bound", "handbook", "substrates.yaml"},
		{"substrate.remove", capability.SubstrateInput{Name: "handbook"}, "substrate.removed", "handbook", "substrates.yaml"},
		{"credential.add", capability.CredentialAddInput{Name: "model-api", Env: "MODEL_API_KEY", Host: "api.example.com", Header: "Authorization"}, "credential.bound", "model-api", "credentials.yaml"},
		{"credential.remove", capability.CredentialInput{Name: "model-api"}, "credential.removed", "model-api", "credentials.yaml"},
	} {
		before := len(rowsOf(t, s, ledger.Change))
		answer, err := s.Invoke(t.Context(), ByProcess(), edit.capability, edit.input)
		if err != nil {
			t.Fatalf("%s: %v", edit.capability, err)
		}
		text, err := os.ReadFile(filepath.Join(s.config.Site.Config, edit.file))
		if err != nil {
			t.Fatal(err)
		}
		rows := rowsOf(t, s, ledger.Change)[before:]
		if len(rows) != 1 {
			t.Errorf("%s left %d rows", edit.capability, len(rows))
			continue
		}
		row, digest := rows[0], fmt.Sprintf("sha256:%x", sha256.Sum256(text))
		if row.Change != edit.change || row.Target != edit.target || row.Of == nil || *row.Of != *answer.Row || row.Actor != "botanist" {
			t.Errorf("%s left %+v", edit.capability, row.Entry)
		}
		if len(row.Digests) != 1 || row.Digests["file"] != digest {
			t.Errorf("%s: digests %v; the file is %s", edit.capability, row.Digests, digest)
		}
	}
}

// What changed nothing is no change.
func TestRefusedEditsAreNoChange(t *testing.T) {
	s := bare(t)
	for name, input := range map[string]any{
		"grant.revoke":      capability.GrantRevokeInput{Pollen: "ci-docs"},
		"substrate.add":     capability.SubstrateAddInput{Name: "handbook", Path: new(run.Path("/nowhere"))},
		"substrate.remove":  capability.SubstrateInput{Name: "handbook"},
		"credential.remove": capability.CredentialInput{Name: "model-api"},
	} {
		if _, err := s.Invoke(t.Context(), ByProcess(), name, input); !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if rows := rowsOf(t, s, ledger.Change); len(rows) != 0 {
		t.Errorf("recorded %v", rows)
	}
}
