package run

import (
	"crypto/rand"
	"encoding/binary"
	"strings"
	"time"

	"tendril/fault"
)

// ID names a run: "r-" and 26 characters that hold 48 bits of Unix time in
// milliseconds and 80 random bits, so that ids sort by the time they were made.
// The layout is that of a ULID (github.com/ulid/spec) in lower case, which makes an
// ID a safe file name, branch name and label everywhere.
type ID string

const (
	idPrefix = "r-"
	idDigits = 26
	// Crockford's base 32, in lower case: no i, l, o or u.
	idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"
)

// NewID returns a fresh ID. Two ids of the same millisecond sort at random.
func NewID() ID {
	return newID(time.Now())
}

func newID(at time.Time) ID {
	var random [10]byte
	rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	// 130 bits of digits hold 128 bits of value: the first digit is at most 7.
	hi := uint64(at.UnixMilli())<<16 | uint64(binary.BigEndian.Uint16(random[:2]))
	lo := binary.BigEndian.Uint64(random[2:])
	var digits [idDigits]byte
	for i := idDigits - 1; i >= 0; i-- {
		digits[i] = idAlphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return ID(idPrefix + string(digits[:]))
}

// ParseID returns the ID that s spells, exactly: no upper case, no look-alike
// digit, no abbreviation. Anything else is a fault of the kind invalid.
func ParseID(s string) (ID, error) {
	if !validID(s) {
		return "", fault.New(fault.Invalid, "%q is not the id of a run", clip(s)).
			WithHint("an id is r- and 26 characters; `tendril run list` shows them")
	}
	return ID(s), nil
}

func validID(s string) bool {
	if len(s) != len(idPrefix)+idDigits || !strings.HasPrefix(s, idPrefix) {
		return false
	}
	digits := s[len(idPrefix):]
	if digits[0] > '7' {
		return false
	}
	for i := range len(digits) {
		if strings.IndexByte(idAlphabet, digits[i]) < 0 {
			return false
		}
	}
	return true
}

// clip bounds what an error repeats of a value that a caller sent.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// Time is when the ID was made, to the millisecond. It is the zero time for
// what [ParseID] would refuse.
func (id ID) Time() time.Time {
	if !validID(string(id)) {
		return time.Time{}
	}
	var ms int64
	for _, digit := range []byte(id[len(idPrefix) : len(idPrefix)+10]) {
		ms = ms<<5 | int64(strings.IndexByte(idAlphabet, digit))
	}
	return time.UnixMilli(ms).UTC()
}

// Branch is the short name of the branch that holds the run's Fruit.
func (id ID) Branch() string {
	return "tendril/" + string(id)
}

// UnmarshalText makes decoding as strict as [ParseID].
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
