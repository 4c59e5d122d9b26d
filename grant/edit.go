package grant

import (
	"maps"
	"slices"

	"tendril/fault"
	"tendril/strictyaml"
)

// Edits go from text to text, so that what a person wrote about a grant stays where they
// wrote it. The result of each is decoded and compared with what was meant before it is
// returned.

// Add returns the text of a grants file with one more grant at its end. An empty text
// becomes a file. name is the file's as errors give it. A grant that no file may hold is a fault
// of the kind invalid.
func Add(name string, text []byte, g Grant) ([]byte, error) {
	before, err := parseForEdit(name, text)
	if err != nil {
		return nil, err
	}
	if err := g.Validate(); err != nil {
		return nil, err
	}
	after, err := strictyaml.AddItem(name, text, "grants", g)
	if err != nil {
		return nil, err
	}
	return verified(name, after, append(before.Grants, g))
}

// Revoke returns the text without what the grants of a Pollen give: with neither a class
// nor a Substrate without those grants; with one of them, without it in each of the grants; with both,
// without this class on this Substrate and nothing else. A grant that would give nothing more
// goes away, one that gives the class on other Substrates, or other classes on the
// Substrate, is divided. changed is how many grants were.
func Revoke(name string, text []byte, pollen, class, substrate string) (after []byte, changed int, err error) {
	before, err := parseForEdit(name, text)
	if err != nil {
		return nil, 0, err
	}
	after = text
	var want, divided []Grant
	for i, g := range slices.Backward(before.Grants) { // backward, so that places stay what they are
		left, rest := g, Grant{}
		if string(g.Pollen) == pollen {
			left, rest = g.without(class, substrate)
		}
		if g.Digest() != left.Digest() {
			changed++
			if after, err = g.edit(name, after, i, left); err != nil {
				return nil, 0, err
			}
		}
		if len(left.Classes) > 0 {
			want = append(want, left)
		}
		if len(rest.Classes) > 0 {
			divided = append(divided, rest)
		}
	}
	slices.Reverse(want)
	for _, rest := range slices.Backward(divided) {
		if after, err = strictyaml.AddItem(name, after, "grants", rest); err != nil {
			return nil, 0, err
		}
		want = append(want, rest)
	}
	if changed == 0 {
		return text, 0, nil
	}
	after, err = verified(name, after, want)
	return after, changed, err
}

// without returns what is left of a grant, and what has to be granted beside it. One that
// gives nothing has no class.
func (g Grant) without(class, substrate string) (left, rest Grant) {
	left = g
	names, classes := dropped(g.Substrates, SubstrateName(substrate)), dropped(g.Classes, Class(class))
	switch {
	case class == "" && substrate == "":
		return Grant{}, Grant{}
	case substrate == "":
		left.Classes = classes
	case class == "":
		left.Substrates = names
	case len(names) == len(g.Substrates) || len(classes) == len(g.Classes):
		return g, Grant{}
	case len(names) == 0:
		left.Classes = classes
	case len(classes) == 0:
		left.Substrates = names
	default:
		rest = g
		left.Substrates, rest.Substrates, rest.Classes = names, Set[SubstrateName]{SubstrateName(substrate)}, classes
	}
	if len(left.Classes) == 0 || len(left.Substrates) == 0 {
		return Grant{}, Grant{}
	}
	return left, rest
}

func dropped[T ~string](words Set[T], word T) Set[T] {
	return slices.DeleteFunc(slices.Clone(words), func(other T) bool { return other == word })
}

// edit makes what is left of the grant at index of its text.
func (g Grant) edit(name string, text []byte, index int, left Grant) ([]byte, error) {
	if len(left.Classes) == 0 {
		return strictyaml.RemoveItem(name, text, "grants", index)
	}
	for _, class := range g.Classes {
		if !slices.Contains(left.Classes, class) {
			return strictyaml.RemoveWord(name, text, "grants", index, "classes", string(class))
		}
	}
	for _, substrate := range g.Substrates {
		if !slices.Contains(left.Substrates, substrate) {
			return strictyaml.RemoveWord(name, text, "grants", index, "substrates", string(substrate))
		}
	}
	return text, nil
}

// parseForEdit takes an empty text, which [Parse] refuses, for a file without grants.
func parseForEdit(name string, text []byte) (File, error) {
	if len(text) == 0 {
		return File{}, nil
	}
	return Parse(name, text)
}

// verified returns the result of an edit if it says what was meant.
func verified(name string, text []byte, want []Grant) ([]byte, error) {
	f, err := Parse(name, text)
	if err != nil {
		return nil, err
	}
	if !slices.EqualFunc(f.Grants, want, func(a, b Grant) bool { return a.Digest() == b.Digest() }) {
		return nil, misedited(name)
	}
	return text, nil
}

func misedited(name string) error {
	return fault.New(fault.Invalid, "%s: the file is written in a way that this program cannot edit", name).
		WithHint("edit it by hand; nothing was changed")
}

// AddSubstrate returns the text of a Substrates file with one more name. An empty text
// becomes a file. A name that is bound already, and what no file may hold, is a fault of the
// kind invalid.
func AddSubstrate(name string, text []byte, substrate SubstrateName, bound Substrate) ([]byte, error) {
	before, err := parseSubstratesForEdit(name, text)
	if err != nil {
		return nil, err
	}
	if old, ok := before.Substrates[substrate]; ok {
		return nil, fault.New(fault.Invalid, "the Substrate %s is bound already, in %s:%d", substrate, name, old.Line).
			WithHint("remove it first: tendril substrate remove %s", substrate)
	}
	if err := bound.Validate(); err != nil {
		return nil, err
	}
	after, err := strictyaml.AddEntry(name, text, "substrates", string(substrate), bound)
	if err != nil {
		return nil, err
	}
	want := maps.Clone(before.Substrates)
	if want == nil {
		want = map[SubstrateName]Substrate{}
	}
	want[substrate] = bound
	return verifiedSubstrates(name, after, want)
}

// RemoveSubstrate returns the text of a Substrates file without a name. A name that is
// not bound is a fault of the kind not-found.
func RemoveSubstrate(name string, text []byte, substrate string) ([]byte, error) {
	before, err := parseSubstratesForEdit(name, text)
	if err != nil {
		return nil, err
	}
	if _, err := before.Lookup(substrate); err != nil {
		return nil, err
	}
	after, err := strictyaml.RemoveEntry(name, text, "substrates", substrate)
	if err != nil {
		return nil, err
	}
	want := maps.Clone(before.Substrates)
	delete(want, SubstrateName(substrate))
	return verifiedSubstrates(name, after, want)
}

func parseSubstratesForEdit(name string, text []byte) (SubstratesFile, error) {
	if len(text) == 0 {
		return SubstratesFile{}, nil
	}
	return ParseSubstrates(name, text)
}

func verifiedSubstrates(name string, text []byte, want map[SubstrateName]Substrate) ([]byte, error) {
	f, err := ParseSubstrates(name, text)
	if err != nil {
		return nil, err
	}
	same := func(a, b Substrate) bool { a.Line, b.Line = 0, 0; return a == b }
	if !maps.EqualFunc(f.Substrates, want, same) {
		return nil, misedited(name)
	}
	return text, nil
}
