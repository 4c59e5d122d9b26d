// Package grant holds the two files that say who may do what on which Substrate,
// and decides by them.
//
// It promises that a decision is a function of the file and the request alone, that
// whatever no single grant covers as a whole is denied, that an unknown word is never
// taken for a known one, and that nothing in a request widens a grant or is clipped to
// fit one. It reads no file and knows no clock. Who asks, whether a wall is
// ready and how many runs there were today are for its caller to know; a caller that
// gets these wrong gets a right answer to another question.
package grant

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"tendril/capability"
	"tendril/destination"
	"tendril/fault"
	"tendril/strictyaml"
)

// FileName is the name of the grants file in the configuration directory.
const FileName = "grants.yaml"

// File is a grants file. The zero File grants nothing.
type File struct {
	Version int     `yaml:"version"`
	Grants  []Grant `yaml:"grants"`
}

// Parse decodes a grants file. name is the file's as errors give it; every
// refusal is a fault of the kind invalid with file, line and key.
func Parse(name string, text []byte) (File, error) {
	return strictyaml.Decode[File](name, text)
}

// Grant permits one Pollen some classes on some Substrates. What a field that is
// not set means, it says; none of them means "without limit".
type Grant struct {
	Line strictyaml.Line `yaml:"-" json:"-"` // where it begins in its file

	Pollen     Holder             `yaml:"pollen" json:"pollen"`
	Substrates Set[SubstrateName] `yaml:"substrates" json:"substrates"`
	Classes    Set[Class]         `yaml:"classes" json:"classes"`

	// Providers are the acceptable walls. Not set: every wall that is one.
	Providers Set[Provider] `yaml:"providers" json:"providers,omitzero"`

	// Provider is the wall of a request that names none. Not set: the strongest
	// acceptable one that is ready.
	Provider Provider `yaml:"provider" json:"provider,omitzero"`

	// Images are the OCI images that may be asked for as root file system, each as it is
	// named in a request. Not set: none, only this host's toolchain.
	Images Set[ImageName] `yaml:"images" json:"images,omitzero"`

	Egress      Egress              `yaml:"egress" json:"egress,omitzero"`           // not set: nothing is reached
	Credentials Set[CredentialName] `yaml:"credentials" json:"credentials,omitzero"` // not set: none is used
	Models      Models              `yaml:"models" json:"models,omitzero"`           // not set: none is asked

	Limits Limits `yaml:"limits" json:"limits,omitzero"`
	Runs   Runs   `yaml:"runs" json:"runs,omitzero"` // not set: its own
	Daily  Daily  `yaml:"daily" json:"daily,omitzero"`

	Expires *Expiry `yaml:"expires" json:"expires,omitzero"` // not set: it lasts as long as its Pollen
}

// Egress is what a grant lets its requests reach. No rule adds to what another one
// lacks.
type Egress []destination.Rule

// Validate refuses an empty list, which reads like none and like all.
func (e Egress) Validate() error {
	if len(e) == 0 {
		return emptyList()
	}
	return nil
}

// Validate refuses a grant that does not say to whom, what and on what, and a
// default wall that is not an acceptable one.
func (g Grant) Validate() error {
	for _, required := range []struct {
		key     string
		present bool
	}{
		{"pollen", g.Pollen != ""}, {"substrates", len(g.Substrates) > 0}, {"classes", len(g.Classes) > 0},
	} {
		if !required.present {
			return fault.New(fault.Invalid, "the grant has no %s", required.key).
				WithHint("a grant says to which Pollen it gives which classes on which Substrates")
		}
	}
	if g.Provider != "" && !g.Accepts(string(g.Provider)) {
		return fault.New(fault.Invalid, "the provider %s is not one of the grant's providers", g.Provider).
			WithHint("add it to `providers`, or name one that is there")
	}
	return nil
}

// Accepts reports whether a wall is acceptable to the grant. The host is no wall: it is
// only where `providers` names it.
func (g Grant) Accepts(provider string) bool {
	if g.Providers != nil {
		return slices.Contains(g.Providers, Provider(provider))
	}
	return provider != capability.Host && slices.Contains(capability.Providers(), provider)
}

// Where names the grant for a person, such as "grants.yaml:12".
func (g Grant) Where() string { return fmt.Sprintf("%s:%d", FileName, g.Line) }

// Digest is the SHA-256 of the grant's JSON in hexadecimal: the same for the same
// keys and values, wherever in a file and however they are written.
func (g Grant) Digest() string {
	data, err := json.Marshal(g)
	if err != nil {
		panic("grant: a grant has no JSON: " + err.Error()) // its types have no value without one
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
