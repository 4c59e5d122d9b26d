package client

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"

	"tendril/api/wire"
	"tendril/capability"
	"tendril/fault"
)

// encode returns the first line of a call, with its end.
func encode(r Request) ([]byte, error) {
	input, err := encodeInput(reflect.ValueOf(r.Input))
	if err != nil {
		return nil, fault.New(fault.Invalid, "encoding the input of %s: %w", r.Capability, err)
	}
	// JSON holds no text but UTF-8, and encoding/json mends the rest without a word.
	if r.Input != nil {
		back := reflect.New(reflect.TypeOf(r.Input))
		if err := capability.Decode(input, back.Interface()); err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(r.Input, back.Elem().Interface()) {
			return nil, fault.New(fault.Invalid, "the input of %s holds text that is not valid UTF-8, which cannot be sent", r.Capability).
				WithHint("put such bytes in a file of the Substrate")
		}
	}
	line, err := marshal(wire.Call{Version: wire.Version, Capability: r.Capability, Token: r.Token, Input: input})
	if err != nil {
		return nil, fault.New(fault.Invalid, "encoding the call of %s: %w", r.Capability, err)
	}
	if len(line) > wire.LargestCall {
		return nil, fault.New(fault.Invalid, "the call of %d bytes is larger than %d", len(line), wire.LargestCall)
	}
	return append(line, '\n'), nil
}

// encodeInput encodes a struct without the fields that are zero: [capability.Decode]
// takes a key that is not there for that, and would refuse what cannot be zero
// otherwise, such as an id.
func encodeInput(v reflect.Value) (json.RawMessage, error) {
	switch v.Kind() {
	case reflect.Invalid:
		return json.RawMessage("{}"), nil
	case reflect.Struct:
		if isMarshaler(v.Type()) {
			return marshal(v.Interface())
		}
	default:
		return marshal(v.Interface())
	}
	object := map[string]json.RawMessage{}
	for _, field := range reflect.VisibleFields(v.Type()) {
		value := v.FieldByIndex(field.Index)
		if field.Anonymous || value.IsZero() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		var err error
		if object[name], err = encodeInput(value); err != nil {
			return nil, err
		}
	}
	return marshal(object)
}

func isMarshaler(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// marshal encodes without the escapes that only HTML needs.
func marshal(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
