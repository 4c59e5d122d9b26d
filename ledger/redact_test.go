package ledger_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"tendril/ledger"
	"tendril/pollen"
)

// TestNoRowHoldsAToken puts one into each text of an entry, alone and within more.
func TestNoRowHoldsAToken(t *testing.T) {
	token := pollen.NewToken().Reveal()
	secret := strings.TrimPrefix(token, "tendril_pollen_")
	for i := range reflect.TypeFor[ledger.Entry]().NumField() {
		for _, text := range []string{token, "/srv/" + token + "/x", token + token, "\xff/" + token, strings.Repeat("a", 5) + token, token[:50]} {
			e := ledger.Entry{Kind: ledger.Change, Change: "x"}
			field := reflect.ValueOf(&e).Elem().Field(i)
			name := reflect.TypeFor[ledger.Entry]().Field(i).Name
			if field.Kind() != reflect.String {
				continue
			}
			field.SetString(text)
			row, err := ledger.NewRow(7, time.Unix(0, 0), e)
			if err != nil {
				switch name {
				case "Kind", "Actor", "Proof", "Decision": // these have no other values than their own
					continue
				}
				t.Errorf("%s: %v", name, err)
				continue
			}
			said := row.Subject + string(row.Line())
			if strings.Contains(said, secret[:11]) || !strings.Contains(said, "tendril_pollen_(redacted)") {
				t.Errorf("%s: %q was recorded as %s", name, text, row.Line())
			}
			if _, err := ledger.ParseRow(row.Line()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestOldRowsStay: a row that was written with one is what its checkpoint signs.
func TestOldRowsStay(t *testing.T) {
	token := pollen.NewToken().Reveal()
	line := strings.Replace(string(newRow(t, 7, ledger.Entry{Kind: ledger.Change, Change: "x", Subject: "handbook"}).Line()), "handbook", token, 1)
	row, err := ledger.ParseRow([]byte(line))
	if err != nil || string(row.Line()) != line || row.Subject != token {
		t.Errorf("%s: %v", line, err)
	}
}
