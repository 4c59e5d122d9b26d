package destination

import (
	"slices"
	"strings"

	"tendril/fault"
)

// Rule permits requests to one host, or to the hosts below a name. The zero Rule
// permits nothing. It is decoded from a file by its `yaml` tags, each field by its
// own UnmarshalText, and has to be checked with Validate as a whole.
type Rule struct {
	Host    Pattern       `yaml:"host" json:"host"`
	Scheme  Scheme        `yaml:"scheme" json:"scheme,omitzero"`   // not set: HTTPS
	Port    Port          `yaml:"port" json:"port,omitzero"`       // not set: the scheme's
	Methods Methods       `yaml:"methods" json:"methods,omitzero"` // not set: GET and HEAD
	Paths   []PathPattern `yaml:"paths" json:"paths,omitzero"`     // not set: every path

	// Networks are those in which the host may lie although they are not globally
	// reachable. Not set: none. They are for whoever dials; a decision does not look at
	// addresses.
	Networks []Network `yaml:"networks" json:"networks,omitzero"`

	// WebSocket permits a request to become a WebSocket, in which nobody looks at what is
	// said.
	WebSocket bool `yaml:"websocket" json:"websocket,omitzero"`
}

// Validate refuses a rule that has no host, a list that is empty or says something
// twice, and a tunnel that claims to look at what goes through it.
func (r Rule) Validate() error {
	switch {
	case r.Host == Pattern{}:
		return fault.New(fault.Invalid, "the rule has no host")
	case r.Methods != nil && len(r.Methods) == 0:
		return fault.New(fault.Invalid, "the list of methods is empty").WithHint("remove the key to permit GET and HEAD, or the rule to permit nothing")
	case r.Paths != nil && len(r.Paths) == 0:
		return fault.New(fault.Invalid, "the list of paths is empty").WithHint("remove the key to permit every path, or the rule to permit nothing")
	}
	if r.Networks != nil && len(r.Networks) == 0 {
		return fault.New(fault.Invalid, "the list of networks is empty").WithHint("remove the key: a host lies in no network but the public ones")
	}
	if slices.Contains(r.Methods, Any) {
		switch {
		case r.WebSocket:
			return fault.New(fault.Invalid, "a rule with `methods: any` has a websocket").WithHint("its tunnel carries anything; remove the key")
		case len(r.Methods) > 1:
			return fault.New(fault.Invalid, "`any` stands beside other methods").WithHint("write `methods: any` for a tunnel that nobody looks into, or name methods")
		case r.Paths != nil:
			return fault.New(fault.Invalid, "a rule with `methods: any` has paths").WithHint("nobody looks into its tunnel; name methods, or remove the paths")
		case r.scheme() != HTTPS:
			return fault.New(fault.Invalid, "a rule with `methods: any` is for plain text").WithHint("nobody looks into its tunnel; write the port, and remove the scheme")
		}
	}
	if method, ok := repeated(r.Methods); ok {
		return fault.New(fault.Invalid, "the method %s comes twice", method)
	}
	if path, ok := repeated(r.Paths); ok {
		return fault.New(fault.Invalid, "the path %s comes twice", path)
	}
	if network, ok := repeated(r.Networks); ok {
		return fault.New(fault.Invalid, "the network %s comes twice", network)
	}
	return nil
}

func repeated[T comparable](list []T) (T, bool) {
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			return v, true
		}
	}
	var none T
	return none, false
}

// Tunnel reports whether the rule permits a tunnel that nobody looks into. Any in a rule
// that Validate refuses permits nothing.
func (r Rule) Tunnel() bool {
	return slices.Equal(r.Methods, Methods{Any}) && r.Paths == nil && r.scheme() == HTTPS
}

// scheme, port and methods are what holds where the rule says nothing.

func (r Rule) scheme() Scheme {
	if r.Scheme == "" {
		return HTTPS
	}
	return r.Scheme
}

func (r Rule) port() Port {
	if r.Port == 0 {
		return r.scheme().port()
	}
	return r.Port
}

func (r Rule) methods() Methods {
	if r.Methods == nil {
		return Methods{"GET", "HEAD"}
	}
	return r.Methods
}

func (r Rule) permitsMethod(method Method) bool {
	return r.Tunnel() || slices.Contains(r.methods(), method)
}

func (r Rule) permitsPath(u URL) bool {
	if r.Paths == nil {
		return true
	}
	return !u.climbs && slices.ContainsFunc(r.Paths, func(p PathPattern) bool { return p.matches(u.path) })
}

// Covers reports whether other permits nothing that r does not: whatever [Decide]
// allows by other alone, it allows by r alone.
func (r Rule) Covers(other Rule) bool {
	if !r.Host.covers(other.Host) || r.scheme() != other.scheme() || r.port() != other.port() {
		return false
	}
	if slices.ContainsFunc(other.Networks, func(n Network) bool { return !slices.ContainsFunc(r.Networks, n.within) }) {
		return false
	}
	if r.Tunnel() {
		return true
	}
	if other.WebSocket && !r.WebSocket {
		return false
	}
	if slices.ContainsFunc(other.methods(), func(m Method) bool { return !r.permitsMethod(m) }) {
		return false
	}
	if r.Paths == nil {
		return true
	}
	return other.Paths != nil && !slices.ContainsFunc(other.Paths, func(p PathPattern) bool {
		return !slices.ContainsFunc(r.Paths, func(own PathPattern) bool { return own.covers(p) })
	})
}

// Pattern is the host of a rule: an exact host, or *.name for every name below that
// one (one or more labels; not the name itself). The zero Pattern matches nothing.
type Pattern struct {
	host  Host
	below bool
}

