package strictyaml

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// encode writes a struct as lines of keys and values that [Decode] reads back. Fields that
// are zero are left out, as they are in a file.
func encode(v reflect.Value) (lines []string, err error) {
	for _, field := range fieldsOf(v) {
		if field.value.IsZero() {
			continue
		}
		value, err := flow(field.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field.key, err)
		}
		lines = append(lines, field.key+": "+value)
	}
	return lines, nil
}

// flow writes a value on one line.
func flow(v reflect.Value) (string, error) {
	if v.Kind() != reflect.Slice && reflect.PointerTo(v.Type()).Implements(reflect.TypeFor[textUnmarshaler]()) {
		return text(v)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return flow(v.Elem())
	case reflect.Struct:
		var pairs []string
		for _, field := range fieldsOf(v) {
			if !field.value.IsZero() {
				value, err := flow(field.value)
				if err != nil {
					return "", err
				}
				pairs = append(pairs, field.key+": "+value)
			}
		}
		return "{" + strings.Join(pairs, ", ") + "}", nil
	case reflect.Slice:
		var items []string
		for i := range v.Len() {
			item, err := flow(v.Index(i))
			if err != nil {
				return "", err
			}
			items = append(items, item)
		}
		return "[" + strings.Join(items, ", ") + "]", nil
	case reflect.String:
		return quote(v.String()), nil // unquoted, it could be read as a number
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), nil
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), nil
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64), nil
	default:
		return "", fmt.Errorf("no rule for a %s", v.Type())
	}
}

// text writes what reads itself from text.
func text(v reflect.Value) (string, error) {
	var word string
	switch own := v.Interface().(type) {
	case encoding.TextMarshaler:
		data, err := own.MarshalText()
		if err != nil {
			return "", err
		}
		word = string(data)
	case fmt.Stringer:
		word = own.String()
	default:
		if v.Kind() != reflect.String {
			return "", fmt.Errorf("no text for a %s", v.Type())
		}
		word = v.String()
	}
	if !plainText(word) {
		return quote(word), nil
	}
	return word, nil
}

// plainText reports whether text needs no quotes where any single value may stand.
func plainText(s string) bool {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && strings.Trim(s, safe+"-._/: ") == "" &&
		strings.ContainsRune(safe+"/", rune(s[0])) && strings.ContainsRune(safe, rune(s[len(s)-1])) &&
		!strings.Contains(s, ": ") && !strings.EqualFold(s, "null")
}

// quote writes text in double quotes; a string of JSON is one of YAML 1.2.
func quote(s string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		panic("strictyaml: a string has no JSON: " + err.Error())
	}
	return strings.TrimSuffix(out.String(), "\n")
}
