package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"tendril/fault"
)

// filter writes a request anew, with nothing in it that its dialect does not know.
type filter struct {
	dialect dialect
	in      []byte
	out     bytes.Buffer
	removed []string
	taken   map[string]bool // types and names of what was taken out of lists
	media   media
	depth   int // of objects that are looked into; each level reads what is in it once more
}

// media is what a request holds whose tokens its bytes do not bound: a small picture can
// come to more tokens than bytes, a large one never to as many.
type media struct {
	tokens int64
	bytes  int64 // of what is counted in tokens
	inside bool
}

// errUnknown is the cause of a refusal of an object whose kind is not known.
var errUnknown = errors.New("its kind is not known")

// deepestKinds is twice what a text in a document in the result of a tool needs.
const deepestKinds = 16

// mostRemoved bounds the record of what was taken out of one request.
const mostRemoved = 64

func (f *filter) remove(what ...string) {
	name := printable(strings.Join(what, "."))
	if len(f.removed) < mostRemoved && !slices.Contains(f.removed, name) {
		f.removed = append(f.removed, name)
	}
}

// printable is a name out of a request, bounded and in characters that names have.
func printable(name string) string {
	name = strings.Map(func(c rune) rune {
		if isKey(string(c)) {
			return c
		}
		return '?'
	}, name)
	return name[:min(len(name), 96)]
}

// value writes the value that stands at a span, under a key.
func (f *filter) value(key string, at span, r rule) error {
	raw := f.in[at.from:at.to]
	switch {
	case r.into && raw[0] == '{':
		return f.object(key, at)
	case r.into && raw[0] == '[':
		return f.list(key, at, r)
	case r.only != "":
		return f.only(key, raw, r)
	}
	f.out.Write(raw)
	return nil
}

// only writes a text that has to be, or to begin with, a certain one.
func (f *filter) only(key string, raw []byte, r rule) error {
	text, ok := "", raw[0] == '"'
	if ok {
		text, ok = decodeText(raw)
	}
	if ok = ok && strings.HasPrefix(text, r.only) && (r.prefix || text == r.only); !ok {
		return fault.New(fault.Denied, "%s in the request is not %s: %w", key, r.says(), errUnknown).
			WithRule("what a provider would fetch, or do on its side, is not passed on").
			WithHint("put it into the request itself")
	}
	f.out.Write(raw)
	return nil
}

// says is the text that a rule wants, for a person.
func (r rule) says() string {
	if r.prefix {
		return "a " + r.only + " URL"
	}
	return r.only
}

func (f *filter) list(key string, at span, r rule) error {
	s := scanner{data: f.in[:at.to], at: at.from}
	f.out.WriteByte('[')
	first := true
	err := s.array(0, func() error {
		from := s.at
		if err := s.skip(0); err != nil {
			return err
		}
		removed, counted, mark := f.removed, f.media, f.out.Len()
		if !first {
			f.out.WriteByte(',')
		}
		element := span{from, s.at}
		err := f.value(key, element, r)
		if r.drop && errors.Is(err, errUnknown) {
			f.out.Truncate(mark)
			f.removed, f.media = removed, counted
			f.take(key, element)
			return nil
		}
		first = false
		return err
	})
	f.out.WriteByte(']')
	return err
}

// take notes that an element of a list is left out.
func (f *filter) take(key string, at span) {
	s := scanner{data: f.in[:at.to], at: at.from}
	what := "?"
	if members, err := s.object(0); err == nil {
		for _, m := range members {
			if text, ok := f.text(m.value); ok && (m.name == "type" || m.name == "name") {
				f.taken[text] = true
				if m.name == "type" {
					what = text
				}
			}
		}
	}
	f.remove(key, what)
}

// text decodes a string.
func (f *filter) text(at span) (string, bool) {
	raw := f.in[at.from:at.to]
	if raw[0] != '"' {
		return "", false
	}
	return decodeText(raw)
}