// ParsePattern takes an exact host or *.name. It takes ASCII alone: a file whose
// hosts look right has to be right. The name after *. has at least two labels, so
// that a rule never means a whole top-level domain.
func ParsePattern(text string) (Pattern, error) {
	name, below := strings.CutPrefix(text, "*.")
	switch {
	case len(text) > Longest:
		return Pattern{}, fault.New(fault.Invalid, "the host is longer than %d bytes", longestName)
	case strings.Contains(name, "*"):
		return Pattern{}, hostFault(text, "holds a * elsewhere than in front").WithHint("write a host, or *.example.org for every name below example.org")
	case below && !strings.Contains(name, "."):
		return Pattern{}, hostFault(text, "would mean every name of a whole domain").WithHint("write at least two labels after *. such as *.example.org")
	}
	host, err := ParseHost(name)
	if err != nil {
		return Pattern{}, err
	}
	if !isASCII(name) {
		return Pattern{}, hostFault(text, "has letters that may look like others").WithHint("write its ASCII form: %s", strings.TrimSuffix(text, name)+host.String())
	}
	if _, isAddress := host.Address(); below && isAddress {
		return Pattern{}, hostFault(text, "is an address, and nothing is below one")
	}
	return Pattern{host, below}, nil
}

// UnmarshalText is ParsePattern.
func (p *Pattern) UnmarshalText(text []byte) error {
	parsed, err := ParsePattern(string(text))
	if err == nil {
		*p = parsed
	}
	return err
}

func (p Pattern) String() string {
	if p.below {
		return "*." + p.host.String()
	}
	return p.host.String()
}

// MarshalText returns the pattern as a file has it.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Matches reports whether the host is the one, or one of those, that are meant.
func (p Pattern) Matches(host Host) bool {
	if p.below {
		return strings.HasSuffix(host.text, "."+p.host.text)
	}
	return p.host == host && host != Host{}
}

func (p Pattern) covers(other Pattern) bool {
	if !other.below {
		return p.Matches(other.host)
	}
	return p.below && (p.host == other.host || p.Matches(other.host))
}

// Method is an HTTP method in upper case, or Any.
type Method string

// Any stands alone in a rule and means a tunnel: bytes that nobody looks into.
const Any Method = "any"

// Methods are the methods of a rule. In a file they are a list, and Any may be written
// as the word alone.
type Methods []Method

// UnmarshalText takes the one word that may stand in the place of a list.
func (m *Methods) UnmarshalText(text []byte) error {
	if string(text) != string(Any) {
		return fault.New(fault.Invalid, "%q is not a list of methods", clip(string(text))).
			WithHint("write [GET, POST], or `any` for a tunnel that nobody looks into")
	}
	*m = Methods{Any}
	return nil
}

// longestMethod is ample for the registered methods (IANA; the longest has 16 bytes).
const longestMethod = 32

// UnmarshalText takes one method.
func (m *Method) UnmarshalText(text []byte) error {
	method := Method(text)
	switch {
	case method == "CONNECT":
		return fault.New(fault.Invalid, "CONNECT is no method of a rule").WithHint("write `methods: any` for a tunnel that nobody looks into")
	case method != Any && !method.valid():
		return fault.New(fault.Invalid, "%q is not a method", clip(string(text))).WithHint("write it in upper case, such as GET")
	}
	*m = method
	return nil
}

// valid reports whether the method is upper case letters, in groups joined by single
// hyphens or none: RFC 9110 allows more, which nobody registered.
func (m Method) valid() bool {
	if len(m) > longestMethod {
		return false
	}
	for group := range strings.SplitSeq(string(m), "-") {
		if group == "" || strings.Trim(group, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			return false
		}
	}
	return true
}

// PathPattern is a path in its one form; a * at its end matches the rest. Nothing else
// is special.
type PathPattern string

// UnmarshalText takes a path that is in its one form already.
func (p *PathPattern) UnmarshalText(text []byte) error {
	pattern := string(text)
	path := strings.TrimSuffix(pattern, "*")
	normal, err := normalPath(path)
	switch {
	case len(pattern) > Longest:
		return fault.New(fault.Invalid, "the path is longer than %d bytes", Longest)
	case !strings.HasPrefix(path, "/"):
		return fault.New(fault.Invalid, "the path %q does not begin with a slash", clip(pattern)).WithHint("write /* for every path")
	case strings.Contains(path, "*"):
		return fault.New(fault.Invalid, "the path %q has a * elsewhere than at its end", clip(pattern)).WithHint("a * matches the rest, and stands at the end")
	case err != nil:
		return err
	case strings.ContainsAny(path, "?#"):
		return fault.New(fault.Invalid, "the path %q has a query or a fragment", clip(pattern)).WithHint("a rule decides about the path alone")
	case normal != path:
		return fault.New(fault.Invalid, "the path %q is not in its normal form", clip(pattern)).WithHint("write %s", clip(normal+pattern[len(path):]))
	case strings.Contains(path, "//") || climbs(path):
		return fault.New(fault.Invalid, "the path %q may be read as another one", clip(pattern))
	}
	*p = PathPattern(pattern)
	return nil
}

// matches is for paths in their one form that do not climb.
func (p PathPattern) matches(path string) bool {
	prefix, rest := strings.CutSuffix(string(p), "*")
	if rest {
		return strings.HasPrefix(path, prefix)
	}
	return path == string(p)
}

func (p PathPattern) covers(other PathPattern) bool {
	prefix, rest := strings.CutSuffix(string(other), "*")
	if !rest {
		return p.matches(string(other))
	}
	return strings.HasSuffix(string(p), "*") && p.matches(prefix)
}
