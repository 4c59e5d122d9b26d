package credential

import (
	"slices"
	"strings"

	"tendril/fault"
)

// Attach is how a request carries a secret. Exactly one of Header, Basic and Query is
// set; Template belongs to Header.
type Attach struct {
	Header   Header    `yaml:"header" json:"header,omitzero"`
	Template Template  `yaml:"template" json:"template,omitzero"` // not set: the secret alone
	Basic    User      `yaml:"basic" json:"basic,omitzero"`       // the user; the secret is the password (RFC 7617)
	Query    Parameter `yaml:"query" json:"query,omitzero"`
}

// Validate refuses what is no way, or several.
func (a Attach) Validate() error {
	set := 0
	for _, is := range []bool{a.Header != "", a.Basic != "", a.Query != ""} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return fault.New(fault.Invalid, "exactly one of header, basic and query is needed").
			WithHint("say how a request carries the secret: {header: NAME}, {header: Authorization, template: \"Bearer {secret}\"}, {basic: USER} or {query: NAME}")
	case a.Template != "" && a.Header == "":
		return fault.New(fault.Invalid, "a template without a header").WithHint("write {header: Authorization, template: \"Bearer {secret}\"}")
	}
	return nil
}

// RefuseKey says why a secret has no place here.
func (Attach) RefuseKey(key string) error { return refuseLiteral(key) }

// place is the same for two ways that write to the same place of a request.
func (a Attach) place() string {
	switch {
	case a.Header != "":
		return "header " + strings.ToLower(string(a.Header))
	case a.Basic != "":
		return "header authorization"
	}
	return "query " + strings.ToLower(string(a.Query))
}

// String is the place in words.
func (a Attach) String() string {
	switch {
	case a.Header != "":
		return "the header " + string(a.Header)
	case a.Basic != "":
		return "the password of " + string(a.Basic)
	case a.Query != "":
		return "the query parameter " + string(a.Query)
	}
	return "nothing"
}

// Header is the name of a request header (RFC 9110, section 5.1).
type Header string

// managed are the headers that say where a message goes, where it ends and what it is:
// a secret there would change the request (RFC 9110, sections 7.2, 7.6.1 and 8.6).
var managed = []string{"host", "connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "te", "trailer",
	"transfer-encoding", "upgrade", "content-length", "content-encoding", "content-type", "accept-encoding", "expect", "range", "if-range", "via", "forwarded"}

// UnmarshalText refuses what is no name of a header, and the names of those by which a
// message is framed or routed.
func (h *Header) UnmarshalText(text []byte) error {
	name := string(text)
	if name == "" || len(name) > 128 || strings.Trim(name, upper+lower+digits+"!#$%&'*+-.^_`|~") != "" {
		return fault.New(fault.Invalid, "this is not the name of a header").WithHint("write the header's name, such as Authorization or X-Api-Key")
	}
	if slices.Contains(managed, strings.ToLower(name)) {
		return fault.New(fault.Invalid, "the header %s frames or routes a message, and carries no secret", name)
	}
	*h = Header(name)
	return nil
}

// placeholder stands in a template for the secret.
const placeholder = "{secret}"

// Template is the value of a header, with the secret in one place of it.
type Template string

// UnmarshalText refuses a template without a place for the secret, and characters that no
// header carries. It does not repeat it: it may hold the secret.
func (t *Template) UnmarshalText(text []byte) error {
	template := string(text)
	rest := strings.Replace(template, placeholder, "", 1)
	switch {
	case rest == template:
		return fault.New(fault.Invalid, "the template has no place for the secret").WithHint("write %s where the secret goes, such as \"Bearer %s\"", placeholder, placeholder)
	case strings.ContainsAny(rest, "{}"):
		return fault.New(fault.Invalid, "the template has braces beside one %s", placeholder)
	case len(template) > 256 || !isPrintable(rest) || template != strings.TrimSpace(template):
		return fault.New(fault.Invalid, "the template holds what no header carries").WithHint("write printable ASCII, without space at its ends, at most 256 bytes")
	}
	*t = Template(template)
	return nil
}

// Value returns the template with the secret in its place.
func (t Template) Value(secret string) string {
	if t == "" {
		return secret
	}
	return strings.Replace(string(t), placeholder, secret, 1)
}

// User is a user of basic authentication.
type User string

// UnmarshalText refuses what RFC 7617, section 2, does.
func (u *User) UnmarshalText(text []byte) error {
	user := string(text)
	if user == "" || len(user) > 256 || !isPrintable(user) || strings.Contains(user, ":") {
		return fault.New(fault.Invalid, "this is not the user of basic authentication").WithHint("write the user alone, in printable ASCII without a colon")
	}
	*u = User(user)
	return nil
}

// Parameter is the name of a query parameter.
type Parameter string

// UnmarshalText takes names that are the same escaped and unescaped, so that no server
// sees another one.
func (p *Parameter) UnmarshalText(text []byte) error {
	name := string(text)
	if name == "" || len(name) > 128 || strings.Trim(name, upper+lower+digits+"-._~") != "" {
		return fault.New(fault.Invalid, "this is not the name of a query parameter").WithHint("write letters, digits, - . _ and ~, such as api_key")
	}
	*p = Parameter(name)
	return nil
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}