func (f *filter) object(key string, at span) error {
	s := scanner{data: f.in[:at.to], at: at.from}
	if f.depth++; f.depth > deepestKinds {
		return fault.New(fault.Invalid, "%s in the request nests deeper than %d objects", clip(key), deepestKinds)
	}
	defer func() { f.depth-- }()
	members, err := s.object(0)
	if err != nil {
		return err
	}
	name, err := f.kindOf(key, members)
	if err != nil {
		return err
	}
	tokens, counted := f.dialect.media[name]
	if counted = counted && !f.media.inside; counted {
		f.media.inside = true
		defer func() { f.media.inside = false }()
	}
	mark := f.out.Len()
	if err := f.members(name, members); err != nil {
		return err
	}
	if counted {
		f.media.tokens += tokens
		f.media.bytes += int64(f.out.Len() - mark)
	}
	return nil
}

// kindOf returns the kind of an object: its type, or else the key that it stands under.
func (f *filter) kindOf(key string, members []member) (string, error) {
	name := key
	if i := slices.IndexFunc(members, func(m member) bool { return m.name == "type" }); i >= 0 {
		at := members[i].value
		if text, ok := f.text(at); ok {
			name = text
		} else if string(f.in[at.from:at.to]) != "null" {
			return "", fault.New(fault.Invalid, "a type in %s is not text", clip(key))
		}
	}
	if _, known := f.dialect.kinds[name]; !known || name == "request" {
		return "", fault.New(fault.Denied, "%s in the request holds %q: %w", clip(key), printable(name), errUnknown).
			WithRule("a model route passes on what it knows").
			WithHint("leave it out; the Botanist can add the kind to %s if it is harmless", FieldsFileName)
	}
	return name, nil
}

// members writes an object of a kind.
func (f *filter) members(name string, members []member) error {
	f.out.WriteByte('{')
	for _, m := range members {
		if err := f.member(name, m); err != nil {
			return err
		}
	}
	f.out.WriteByte('}')
	for key, r := range f.dialect.kinds[name].rules {
		if r.only != "" && !r.prefix && !slices.ContainsFunc(members, func(m member) bool { return m.name == key }) {
			return fault.New(fault.Denied, "%s in the request does not say %s: %w", name, key, errUnknown).
				WithHint("set %s to %s", key, r.only)
		}
	}
	return nil
}

// member writes one member of an object of a kind.
func (f *filter) member(kind string, m member) error {
	k := f.dialect.kinds[kind]
	r, known := k.rules[m.name]
	if !known && (m.name != "type" || kind == "request") && !k.any && m.written == "" {
		return f.unknown(kind, m)
	}
	if tail := f.out.Bytes(); tail[len(tail)-1] != '{' { // a value ends with anything else
		f.out.WriteByte(',')
	}
	quoted, err := json.Marshal(m.name)
	if err != nil {
		return fault.New(fault.Internal, "encode a key: %w", err)
	}
	f.out.Write(quoted)
	f.out.WriteByte(':')
	if m.written != "" {
		f.out.WriteString(m.written)
		return nil
	}
	return f.value(m.name, m.value, r)
}

// unknown takes a member out, or refuses the request if that would change what it asks.
func (f *filter) unknown(kind string, m member) error {
	if raw := string(f.in[m.value.from:m.value.to]); f.dialect.refused[m.name] && raw != "null" && raw != "false" && raw != `""` {
		return fault.New(fault.Denied, "the request asks for %s", clip(m.name)).
			WithRule("what a provider would fetch, keep or do without anybody looking is not passed on").
			WithHint("send everything in the request itself; the Botanist can permit the field in the grant")
	}
	f.remove(kind, m.name)
	return nil
}

// mentions reports whether a value holds the type or the name of something that was
// taken out.
func (f *filter) mentions(at span) bool {
	found := false
	s := scanner{data: f.in[:at.to], at: at.from}
	switch s.next() {
	case '"':
		text, ok := f.text(at)
		return ok && f.taken[text]
	case '{':
		members, err := s.object(0)
		for _, m := range members {
			found = found || f.mentions(m.value)
		}
		return found || err != nil
	case '[':
		err := s.array(0, func() error {
			from := s.at
			err := s.skip(0)
			found = found || err == nil && f.mentions(span{from, s.at})
			return err
		})
		return found || err != nil
	}
	return false
}
