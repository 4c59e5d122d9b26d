package grant

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"tendril/capability"
	"tendril/fault"
)

// Limits are the bounds of a grant: the most that a request may ask for. A limit
// that is not set is bounded by the site's default.
type Limits struct {
	capability.Limits `yaml:",inline"`

	Tokens *Count `yaml:"tokens" json:"tokens,omitzero"` // of a model, in and out
	Spend  *Money `yaml:"spend" json:"spend,omitzero"`
}

// IsZero reports whether no limit is set.
func (l Limits) IsZero() bool { return l == Limits{} }

// Daily bounds what a Pollen does in one day of UTC.
type Daily struct {
	Runs   *Count `yaml:"runs" json:"runs,omitzero"` // that begin on that day
	Tokens *Count `yaml:"tokens" json:"tokens,omitzero"`
	Spend  *Money `yaml:"spend" json:"spend,omitzero"`
}

// Count is a whole number of at least one: a limit of nothing would read like no
// limit.
type Count int64

// Validate refuses zero and less.
func (c Count) Validate() error {
	if c < 1 {
		return fault.New(fault.Invalid, "%d is not a limit", int64(c)).
			WithHint("write a whole number of at least 1; to permit nothing, remove the class from the grant")
	}
	return nil
}

// Money is an amount in millionths of a US dollar.
type Money int64

const microPerUSD = 1_000_000

// ParseMoney parses an amount such as "5.00 USD": a whole number or a decimal with at
// most 6 places, one space and the currency. Nothing is rounded. Zero is refused.
func ParseMoney(s string) (Money, error) {
	amount, ok := parseMicro(s)
	if !ok || amount == 0 {
		return 0, fault.New(fault.Invalid, "%q is not an amount of money", clip(s)).
			WithHint("write it like `5.00 USD`: more than zero, at most 6 places after the point, and the currency USD")
	}
	return amount, nil
}

func parseMicro(s string) (Money, bool) {
	number, ok := strings.CutSuffix(s, " USD")
	whole, places, pointed := strings.Cut(number, ".")
	if !ok || !isDigits(whole) || (len(whole) > 1 && whole[0] == '0') || len(places) > 6 || (pointed && !isDigits(places)) {
		return 0, false
	}
	usd, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || usd > math.MaxInt64/microPerUSD-1 {
		return 0, false
	}
	micro, err := strconv.ParseInt(places+strings.Repeat("0", 6-len(places)), 10, 64)
	return Money(usd*microPerUSD + micro), err == nil
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// String is the amount as ParseMoney takes it.
func (m Money) String() string {
	places := fmt.Sprintf("%06d", m%microPerUSD)
	for len(places) > 2 && places[len(places)-1] == '0' {
		places = places[:len(places)-1]
	}
	return fmt.Sprintf("%d.%s USD", m/microPerUSD, places)
}

// MarshalText is the amount as ParseMoney takes it.
func (m Money) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText parses what [ParseMoney] parses.
func (m *Money) UnmarshalText(text []byte) error {
	amount, err := ParseMoney(string(text))
	if err == nil {
		*m = amount
	}
	return err
}

// Expiry is the first instant at which a grant holds no more, in UTC and whole
// seconds.
type Expiry time.Time

// ParseExpiry parses a date, which means its first instant in UTC, or a time of
// RFC 3339 in whole seconds with its offset.
func ParseExpiry(s string) (Expiry, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return Expiry(day.UTC()), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	// time.Parse takes more than RFC 3339 has, such as one digit for the hour.
	if err != nil || at.Format(time.RFC3339) != strings.Replace(s, "+00:00", "Z", 1) {
		return Expiry{}, fault.New(fault.Invalid, "%q is neither a date nor a time", clip(s)).
			WithHint("write a date such as 2027-06-30, whose first moment in UTC is meant, or a time such as 2027-06-30T18:00:00Z")
	}
	return Expiry(at.UTC()), nil
}

// Passed reports whether the grant holds no more at now.
func (e Expiry) Passed(now time.Time) bool { return !now.Before(time.Time(e)) }

// String is the expiry as ParseExpiry takes it, a date where that says it all.
func (e Expiry) String() string {
	at := time.Time(e)
	if at.Equal(at.Truncate(24 * time.Hour)) {
		return at.Format(time.DateOnly)
	}
	return at.Format(time.RFC3339)
}

// MarshalText is the expiry as ParseExpiry takes it.
func (e Expiry) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText parses what [ParseExpiry] parses.
func (e *Expiry) UnmarshalText(text []byte) error {
	expiry, err := ParseExpiry(string(text))
	if err == nil {
		*e = expiry
	}
	return err
}
