package capability

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"tendril/fault"
	"tendril/spelling"
)

const (
	// LargestInput is the most bytes that [Decode] takes: the largest command
	// that is allowed, escaped, and room for the rest.
	LargestInput = 4 << 20
	deepest      = 32 // how far values may nest
)

// Decode decodes the JSON of an input into the struct that into points to. It
// is for bytes that a caller sent, and refuses what encoding/json would let
// pass or mend: an unknown key, a key in another case, a key that comes twice,
// text that is not valid UTF-8 (also as half a surrogate pair), anything after
// the value, nesting beyond 32 and more than [LargestInput] bytes. Null means
// the same as a key that is not there. Every refusal is a fault of the kind
// invalid that names the key; an unknown one with the nearest that is known.
//
// Ranges are for the input's Validate.
func Decode(data []byte, into any) error {
	if len(data) > LargestInput {
		return fault.New(fault.Invalid, "the input of %d bytes is larger than %d", len(data), LargestInput)
	}
	if !utf8.Valid(data) {
		return fault.New(fault.Invalid, "the input is not valid UTF-8").
			WithHint("send a path that is not text as path_b64")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := checkForm(dec, "", 0); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return fault.New(fault.Invalid, "something follows the input's value")
	}
	if at := loneSurrogate(data); at >= 0 {
		return fault.New(fault.Invalid, "the text at byte %d holds half a surrogate pair", at)
	}
	return decodeInto("", data, reflect.ValueOf(into).Elem())
}

// checkForm reads one value and refuses bad syntax, repeated keys and deep nesting.
func checkForm(dec *json.Decoder, path string, depth int) error {
	if depth > deepest {
		return fault.New(fault.Invalid, "%sthe input nests deeper than %d", label(path), deepest)
	}
	token, err := dec.Token()
	if err != nil {
		return syntaxFault(path, err)
	}
	switch token {
	case json.Delim('{'):
		seen := map[string]bool{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return syntaxFault(path, err)
			}
			name := key.(string) // the decoder takes nothing else for a key
			if seen[name] {
				return fault.New(fault.Invalid, "the key %q comes twice", join(path, name))
			}
			seen[name] = true
			if err := checkForm(dec, join(path, name), depth+1); err != nil {
				return err
			}
		}
	case json.Delim('['):
		for i := 0; dec.More(); i++ {
			if err := checkForm(dec, join(path, strconv.Itoa(i)), depth+1); err != nil {
				return err
			}
		}
	default:
		return nil // a scalar
	}
	if _, err := dec.Token(); err != nil { // the closing bracket
		return syntaxFault(path, err)
	}
	return nil
}

func syntaxFault(path string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.New(fault.Invalid, "%sthe input ends too early", label(path))
	}
	return fault.New(fault.Invalid, "%sthe input is not JSON: %w", label(path), err)
}

// loneSurrogate returns where an escape is half of a surrogate pair, and -1 if
// none is. The data is known to be JSON, so a backslash begins an escape of a
// string.
func loneSurrogate(data []byte) int {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		i++ // to the escape's letter; "\\" is passed as a whole
		if data[i] != 'u' {
			continue
		}
		switch unit := hexUnit(data[i+1:]); {
		case unit >= 0xdc00 && unit <= 0xdfff:
			return i - 1
		case unit >= 0xd800 && unit <= 0xdbff:
			rest := data[i+5:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
				return i - 1
			}
			if low := hexUnit(rest[2:]); low < 0xdc00 || low > 0xdfff {
				return i - 1
			}
			i += 6
		}
	}
	return -1
}

func hexUnit(data []byte) uint64 {
	unit, _ := strconv.ParseUint(string(data[:4]), 16, 16) // the decoder has checked the digits
	return unit
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()
)

// decodeInto decodes data, whose form is checked, into v. It goes field by field
// for two reasons: encoding/json takes keys in any case, and does not say at
// which key a value's own decoding failed.
func decodeInto(path string, data []byte, v reflect.Value) error {
	if string(bytes.TrimSpace(data)) == "null" && path != "" {
		return nil
	}
	own := reflect.PointerTo(v.Type())
	switch {
	case v.Kind() == reflect.Pointer:
		value := reflect.New(v.Type().Elem())
		if err := decodeInto(path, data, value.Elem()); err != nil {
			return err
		}
		v.Set(value)
		return nil
	case v.Kind() == reflect.Struct && !own.Implements(jsonUnmarshaler) && !own.Implements(textUnmarshaler):
		return decodeObject(path, data, v)
	}
	if err := json.Unmarshal(data, v.Addr().Interface()); err != nil {
		return valueFault(path, err)
	}
	return nil
}

func decodeObject(path string, data []byte, v reflect.Value) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return fault.New(fault.Invalid, "%snot an object", label(path))
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return syntaxFault(path, err)
		}
		name := token.(string)
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return syntaxFault(path, err)
		}
		index, known := keys(v.Type())
		i, ok := index[name]
		if !ok {
			return unknownKey(join(path, name), name, known)
		}
		if err := decodeInto(join(path, name), raw, v.FieldByIndex(i)); err != nil {
			return err
		}
	}
	return nil
}

// keys returns the JSON keys of a struct's fields, as an index and in order.
func keys(t reflect.Type) (index map[string][]int, ordered []string) {
	index = map[string][]int{}
	for _, field := range reflect.VisibleFields(t) { // those of an embedded struct too
		if field.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		index[name] = field.Index
		ordered = append(ordered, name)
	}
	return index, ordered
}

func unknownKey(path, name string, known []string) error {
	err := fault.New(fault.Invalid, "unknown key %q", clip(path))
	if nearest, ok := spelling.Nearest(name, known); ok {
		return err.WithHint("did you mean %q?", nearest)
	}
	if len(known) == 0 {
		return err.WithHint("no key is known here")
	}
	return err.WithHint("known keys are %s", strings.Join(known, ", "))
}

// valueFault says at which key a value was refused, and keeps what to do next.
func valueFault(path string, err error) error {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return fault.New(fault.Invalid, "%sa %s cannot be %s", label(path), mismatch.Value, inWords(mismatch.Type))
	}
	refused := fault.New(fault.Invalid, "%s%w", label(path), err)
	var cause *fault.Error
	if errors.As(err, &cause) {
		refused.Hint = cause.Hint
	}
	return refused
}

func inWords(t reflect.Type) string {
	if t == reflect.TypeFor[*Duration]() {
		return "a length of time; write it as text, such as 1h30m"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint16:
		return "a whole number from 0 to 65535"
	default:
		return "a " + t.String()
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func label(path string) string {
	if path == "" {
		return ""
	}
	return clip(path) + ": "
}
