package credential

import (
	"slices"
	"strings"

	"tendril/destination"
	"tendril/fault"
)

// Bind is where a secret may be sent. Its words have the defaults and the meaning of
// those of a grant's rule. Plain text is only where it says `scheme: http`.
type Bind struct {
	Host    destination.Pattern       `yaml:"host" json:"host"`
	Scheme  destination.Scheme        `yaml:"scheme" json:"scheme,omitzero"`   // not set: HTTPS
	Port    destination.Port          `yaml:"port" json:"port,omitzero"`       // not set: the scheme's
	Methods destination.Methods       `yaml:"methods" json:"methods,omitzero"` // not set: GET and HEAD
	Paths   []destination.PathPattern `yaml:"paths" json:"paths,omitzero"`     // not set: every path
}

// rule is one that permits what the binding covers.
func (b Bind) rule() destination.Rule {
	return destination.Rule{Host: b.Host, Scheme: b.Scheme, Port: b.Port, Methods: b.Methods, Paths: b.Paths}
}

// Validate refuses a binding to no host, and to a tunnel, in which nothing can be
// attached.
func (b Bind) Validate() error {
	switch {
	case b.Host == destination.Pattern{}:
		return fault.New(fault.Invalid, "the binding has no host").
			WithHint("say where the secret may be sent, such as {host: api.example.com, methods: [POST], paths: [/v1/*]}")
	case slices.Contains(b.Methods, destination.Any):
		return fault.New(fault.Invalid, "a credential cannot be bound to `methods: any`").WithHint("nobody looks into that tunnel; name the methods")
	}
	return b.rule().Validate()
}

// RefuseKey says why a secret has no place here.
func (Bind) RefuseKey(key string) error { return refuseLiteral(key) }

// Covers reports whether the secret may be sent with a request. The zero Bind covers
// nothing.
func (b Bind) Covers(u destination.URL, method string) bool {
	return b.Validate() == nil && destination.Decide(u, method, []destination.Rule{b.rule()}).Allowed
}

// Within reports whether the binding permits nothing that other does not.
func (b Bind) Within(other Bind) bool {
	return b.Validate() == nil && other.Validate() == nil && other.rule().Covers(b.rule())
}

// String is the binding in words, such as "POST https://api.example.com/v1/*".
func (b Bind) String() string {
	scheme, methods, paths := b.Scheme, b.Methods, b.Paths
	if scheme == "" {
		scheme = destination.HTTPS
	}
	if methods == nil {
		methods = destination.Methods{"GET", "HEAD"}
	}
	if paths == nil {
		paths = []destination.PathPattern{"/*"}
	}
	authority := b.Host.String()
	if b.Port != 0 {
		authority += ":" + b.Port.String()
	}
	var words []string
	for _, p := range paths {
		words = append(words, string(scheme)+"://"+authority+string(p))
	}
	return join(methods, ", ") + " " + strings.Join(words, ", ")
}

func join[T ~string](list []T, separator string) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = string(v)
	}
	return strings.Join(texts, separator)
}
