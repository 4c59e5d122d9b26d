package model

import (
	_ "embed"
	"maps"
	"slices"
	"strings"

	"tendril/budget"
	"tendril/fault"
	"tendril/strictyaml"
)

// FieldsFileName is the name of the file in the configuration directory that adds to
// what routes pass on.
const FieldsFileName = "model_fields.yaml"

//go:embed fields.yaml
var builtIn []byte

// Fields says what the routes know of requests. The zero Fields knows nothing and so
// passes nothing. It is safe for concurrent use.
type Fields struct {
	anthropic, chat, responses dialect
}

// dialect is one form of requests: each of its objects is of a kind, and what is not
// listed for its kind is not passed on.
type dialect struct {
	kinds   map[string]kind
	refused map[string]bool // unknown keys that cannot be taken out without changing what is asked
	media   map[string]int64
	betas   map[string]bool
}

// kind is what an object may hold, by its "type", or else by the key that it stands
// under.
type kind struct {
	any   bool // whatever else it holds passes as it is
	rules map[string]rule
}

// rule is how a known key's value is passed on. The zero rule copies it.
type rule struct {
	into   bool   // it holds objects of known kinds
	drop   bool   // with into: an element of an unknown kind is taken out, instead of the request refused
	only   string // the one text that it may be, where it is no object or list of known kinds
	prefix bool   // of only, just the beginning
}

type fieldsFile struct {
	Version   int         `yaml:"version"`
	Anthropic dialectFile `yaml:"anthropic"`
	Chat      dialectFile `yaml:"openai-chat"`
	Responses dialectFile `yaml:"openai-responses"`
}

// dialectFile is a dialect as it is written.
type dialectFile struct {
	Kinds   map[string][]string `yaml:"kinds"`
	Refused []string            `yaml:"refused"`
	Media   map[string]int64    `yaml:"media"`
	Betas   []string            `yaml:"betas"`
}

// BuiltIn returns what this version knows of today's requests.
func BuiltIn() Fields {
	decoded, err := strictyaml.Decode[fieldsFile](FieldsFileName, builtIn)
	if err != nil {
		panic("egress/model: " + err.Error()) // a test reads it
	}
	var f Fields
	f.add(decoded)
	return f
}

// WithFile returns what is built in and what the text of a file adds. file is its name
// as errors give it; every refusal is a fault of the kind invalid with file and line.
func WithFile(file string, text []byte) (Fields, error) {
	decoded, err := strictyaml.Decode[fieldsFile](file, text)
	if err != nil {
		return Fields{}, err
	}
	f := BuiltIn()
	f.add(decoded)
	return f, nil
}

func (f *Fields) add(more fieldsFile) {
	for _, part := range []struct {
		into *dialect
		from dialectFile
	}{{&f.anthropic, more.Anthropic}, {&f.chat, more.Chat}, {&f.responses, more.Responses}} {
		part.into.add(part.from)
	}
}

func (d *dialect) add(more dialectFile) {
	if d.kinds == nil {
		*d = dialect{map[string]kind{}, map[string]bool{}, map[string]int64{}, map[string]bool{}}
	}
	for name, keys := range more.Kinds {
		k, ok := d.kinds[name]
		if !ok {
			k = kind{rules: map[string]rule{}}
		}
		for _, written := range keys {
			if written == "*" {
				k.any = true
				continue
			}
			key, r := parseRule(written)
			k.rules[key] = r
		}
		d.kinds[name] = k
	}
	for _, key := range more.Refused {
		d.refused[key] = true
	}
	for name, tokens := range more.Media {
		d.media[name] = tokens
	}
	for _, beta := range more.Betas {
		d.betas[beta] = true
	}
}

// parseRule reads "key", "key/" and "key?", each of them alone or with "=text" or "=text*".
func parseRule(written string) (key string, r rule) {
	key, r.only, _ = strings.Cut(written, "=")
	r.only, r.prefix = strings.CutSuffix(r.only, "*")
	if into, ok := strings.CutSuffix(key, "/"); ok {
		return into, rule{into: true, only: r.only, prefix: r.prefix}
	}
	if into, ok := strings.CutSuffix(key, "?"); ok {
		return into, rule{into: true, drop: true, only: r.only, prefix: r.prefix}
	}
	return key, r
}

// Validate refuses what is no list of keys.
func (d dialectFile) Validate() error {
	for _, keys := range d.Kinds {
		for _, written := range keys {
			key, r := parseRule(written)
			if !isKey(key) && written != "*" || strings.Contains(written, "=") && r.only == "" {
				return fault.New(fault.Invalid, "%q is not a key", clip(written)).
					WithHint("write key, key/ to look into its value, key? to take out of its list what is not known, or key=text")
			}
		}
	}
	for _, key := range slices.Concat(d.Refused, d.Betas) {
		if !isKey(key) {
			return fault.New(fault.Invalid, "%q is not a name", clip(key))
		}
	}
	for name, tokens := range d.Media {
		if tokens < 1 || tokens > 1e9 {
			return fault.New(fault.Invalid, "%s: %d is not a number of tokens", clip(name), tokens)
		}
	}
	return nil
}

// isKey reports whether s is a name as providers give them.
func isKey(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == ""
}

// Permit is what a grant says of model requests.
type Permit struct {
	Models []string // that may be named; none: all
	Tools  []string // server-side tools that are passed on, each by its type
	Fields []string // of a request, that are passed on though the route does not know them
	Strict bool     // refuse a request instead of taking something out of it
}

// permitting returns the dialect with what a grant adds.
func (d dialect) permitting(p Permit) dialect {
	more := dialectFile{Kinds: map[string][]string{"request": p.Fields}}
	for _, tool := range p.Tools {
		more.Kinds[tool] = []string{"*"}
	}
	wider := dialect{}
	wider.add(dialectFile{})
	for name, k := range d.kinds {
		wider.kinds[name] = kind{k.any, maps.Clone(k.rules)}
	}
	wider.refused, wider.media, wider.betas = d.refused, d.media, d.betas
	wider.add(more)
	return wider
}

// Check refuses a permit that names what is no name: a fault of the kind invalid.
func (p Permit) Check() error {
	for _, name := range p.Models {
		if !budget.IsModel(name) {
			return fault.New(fault.Invalid, "%q is not the name of a model", clip(name))
		}
	}
	for _, name := range slices.Concat(p.Tools, p.Fields) {
		if !isKey(name) {
			return fault.New(fault.Invalid, "%q is not the name of a tool or a field", clip(name))
		}
	}
	return nil
}
