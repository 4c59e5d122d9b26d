// Package destination gives a URL or an authority its one form, and decides by rules
// whether it may be reached.
//
// It promises that what [Parse] and [ParseAuthority] return has one spelling, which
// is what is judged and what is to be sent; that what parsers disagree about is
// refused; and that [Decide] permits nothing that no single rule permits as a whole.
// It is pure: nothing is resolved, dialled or read.
//
// What it does not protect against: it says nothing about the addresses that a name
// has, so whoever dials has to look at each of them, and at each redirect as a new
// destination. A tunnel that it permits can carry anything.
package destination

import (
	"strings"
	"unicode/utf8"

	"tendril/fault"
)

// Longest is the most bytes that a URL or an authority may have.
const Longest = 8 << 10

// Scheme is how a destination is spoken to. In a rule, the zero Scheme is HTTPS.
type Scheme string

// The schemes. There are no others.
const (
	HTTPS Scheme = "https"
	HTTP  Scheme = "http"
)

// UnmarshalText takes the schemes' names.
func (s *Scheme) UnmarshalText(text []byte) error {
	switch scheme := Scheme(text); scheme {
	case HTTPS, HTTP:
		*s = scheme
		return nil
	}
	return fault.New(fault.Invalid, "%q is not a scheme", clip(string(text))).WithHint("write https, or http for plain text")
}

// port is the scheme's own.
func (s Scheme) port() Port {
	if s == HTTP {
		return 80
	}
	return 443
}

// URL is an http or https URL in its one form. It has no user information and no
// fragment. The zero URL is none. URLs can be compared with ==.
type URL struct {
	scheme    Scheme
	authority Authority
	path      string // begins with a slash
	query     string // with its question mark, or empty
	climbs    bool   // some server may take the path for another one
}

// Scheme returns the URL's scheme.
func (u URL) Scheme() Scheme { return u.scheme }

// Authority returns the host and the port, which is the scheme's if none was written.
func (u URL) Authority() Authority { return u.authority }

// Path returns the path. It begins with a slash, has no dot segments, and is
// escaped.
func (u URL) Path() string { return u.path }

// Target returns what a request line has to carry (RFC 9112, section 3.2.1): the path
// and the query.
func (u URL) Target() string { return u.path + u.query }

// Origin returns the URL without path and query. Two URLs with the same origin speak
// to the same server.
func (u URL) Origin() string {
	if u.scheme == "" {
		return ""
	}
	origin := string(u.scheme) + "://" + u.authority.Host.String()
	if u.authority.Port != u.scheme.port() {
		origin += ":" + u.authority.Port.String()
	}
	return origin
}

// String returns the one form. Parse of it is the same URL.
func (u URL) String() string { return u.Origin() + u.Target() }

// MarshalText returns the one form.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Parse returns a URL in its one form, or a fault of the kind invalid. It mends what
// has one meaning (case of scheme and host, escapes, dot segments, characters that
// have to be escaped) and refuses what has two. A fragment is left out: it is never
// sent. Of what may hold a secret (user information, path, query), an error repeats
// nothing.
func Parse(text string) (URL, error) {
	if err := checkText("URL", text); err != nil {
		return URL{}, err
	}
	text, _, _ = strings.Cut(text, "#")
	name, rest, ok := strings.Cut(text, "://")
	if !ok {
		return URL{}, fault.New(fault.Invalid, "the URL has no scheme and host").WithHint("write https://host/path")
	}
	var u URL
	if u.scheme.UnmarshalText([]byte(lowerASCII(name))) != nil {
		return URL{}, fault.New(fault.Invalid, "the URL's scheme is neither https nor http")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	var err error
	if u.authority, err = parseAuthority(rest[:end], u.scheme.port()); err != nil {
		return URL{}, err
	}
	path, query, asked := strings.Cut(rest[end:], "?")
	if u.path, err = normalPath(path); err != nil {
		return URL{}, err
	}
	u.climbs = climbs(u.path)
	if asked {
		if query, err = escape(query, isQuery, false); err != nil {
			return URL{}, err
		}
		u.query = "?" + query
	}
	if len(u.String()) > Longest { // escapes make it longer
		return URL{}, fault.New(fault.Invalid, "the URL is longer than %d bytes", Longest)
	}
	return u, nil
}

// checkText refuses what no part of a URL may hold. Parsers drop tabs and line ends,
// end at a NUL or take a backslash for a slash (WHATWG), or do not.
func checkText(what, text string) error {
	if len(text) > Longest {
		return fault.New(fault.Invalid, "the %s is longer than %d bytes", what, Longest)
	}
	if !utf8.ValidString(text) {
		return fault.New(fault.Invalid, "the %s is not UTF-8", what)
	}
	for _, c := range []byte(text) {
		switch {
		case c <= ' ' || c == 0x7f:
			return fault.New(fault.Invalid, "the %s holds a space or a control character (%#02x)", what, c).WithHint("escape it, or remove it")
		case c == '\\':
			return fault.New(fault.Invalid, `the %s holds a backslash`, what).WithHint("write /, or %%5C where a backslash is meant")
		}
	}
	return nil
}
