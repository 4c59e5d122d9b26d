package fault

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestFaultsKeepTheirCause(t *testing.T) {
	err := New(Unavailable, "read %s: %w", "state.db", io.ErrUnexpectedEOF).WithRule("disk").WithHint("free %d bytes", 7)
	if err.Error() != "read state.db: unexpected EOF" {
		t.Errorf("got %q", err)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("the cause is lost")
	}
	if err.Rule != "disk" || err.Hint != "free 7 bytes" {
		t.Errorf("rule %q, hint %q", err.Rule, err.Hint)
	}
	if New(Invalid, "no cause").Unwrap() != nil {
		t.Error("there is a cause where none was given")
	}
}

func TestKinds(t *testing.T) {
	denied := New(Denied, "no")
	for _, test := range []struct {
		name string
		err  error
		want Kind
	}{
		{"no error", nil, ""},
		{"a fault", denied, Denied},
		{"a fault that was wrapped", fmt.Errorf("grow: %w", denied), Denied},
		{"a fault that another fault wraps", New(Invalid, "grow: %w", denied), Invalid},
		{"a fault among others", errors.Join(io.EOF, denied), Denied},
		{"an error that nobody classified", io.EOF, Internal},
	} {
		if got := KindOf(test.err); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		if test.err != nil && !Is(test.err, test.want) {
			t.Errorf("%s: Is says no", test.name)
		}
	}
	if Is(nil, Internal) {
		t.Error("no error is internal")
	}
}
