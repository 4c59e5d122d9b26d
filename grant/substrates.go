package grant

import (
	"maps"
	"path"
	"slices"
	"strings"

	"tendril/destination"
	"tendril/fault"
	"tendril/spelling"
	"tendril/strictyaml"
)

// SubstratesFileName is the name of the Substrates file in the configuration
// directory.
const SubstratesFileName = "substrates.yaml"

// SubstratesFile binds names to repositories. The zero SubstratesFile binds none.
type SubstratesFile struct {
	Version    int                         `yaml:"version"`
	Substrates map[SubstrateName]Substrate `yaml:"substrates"`
}

// ParseSubstrates decodes a Substrates file. name is the file's as errors give it;
// every refusal is a fault of the kind invalid with file, line and key.
func ParseSubstrates(name string, text []byte) (SubstratesFile, error) {
	return strictyaml.Decode[SubstratesFile](name, text)
}

// Lookup returns what the name is bound to, and a fault of the kind not-found for
// any other.
func (f SubstratesFile) Lookup(name string) (Substrate, error) {
	if bound, ok := f.Substrates[SubstrateName(name)]; ok {
		return bound, nil
	}
	unknown := fault.New(fault.NotFound, "there is no Substrate %q", clip(name))
	if nearest, ok := spelling.Nearest(name, f.Names()); ok {
		return Substrate{}, unknown.WithHint("did you mean %s?", nearest)
	}
	return Substrate{}, unknown.WithHint("bind the name to a repository: tendril substrate add NAME --path PATH")
}

// Names returns the names in their order.
func (f SubstratesFile) Names() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f.Substrates)) {
		names = append(names, string(name))
	}
	return names
}

// Substrate is where a repository is. Exactly one of Path and URL is set.
type Substrate struct {
	Line strictyaml.Line `yaml:"-" json:"-"` // where its keys begin in its file

	Path     Path     `yaml:"path" json:"path,omitzero"`
	URL      URL      `yaml:"url" json:"url,omitzero"`
	Branch   Branch   `yaml:"branch" json:"branch,omitzero"`     // where a run begins that names no base; empty: HEAD
	Provider Provider `yaml:"provider" json:"provider,omitzero"` // the wall of runs that name none and whose grant names none
}

// Validate refuses what names no repository, or two.
func (s Substrate) Validate() error {
	if (s.Path == "") == (s.URL == "") {
		return fault.New(fault.Invalid, "exactly one of path and url is needed").
			WithHint("write `path: /srv/handbook.git` or `url: https://git.example.com/handbook.git`")
	}
	return nil
}

// Path is an absolute and clean path of this host. Whether something is there is not
// judged here.
type Path string

// UnmarshalText refuses other paths.
func (p *Path) UnmarshalText(text []byte) error {
	value := string(text)
	if !path.IsAbs(value) || path.Clean(value) != value || strings.ContainsRune(value, 0) {
		return fault.New(fault.Invalid, "%q is not an absolute, clean path", clip(value)).
			WithHint("write an absolute path without . and .. and without a slash at its end")
	}
	*p = Path(value)
	return nil
}

// URL is where a repository is fetched from: https, and nothing in it but a host, a port
// and a path, in the one form of [destination.URL].
type URL string

// UnmarshalText refuses other URLs. What could hold a secret is not repeated.
func (u *URL) UnmarshalText(text []byte) error {
	value := string(text)
	scheme, rest, _ := strings.Cut(value, "://")
	authority, _, _ := strings.Cut(rest, "/")
	refuse := func(format string, args ...any) *fault.Error {
		return fault.New(fault.Invalid, format, args...).WithHint("write it like https://git.example.com/handbook.git")
	}
	switch {
	case strings.EqualFold(scheme, "file"):
		return refuse("the URL is a path of this host").WithHint("write it as `path`")
	case strings.Contains(authority, "@"):
		return refuse("the URL has a user in it").WithHint("remove it; a credential does not belong into this file")
	case strings.ContainsAny(value, "?#"):
		return refuse("the URL has a query or a fragment")
	}
	parsed, err := destination.Parse(value)
	switch {
	case err != nil:
		return err
	case parsed.Scheme() != destination.HTTPS:
		return refuse("the URL is not https")
	case parsed.Path() == "/" || path.Clean(parsed.Path()) != parsed.Path():
		return refuse("the path of the URL is not that of a repository")
	case parsed.String() != value:
		return refuse("the URL is not in its one form").WithHint("write %s", parsed)
	}
	*u = URL(value)
	return nil
}

// Branch is the short name of a Git branch, in those characters that no shell, terminal or
// revision syntax gives a meaning to.
type Branch string

const branchCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+@/"

// UnmarshalText refuses what git-check-ref-format(1) refuses, and other characters.
func (b *Branch) UnmarshalText(text []byte) error {
	name := string(text)
	bad := name == "" || len(name) > 255 || name == "@" || name[0] == '-' || strings.ContainsFunc(name, func(c rune) bool { return !strings.ContainsRune(branchCharacters, c) }) ||
		strings.Contains(name, "..") || strings.HasSuffix(name, ".")
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock")
	}
	if bad {
		return fault.New(fault.Invalid, "%q is not the short name of a branch", clip(name)).WithHint("write it like `main` or `release/2.1`")
	}
	*b = Branch(name)
	return nil
}
