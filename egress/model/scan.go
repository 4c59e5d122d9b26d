package model

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"tendril/fault"
)

// The bounds of a document, beside its bytes. Tool schemas and results nest; no request
// of an agent comes near these.
const (
	deepest     = 100
	mostMembers = 10_000
	mostValues  = 250_000 // each costs many times what its bytes do
)

// scanner reads JSON (RFC 8259) without building it. It refuses what readers disagree
// on: keys that come twice in one object, invalid UTF-8, and anything after the end.
type scanner struct {
	data   []byte
	at     int
	values int // that were passed over
}

// span is where a value stands in a document.
type span struct{ from, to int }

// member is one key of an object. Its name is decoded: "\u0061" is a.
type member struct {
	name    string
	value   span
	written string // what is sent in the place of the value, if not ""
}

// document checks a whole document.
func document(data []byte) error {
	if !utf8.Valid(data) {
		return fault.New(fault.Invalid, "the request is not UTF-8")
	}
	s := scanner{data: data}
	if err := s.skip(0); err != nil {
		return err
	}
	if s.space(); s.at != len(data) {
		return s.refuse("something follows the end")
	}
	return nil
}

func (s *scanner) refuse(format string, args ...any) error {
	return fault.New(fault.Invalid, "the request is not JSON that is taken: at byte %d: "+format, append([]any{s.at}, args...)...)
}

func (s *scanner) space() {
	for s.at < len(s.data) && strings.IndexByte(" \t\r\n", s.data[s.at]) >= 0 {
		s.at++
	}
}

// next returns the first byte of what comes after white space, and 0 at the end.
func (s *scanner) next() byte {
	s.space()
	if s.at == len(s.data) {
		return 0
	}
	return s.data[s.at]
}

func (s *scanner) take(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

// skip passes over one value.
func (s *scanner) skip(depth int) error {
	if depth > deepest {
		return s.refuse("values nest deeper than %d", deepest)
	}
	if s.values++; s.values > mostValues {
		return s.refuse("there are more than %d values", mostValues)
	}
	switch c := s.next(); {
	case c == '{':
		_, err := s.object(depth)
		return err
	case c == '[':
		return s.array(depth, func() error { return s.skip(depth + 1) })
	case c == '"':
		_, err := s.text()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.data[s.at:], []byte(word)) {
			s.at += len(word)
			return nil
		}
	}
	return s.refuse("there is no value")
}

// object passes over an object and returns its members.
func (s *scanner) object(depth int) ([]member, error) {
	if !s.take('{') {
		return nil, s.refuse("there is no object")
	}
	var members []member
	seen := map[string]bool{}
	for !s.take('}') {
		if len(members) == mostMembers {
			return nil, s.refuse("an object has more than %d members", mostMembers)
		}
		if len(members) > 0 && !s.take(',') {
			return nil, s.refuse("there is no comma between members")
		}
		s.space()
		raw, err := s.text()
		if err != nil {
			return nil, err
		}
		name, ok := decodeText(raw)
		if !ok || strings.ContainsRune(name, utf8.RuneError) { // half a surrogate pair
			return nil, s.refuse("a key is not text")
		}
		if seen[name] {
			return nil, s.refuse("key %q comes twice", clip(name))
		}
		seen[name] = true
		if !s.take(':') {
			return nil, s.refuse("there is no colon after a key")
		}
		s.space()
		from := s.at
		if err := s.skip(depth + 1); err != nil {
			return nil, err
		}
		members = append(members, member{name: name, value: span{from, s.at}})
	}
	return members, nil
}

// array calls each at the beginning of each element; each passes over it.
func (s *scanner) array(depth int, each func() error) error {
	if !s.take('[') {
		return s.refuse("there is no list")
	}
	for first := true; !s.take(']'); first = false {
		if !first && !s.take(',') {
			return s.refuse("there is no comma between elements")
		}
		s.space()
		if err := each(); err != nil {
			return err
		}
	}
	return nil
}

// text passes over a string and returns it as it stands there, in its quotes.
func (s *scanner) text() ([]byte, error) {
	from := s.at
	if s.at == len(s.data) || s.data[s.at] != '"' {
		return nil, s.refuse("there is no text in quotes")
	}
	for s.at++; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return s.data[from:s.at], nil
		case c < ' ':
			return nil, s.refuse("text has a control character")
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		}
	}
	return nil, s.refuse("text does not end")
}

// escape passes over an escape but for its last byte.
func (s *scanner) escape() error {
	s.at++
	if s.at == len(s.data) {
		return s.refuse("text does not end")
	}
	switch c := s.data[s.at]; {
	case strings.IndexByte(`"\/bfnrt`, c) >= 0:
		return nil
	case c == 'u' && len(s.data)-s.at > 4 && len(bytes.Trim(s.data[s.at+1:s.at+5], "0123456789abcdefABCDEF")) == 0:
		s.at += 4
		return nil
	}
	return s.refuse("text has an escape that there is not")
}

func (s *scanner) number() error {
	digits := func() bool {
		from := s.at
		for s.at < len(s.data) && '0' <= s.data[s.at] && s.data[s.at] <= '9' {
			s.at++
		}
		return s.at > from
	}
	has := func(chars string) bool {
		if s.at < len(s.data) && strings.IndexByte(chars, s.data[s.at]) >= 0 {
			s.at++
			return true
		}
		return false
	}
	has("-")
	if !has("0") && !digits() || has(".") && !digits() {
		return s.refuse("a number has no digits")
	}
	if has("eE") {
		has("+-")
		if !digits() {
			return s.refuse("a number has no digits")
		}
	}
	return nil
}

// decodeText returns what a string in its quotes says.
func decodeText(raw []byte) (string, bool) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return text, err == nil
}

// clip bounds what an error repeats of a request.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
