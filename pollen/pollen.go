// Package pollen holds the identities that the Stem issues: their names, their tokens
// and whether one is still good.
//
// It promises that a token is found by its form alone, so that a leak scanner knows one
// without asking anybody; that no formatting, logging or encoding of a [Token] shows
// it, only [Token.Reveal] does; and that what is kept of one, its [Digest], cannot be
// turned back into it. It decides and touches nothing: who presents a token, and where
// records are kept, is for others. Whoever can read the file or the memory in which a
// Pollinator keeps its token is that Pollinator; a binding to a uid narrows that to the
// accounts of one person on one host.
package pollen

import (
	"slices"
	"strings"
	"time"

	"tendril/fault"
	"tendril/spelling"
)

// Name is the name of a Pollen in its one canonical form, see [spelling.CheckName]. It
// is compared byte by byte.
type Name string

// Botanist is the one identity that is never issued: whoever owns the control plane.
const Botanist Name = "botanist"

// reserved names would be taken for somebody else in a record.
var reserved = []Name{Botanist, "stem", "nobody", "root"}

// ParseName returns the name of a Pollen that can be issued. What is not in the
// canonical form, or is reserved, is a fault of the kind invalid.
func ParseName(s string) (Name, error) {
	if err := spelling.CheckName("Pollen", s); err != nil {
		return "", err
	}
	if slices.Contains(reserved, Name(s)) {
		words := make([]string, len(reserved))
		for i, name := range reserved {
			words[i] = string(name)
		}
		return "", fault.New(fault.Invalid, "%s is reserved and cannot be issued", s).
			WithRule("reserved names are " + strings.Join(words, ", ")).
			WithHint("choose a name that says who asks, such as ci-docs")
	}
	return Name(s), nil
}

// UnmarshalText takes what [ParseName] takes.
func (n *Name) UnmarshalText(text []byte) error {
	name, err := ParseName(string(text))
	if err == nil {
		*n = name
	}
	return err
}

// How long a Pollen is good: by default, and at least and at most.
const (
	DefaultTTL = 90 * 24 * time.Hour
	LeastTTL   = time.Minute
	MostTTL    = 10 * 365 * 24 * time.Hour
)

// Record is what the Stem keeps of one Pollen. Its times are in UTC and whole
// milliseconds. The JSON has no digest: nobody needs it to name a Pollen.
type Record struct {
	ID      int64      `json:"id"` // ascending, given by the store; 0 until then
	Name    Name       `json:"name"`
	UID     *int       `json:"uid"` // the only local uid that may present it; nil: any
	Issued  time.Time  `json:"issued"`
	Expires time.Time  `json:"expires"` // the first instant at which it is no longer good
	Rotated *time.Time `json:"rotated"` // the last time that its token was replaced
	Revoked *time.Time `json:"revoked"`
	Digest  Digest     `json:"-"`
}

// Issue makes a new Pollen and its token, which nothing can show again.
func Issue(name Name, uid *int, now time.Time, ttl time.Duration) (Record, Token, error) {
	if _, err := ParseName(string(name)); err != nil {
		return Record{}, Token{}, err
	}
	// 2³²−1 is no uid: it means "unchanged" in chown(2) and setresuid(2).
	if uid != nil && (*uid < 0 || int64(*uid) > 1<<32-2) {
		return Record{}, Token{}, fault.New(fault.Invalid, "%d is not a uid", *uid).
			WithHint("`id -u NAME` prints the uid of an account")
	}
	if ttl < LeastTTL || ttl > MostTTL {
		return Record{}, Token{}, fault.New(fault.Invalid, "a Pollen cannot be good for %v", ttl).
			WithRule("a Pollen is good for 1 minute to 10 years").
			WithHint("write it with a unit, such as 720h; without one it is good for %v", DefaultTTL)
	}
	token := NewToken()
	now = instant(now)
	record := Record{Name: name, Issued: now, Expires: instant(now.Add(ttl)), Digest: token.Digest()}
	if uid != nil {
		record.UID = new(*uid)
	}
	return record, token, nil
}

// Rotate returns the record with another token, good from now for as long as the one
// before was. The one before is refused from then on; what it began may end. An expired
// Pollen can be rotated, a revoked one cannot.
func (r Record) Rotate(now time.Time) (Record, Token, error) {
	if r.Revoked != nil {
		return Record{}, Token{}, r.alreadyRevoked()
	}
	since := r.Issued
	if r.Rotated != nil {
		since = *r.Rotated
	}
	ttl := r.Expires.Sub(since)
	token := NewToken()
	now = instant(now)
	r.Rotated, r.Expires, r.Digest = new(now), now.Add(ttl), token.Digest()
	return r, token, nil
}

// Revoke returns the record as it is once it was revoked, which is for good.
func (r Record) Revoke(now time.Time) (Record, error) {
	if r.Revoked != nil {
		return Record{}, r.alreadyRevoked()
	}
	r.Revoked = new(instant(now))
	return r, nil
}

func (r Record) alreadyRevoked() error {
	return fault.New(fault.Invalid, "Pollen %s was revoked at %s", r.Name, stamp(*r.Revoked)).
		WithRule("a revoked Pollen stays revoked").
		WithHint("issue one under another name: tendril pollen issue NAME")
}

// Check says whether the Pollen is good at now when a process of the uid presents it;
// nil is a presenter whose uid nobody vouches for. Every refusal is a fault of the kind
// denied. It may be asked again while a request runs.
func (r Record) Check(now time.Time, uid *int) error {
	switch {
	case r.Revoked != nil:
		return fault.New(fault.Denied, "Pollen %s was revoked at %s", r.Name, stamp(*r.Revoked)).
			WithRule("a revoked Pollen may do nothing").
			WithHint("ask the Botanist for another one: tendril pollen issue NAME")
	case !now.Before(r.Expires):
		return fault.New(fault.Denied, "Pollen %s expired at %s", r.Name, stamp(r.Expires)).
			WithRule("an expired Pollen may do nothing").
			WithHint("ask the Botanist for another token: tendril pollen rotate %s", r.Name)
	case r.UID != nil && uid == nil:
		return fault.New(fault.Denied, "Pollen %s is bound to uid %d, and nothing proves the uid of who presents it", r.Name, *r.UID).
			WithRule("a bound Pollen is good for its uid alone").
			WithHint("present it over the local socket, as uid %d", *r.UID)
	case r.UID != nil && *uid != *r.UID:
		return fault.New(fault.Denied, "Pollen %s is bound to uid %d, and uid %d presents it", r.Name, *r.UID, *uid).
			WithRule("a bound Pollen is good for its uid alone").
			WithHint("present it as uid %d, or ask the Botanist for one that is not bound to it", *r.UID)
	}
	return nil
}

// instant is t as records hold it: what the store and JSON give back is equal.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
