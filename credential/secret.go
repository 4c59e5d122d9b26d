package credential

import (
	"fmt"
	"io"
	"slices"

	"tendril/fault"
)

// The bounds of a secret, in bytes. A shorter one would be found in what has nothing to
// do with it, and could be guessed.
const (
	ShortestSecret = 8
	LongestSecret  = 16 << 10
)

// Secret is the secret itself, for as long as it is needed. It cannot be compared with
// ==, and nothing prints it by accident: the bytes are behind a closure, because fmt
// shows the unexported fields of a struct around a Secret without asking its methods.
// The zero Secret is none. It is not safe for concurrent use with Close.
type Secret struct{ held func() *[]byte }

// NewSecret takes the bytes over: they are the Secret's, and overwritten on Close. What
// cannot be attached or looked for is a fault that does not repeat it, and is
// overwritten at once.
func NewSecret(bytes []byte) (Secret, error) {
	if err := checkSecret(bytes); err != nil {
		clear(bytes)
		return Secret{}, err
	}
	return Secret{func() *[]byte { return &bytes }}, nil
}

func checkSecret(bytes []byte) error {
	switch {
	case len(bytes) < ShortestSecret:
		return fault.New(fault.Unavailable, "it has fewer than %d bytes, and would be found where it is not", ShortestSecret)
	case len(bytes) > LongestSecret:
		return fault.New(fault.Unavailable, "it has more than %d bytes", LongestSecret)
	case slices.ContainsFunc(bytes, func(c byte) bool { return c < ' ' || c == 0x7f }):
		return fault.New(fault.Unavailable, "it holds a control character, such as a line break, which no header carries")
	case bytes[0] == ' ' || bytes[len(bytes)-1] == ' ':
		return fault.New(fault.Unavailable, "it begins or ends with a space, which a header would lose")
	}
	return nil
}

// Bytes returns the secret. They are to be read only, and until Close.
func (s Secret) Bytes() []byte {
	if s.held == nil {
		return nil
	}
	return *s.held()
}

// Clone returns a Secret that is closed by itself.
func (s Secret) Clone() Secret {
	if s.held == nil {
		return Secret{}
	}
	bytes := append([]byte(nil), s.Bytes()...)
	return Secret{func() *[]byte { return &bytes }}
}

// Close overwrites the secret; it is none from then on, in every copy of s. What was
// made of it, such as the text of a header, is not overwritten.
func (s Secret) Close() {
	if s.held == nil {
		return
	}
	clear(*s.held())
	*s.held() = nil
}

const redacted = "(redacted)"

// String does not show the secret.
func (Secret) String() string { return redacted }

// GoString does not show the secret.
func (Secret) GoString() string { return redacted }

// Format does not show the secret, whatever the verb.
func (Secret) Format(to fmt.State, _ rune) { io.WriteString(to, redacted) }

// MarshalText does not show the secret, in JSON and elsewhere.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
