package grant

import (
	"slices"
	"strings"

	"tendril/capability"
	"tendril/fault"
	"tendril/pollen"
	"tendril/spelling"
)

// Set is a list without repetition that is not empty where it is written.
type Set[T ~string] []T

// Validate refuses an empty list, which reads like none and like all, and what comes
// twice.
func (s Set[T]) Validate() error {
	if len(s) == 0 {
		return emptyList()
	}
	for i, word := range s {
		if slices.Contains(s[:i], word) {
			return fault.New(fault.Invalid, "%q comes twice", string(word)).WithHint("remove one of them")
		}
	}
	return nil
}

func emptyList() error {
	return fault.New(fault.Invalid, "the list is empty").WithHint("name something, or remove the key")
}

// Holder is the Pollen that a grant is for: the name of one that can be issued, or
// the Botanist.
type Holder string

// UnmarshalText refuses other names than that.
func (h *Holder) UnmarshalText(text []byte) error {
	if string(text) != string(pollen.Botanist) {
		if err := noWildcard("Pollen", string(text)); err != nil {
			return err
		}
		if _, err := pollen.ParseName(string(text)); err != nil {
			return err
		}
	}
	*h = Holder(text)
	return nil
}

// SubstrateName is the name of a Substrate, in the one form of names.
type SubstrateName string

// UnmarshalText refuses what is not in that form.
func (n *SubstrateName) UnmarshalText(text []byte) error {
	return parseName("Substrate", text, (*string)(n))
}

// CredentialName is the name of a credential, in the one form of names.
type CredentialName string

// UnmarshalText refuses what is not in that form.
func (n *CredentialName) UnmarshalText(text []byte) error {
	return parseName("credential", text, (*string)(n))
}

func parseName(what string, text []byte, into *string) error {
	if err := noWildcard(what, string(text)); err != nil {
		return err
	}
	if err := spelling.CheckName(what, string(text)); err != nil {
		return err
	}
	*into = string(text)
	return nil
}

// noWildcard says why there is no short way to write a grant.
func noWildcard(what, word string) error {
	if !strings.Contains(word, "*") {
		return nil
	}
	return fault.New(fault.Invalid, "%q would also permit what does not exist yet", clip(word)).
		WithHint("name each %s that is meant", what)
}

// ImageName names an OCI image: a layout or an archive of this host, or a registry's.
type ImageName string

// UnmarshalText refuses what no request could hold.
func (n *ImageName) UnmarshalText(text []byte) error {
	if err := noWildcard("image", string(text)); err != nil {
		return err
	}
	if err := capability.ValidImage(string(text)); err != nil {
		return err
	}
	*n = ImageName(text)
	return nil
}

// Class is the name of a capability that can be granted.
type Class string

// UnmarshalText takes exact names. What can only be meant as a capability of the
// control Branch is refused as that, however it is written.
func (c *Class) UnmarshalText(text []byte) error {
	word := string(text)
	if err := noWildcard("class", word); err != nil {
		return err
	}
	if slices.Contains(grantable(), word) {
		*c = Class(word)
		return nil
	}
	meant, isClass := spelling.Nearest(dotted(word), grantable())
	if control, ok := spelling.Nearest(dotted(word), classes(capability.Control)); ok && (!isClass || control == word) {
		return controlOnly(control)
	}
	refused := fault.New(fault.Invalid, "there is no class %q", clip(word))
	if isClass {
		return refused.WithHint("did you mean %q?", meant)
	}
	if held := classes(capability.Branch(word)); len(held) > 0 {
		return refused.WithHint("a Branch cannot be granted whole; its classes are %s", strings.Join(held, ", "))
	}
	return refused.WithHint("classes are %s", strings.Join(grantable(), ", "))
}

func controlOnly(name string) error {
	return fault.New(fault.Invalid, "cannot be granted: %s is the Botanist's alone", name).
		WithRule("the control Branch cannot be granted")
}

// dotted is a class as somebody may have meant it who wrote it as on the command
// line.
func dotted(word string) string {
	return strings.Join(strings.FieldsFunc(word, func(c rune) bool { return strings.ContainsRune(" ./:_-", c) }), ".")
}

// classes are the capabilities of one Branch.
func classes(branch capability.Branch) []string {
	var names []string
	for _, definition := range capability.All() {
		if definition.Branch == branch {
			names = append(names, definition.Name)
		}
	}
	return names
}

func grantable() []string {
	var names []string
	for _, branch := range []capability.Branch{capability.Observe, capability.Grow, capability.Reach, capability.Publish} {
		names = append(names, classes(branch)...)
	}
	return names
}

// Provider is the name of a wall.
type Provider string

// UnmarshalText refuses a wall that does not exist.
func (p *Provider) UnmarshalText(text []byte) error {
	word, known := string(text), capability.Providers()
	if slices.Contains(known, word) {
		*p = Provider(word)
		return nil
	}
	refused := fault.New(fault.Invalid, "there is no provider %q", clip(word))
	if nearest, ok := spelling.Nearest(word, known); ok {
		return refused.WithHint("did you mean %q?", nearest)
	}
	return refused.WithHint("providers are %s", strings.Join(known, ", "))
}

// Runs says whose runs a grant shows.
type Runs string

// The zero Runs means OwnRuns.
const (
	OwnRuns       Runs = "own"       // those that the Pollen began
	SubstrateRuns Runs = "substrate" // all of the grant's Substrates
)

// UnmarshalText refuses other words than these.
func (r *Runs) UnmarshalText(text []byte) error {
	switch word := Runs(text); word {
	case OwnRuns, SubstrateRuns:
		*r = word
		return nil
	default:
		return fault.New(fault.Invalid, "%q does not say whose runs", clip(string(word))).
			WithHint("write `own`, or `substrate` for all runs of the grant's Substrates")
	}
}

// clip bounds what an error repeats of a value.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
