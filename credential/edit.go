package credential

import (
	"maps"
	"reflect"

	"tendril/fault"
	"tendril/strictyaml"
)

// Edits go from text to text, so that what a person wrote about a credential stays where
// they wrote it. The result is decoded and compared with what was meant before it is
// returned.

// Add returns the text of a credentials file with one more credential. An empty text
// becomes a file. file is its name as errors give it. A name that is there already, and
// what no file may hold, is a fault of the kind invalid.
func Add(file string, text []byte, name Name, c Credential) ([]byte, error) {
	before, err := parseForEdit(file, text)
	if err != nil {
		return nil, err
	}
	if old, ok := before.Credentials[name]; ok {
		return nil, fault.New(fault.Invalid, "the credential %s exists already, in %s:%d", name, file, old.Line).
			WithHint("remove it first: tendril credential remove %s", name)
	}
	if err := new(Name).UnmarshalText([]byte(name)); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	after, err := strictyaml.AddEntry(file, text, "credentials", string(name), c)
	if err != nil {
		return nil, err
	}
	want := maps.Clone(before.Credentials)
	if want == nil {
		want = map[Name]Credential{}
	}
	want[name] = c
	return verified(file, after, want)
}

// Remove returns the text of a credentials file without a credential. A name that it
// does not have is a fault of the kind not-found.
func Remove(file string, text []byte, name string) ([]byte, error) {
	before, err := parseForEdit(file, text)
	if err != nil {
		return nil, err
	}
	if _, err := before.Lookup(name); err != nil {
		return nil, err
	}
	after, err := strictyaml.RemoveEntry(file, text, "credentials", name)
	if err != nil {
		return nil, err
	}
	want := maps.Clone(before.Credentials)
	delete(want, Name(name))
	return verified(file, after, want)
}

// parseForEdit takes an empty text, which [Parse] refuses, for a file without credentials.
func parseForEdit(file string, text []byte) (File, error) {
	if len(text) == 0 {
		return File{}, nil
	}
	return Parse(file, text)
}

// verified returns the result of an edit if it says what was meant.
func verified(file string, text []byte, want map[Name]Credential) ([]byte, error) {
	f, err := Parse(file, text)
	if err != nil {
		return nil, err
	}
	same := func(a, b Credential) bool { a.Line, b.Line = 0, 0; return reflect.DeepEqual(a, b) }
	if !maps.EqualFunc(f.Credentials, want, same) {
		return nil, fault.New(fault.Invalid, "%s: the file is written in a way that this program cannot edit", file).
			WithHint("edit it by hand; nothing was changed")
	}
	return text, nil
}
