package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// Path is a file's path, or a ref, in bytes: neither has to be text. In JSON it
// is {"path": "…"}, or {"path_b64": "…"} when it is not valid UTF-8, because a
// JSON string cannot hold it and encoding/json would rewrite it silently.
type Path string

// The keys of the two forms.
const (
	pathKey    = "path"
	pathB64Key = "path_b64"
)

// MarshalJSON implements [json.Marshaler].
func (p Path) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(p)) {
		return json.Marshal(map[string]string{pathKey: string(p)})
	}
	return json.Marshal(map[string][]byte{pathB64Key: []byte(p)})
}

// UnmarshalJSON implements [json.Unmarshaler]. It takes exactly one of the two
// forms.
func (p *Path) UnmarshalJSON(data []byte) error {
	// A map, because a struct would take the keys in any case.
	var wire map[string]*json.RawMessage
	if err := json.Unmarshal(data, &wire); err != nil {
		return fmt.Errorf("a path is %s: %w", pathForms, err)
	}
	text, inText := wire[pathKey]
	encoded, inBase64 := wire[pathB64Key]
	switch {
	case len(wire) == 1 && inText && text != nil:
		return json.Unmarshal(*text, (*string)(p))
	case len(wire) == 1 && inBase64 && encoded != nil:
		var raw []byte
		if err := json.Unmarshal(*encoded, &raw); err != nil {
			return err
		}
		*p = Path(raw)
		return nil
	}
	return fmt.Errorf("a path is %s", pathForms)
}

const pathForms = `exactly one of {"path": …} and {"path_b64": …}`

// Substrate names the repository that a run works on: by the name that the
// Botanist gave it, or by an absolute path. Exactly one field is set. In JSON a
// name is a string and a path is a [Path].
type Substrate struct {
	Name string
	Path Path
}

// MarshalJSON implements [json.Marshaler].
func (s Substrate) MarshalJSON() ([]byte, error) {
	if s.Name != "" {
		return json.Marshal(s.Name)
	}
	return json.Marshal(s.Path)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Substrate) UnmarshalJSON(data []byte) error {
	if data[0] == '{' {
		*s = Substrate{}
		return s.Path.UnmarshalJSON(data)
	}
	var name string
	if err := json.Unmarshal(data, &name); err != nil {
		return fmt.Errorf("a Substrate is a name or {\"path\": …}: %w", err)
	}
	*s = Substrate{Name: name}
	return nil
}

// String is the name or the path, as bytes: escape it before it is shown.
func (s Substrate) String() string {
	if s.Name != "" {
		return s.Name
	}
	return string(s.Path)
}

// Time is an instant of a record: in UTC and to the millisecond, also after a
// trip through JSON or the store.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// At returns t as records hold it.
func At(t time.Time) Time {
	return Time{t.UTC().Truncate(time.Millisecond)}
}

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	return json.Marshal(At(t.Time).Format(timeLayout))
}

// UnmarshalJSON implements [json.Unmarshaler]. It takes any RFC 3339 time.
func (t *Time) UnmarshalJSON(data []byte) error {
	var instant time.Time
	if err := json.Unmarshal(data, &instant); err != nil {
		return err
	}
	*t = At(instant)
	return nil
}

// MarshalJSON implements [json.Marshaler]: a list without elements is [], never
// null.
func (r Run) MarshalJSON() ([]byte, error) {
	type plain Run // without this method
	p := plain(r)
	if p.Flags == nil {
		p.Flags = []Flag{}
	}
	if p.Boundary == nil {
		p.Boundary = []Row{}
	}
	if p.Unenforced == nil {
		p.Unenforced = []Limit{}
	}
	if p.Egress == nil {
		p.Egress = []Reach{}
	}
	return json.Marshal(p)
}

// decodeStrict decodes one JSON value and refuses unknown keys and whatever
// follows it.
func decodeStrict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("something follows the value")
	}
	return nil
}
