//go:build linux

package stem

import (
	"os"
	"reflect"
	"testing"

	"tendril/capability"
	"tendril/fault"
	"tendril/ledger"
)

// TestAnotherAccountWithoutATokenIsNobody asks for every capability as another account at
// the socket's other end, which presents nothing. Each is denied, and recorded.
func TestAnotherAccountWithoutATokenIsNobody(t *testing.T) {
	s := bare(t)
	stranger := os.Geteuid() + 1
	for _, d := range capability.All() {
		answer, err := s.Invoke(t.Context(), ByPeer(stranger), d.Name, reflect.Zero(d.Input).Interface())
		if !fault.Is(err, fault.Denied) || answer.Output != nil || answer.Proven || answer.Row == nil {
			t.Errorf("%s: %+v, %v", d.Name, answer, err)
			continue
		}
		lines, err := s.state.LedgerLines(t.Context(), *answer.Row, 10)
		if err != nil || len(lines) != 1 {
			t.Fatalf("%s: %d rows from its own on, %v", d.Name, len(lines), err)
		}
		row, err := ledger.ParseRow(lines[0])
		if err != nil {
			t.Fatal(err)
		}
		if row.Kind != ledger.Decision || row.Decision != ledger.Deny || row.Capability != d.Name || row.Fault != string(fault.Denied) ||
			row.Actor != "" || row.Proof != ledger.ByNothing || row.UID == nil || *row.UID != stranger ||
			row.Rule != "without a token, only the owner of the control plane is somebody" {
			t.Errorf("%s: the ledger says %s", d.Name, lines[0])
		}
	}
}
