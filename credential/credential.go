// Package credential says where a secret comes from, what it is bound to and how a
// request carries it, and holds the file in which the Botanist writes that.
//
// It promises that no secret itself can be written in the file, that a binding permits
// exactly what a rule of a grant with the same words would, and that a [Secret] is not
// printed by accident. It reads no source and sees no request: package source does the
// one, attach the other, and leak looks for secrets in what comes back.
//
// What it does not protect against: a server that a credential is bound to has it, and
// can do with it whatever it is good for.
package credential

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tendril/destination"
	"tendril/fault"
	"tendril/spelling"
	"tendril/strictyaml"
)

// FileName is the name of the credentials file in the configuration directory.
const FileName = "credentials.yaml"

// File is a credentials file. The zero File has no credential.
type File struct {
	Version     int                 `yaml:"version"`
	Credentials map[Name]Credential `yaml:"credentials"`
}

// Parse decodes a credentials file. name is the file's as errors give it; every refusal
// is a fault of the kind invalid with file, line and key. What may be a secret in the
// wrong place is not repeated.
func Parse(name string, text []byte) (File, error) {
	return strictyaml.Decode[File](name, text)
}

// Credential is a secret by where it comes from. It never holds the secret.
type Credential struct {
	Line strictyaml.Line `yaml:"-" json:"-"` // where its keys begin in its file

	Source Source `yaml:"source" json:"source"`
	Bind   Bind   `yaml:"bind" json:"bind"`
	Attach Attach `yaml:"attach" json:"attach"`
}

// Validate refuses a credential that leaves out one of its three parts.
func (c Credential) Validate() error {
	for _, part := range []struct {
		key string
		err error
	}{{"source", c.Source.Validate()}, {"bind", c.Bind.Validate()}, {"attach", c.Attach.Validate()}} {
		if part.err != nil {
			refused := fault.New(fault.Invalid, "%s: %w", part.key, part.err)
			var cause *fault.Error
			if errors.As(part.err, &cause) {
				refused.Hint = cause.Hint
			}
			return refused
		}
	}
	return nil
}

// RefuseKey says why a secret has no place here.
func (Credential) RefuseKey(key string) error { return refuseLiteral(key) }

// Name is the name of a credential, in the one form of names.
type Name string

// UnmarshalText refuses what is not in that form.
func (n *Name) UnmarshalText(text []byte) error {
	if err := spelling.CheckName("credential", string(text)); err != nil {
		return err
	}
	*n = Name(text)
	return nil
}

// Named is a credential of a file with its name.
type Named struct {
	Name Name
	Credential
}

// Where names the credential for a person, such as "credentials.yaml:3".
func (n Named) Where() string { return fmt.Sprintf("%s:%d", FileName, n.Line) }

// Lookup returns the credential of that name, and a fault of the kind not-found for any
// other.
func (f File) Lookup(name string) (Named, error) {
	if found, ok := f.Credentials[Name(name)]; ok {
		return Named{Name(name), found}, nil
	}
	unknown := fault.New(fault.NotFound, "there is no credential %q", clip(name))
	if nearest, ok := spelling.Nearest(name, f.Names()); ok {
		return Named{}, unknown.WithHint("did you mean %s?", nearest)
	}
	return Named{}, unknown.WithHint("the Botanist can add it: tendril credential add NAME")
}

// Names returns the names in their order.
func (f File) Names() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f.Credentials)) {
		names = append(names, string(name))
	}
	return names
}

// For returns those of the named credentials that are bound to a request, in the order
// of names. names are what a grant gives: one of them that the file does not have, and
// two that would be written to the same place of the request, are faults.
func (f File) For(names []string, u destination.URL, method string) ([]Named, error) {
	var bound []Named
	for _, name := range names {
		found, err := f.Lookup(name)
		if err != nil {
			return nil, err
		}
		if !found.Bind.Covers(u, method) {
			continue
		}
		for _, other := range bound {
			if other.Name != found.Name && other.Attach.place() == found.Attach.place() {
				return nil, fault.New(fault.Denied, "the credentials %s and %s are both bound to %s and attached as %s", other.Name, found.Name, u.Origin(), found.Attach).
					WithHint("narrow the binding of one, or name one only in the grant")
			}
		}
		if !slices.ContainsFunc(bound, func(n Named) bool { return n.Name == found.Name }) {
			bound = append(bound, found)
		}
	}
	return bound, nil
}

// literalKeys are what somebody may write who wants to put a secret into the file.
var literalKeys = []string{"value", "secret", "token", "password", "passwd", "passphrase", "key", "apikey", "api_key", "api-key", "literal", "inline", "plain", "text", "data", "content", "bearer"}

// refuseLiteral is nil for every other key.
func refuseLiteral(key string) error {
	if !slices.Contains(literalKeys, strings.ToLower(key)) {
		return nil
	}
	return fault.New(fault.Invalid, "a secret is never written in this file, which is read, copied and kept where secrets are not").
		WithHint("put it into a file of mode 0600 and write `source: {file: PATH}`; env, command and age are the other sources")
}

// clip bounds what an error repeats of a value.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
