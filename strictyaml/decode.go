// Package strictyaml reads and edits the control plane's files: a small part of
// YAML, in which a file says what it seems to say or is refused with file, line and key.
//
// It promises that [Decode] takes no key, type or feature that was not asked for, in
// bounded time and memory; that [Encode] writes what Decode reads back; and that an
// edit changes the lines that it has to and no other. It opens no file: who may write
// one is for whoever reads it to check.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"tendril/fault"
	"tendril/spelling"
)

// Largest is the most bytes that a file may have.
const Largest = 256 << 10

// Decode decodes a control plane file: one YAML document whose keys are the
// `yaml` tags of T's fields. file is its name as errors give it.
//
// It refuses, as faults of the kind invalid with file, line and key: control characters
// and line breaks that editors do not show, carriage returns included; an unknown
// key (naming the nearest known one), a key that comes twice or has no value,
// anchors, aliases, merge keys, explicit tags, a second document, a missing or
// other version than 1, and a value of another type than the field's: text is
// never taken for a number or for true and false, nor the other way round. A
// field's own UnmarshalText decides what its text may be (of a map, its key's too; a
// list that has one may be written as a single value),
// and the own Validate of any other value that has one, what it may be. A struct's own
// RefuseKey may say why a key that it does not have is refused, where that is more than
// a slip; nil leaves it to the decoder.
//
// T is a struct with an int field tagged `version`. The keys of an embedded struct
// tagged `yaml:",inline"` are keys of the struct around it. A field of the type [Line]
// is no key: it is where the struct's first key stands. Maps have string keys.
func Decode[T any](file string, data []byte) (T, error) {
	var value T
	d := decoder{file: file}
	root, err := d.document(data)
	if err == nil {
		err = d.decode(root, "", reflect.ValueOf(&value).Elem())
	}
	if err == nil {
		err = d.version(root)
	}
	if err != nil {
		var none T
		return none, err
	}
	return value, nil
}

// Line is where something stands in a file, from 1.
type Line int

type decoder struct{ file string }

// refuse is every error of the decoder: file, line, and what is wrong there.
func (d decoder) refuse(line int, format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "%s:%d: %w", d.file, line, fmt.Errorf(format, args...))
}

// document parses the file and refuses what no file of ours needs. Keys and
// types are not looked at yet.
func (d decoder) document(data []byte) (*yaml.Node, error) {
	if len(data) > Largest {
		return nil, fault.New(fault.Invalid, "%s: %d bytes are more than the %d that the file may have", d.file, len(data), Largest)
	}
	if !utf8.Valid(data) { // YAML could also be UTF-16
		return nil, d.refuse(1, "the file is not UTF-8")
	}
	if err := d.visible(data); err != nil {
		return nil, err
	}
	stream := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := stream.Decode(&document); errors.Is(err, io.EOF) {
		return nil, d.refuse(1, "the file is empty").WithHint("begin it with `version: 1`, or remove it")
	} else if err != nil {
		return nil, d.syntax(data, err)
	}
	var second yaml.Node
	if err := stream.Decode(&second); err == nil {
		return nil, d.refuse(second.Line, "the file holds more than one document").WithHint("remove what follows `---`")
	} else if !errors.Is(err, io.EOF) {
		return nil, d.syntax(data, err)
	}
	root := document.Content[0]
	if err := d.plain(root, 0); err != nil {
		return nil, err
	}
	if root.Kind != yaml.MappingNode {
		return nil, d.refuse(root.Line, "the file is not a list of keys and values").WithHint("begin it with `version: 1`")
	}
	return root, nil
}

// visible refuses characters that an editor does not show, or shows otherwise than the
// parser takes them. A carriage return, U+0085, U+2028 and U+2029 end a line for YAML 1.1
// (section 5.4) and not for most editors, so that what stands after one in a comment would
// be in force.
func (d decoder) visible(data []byte) error {
	at := bytes.IndexFunc(data, func(c rune) bool {
		return c != '\n' && c != '\t' && (unicode.IsControl(c) || c == '\u2028' || c == '\u2029' || c == '\ufeff' || c == '\ufffe' || c == '\uffff')
	})
	if at < 0 {
		return nil
	}
	line := 1 + bytes.Count(data[:at], []byte("\n"))
	switch c, _ := utf8.DecodeRune(data[at:]); c {
	case '\r':
		return d.refuse(line, "the line holds a carriage return").WithHint(`end lines as Unix does: sed -i 's/\r$//' %s`, d.file)
	case '\u0085', '\u2028', '\u2029':
		return d.refuse(line, "the line holds a line break that editors do not show (U+%04X)", c).WithHint("remove it, or end the line there")
	default:
		return d.refuse(line, "the file holds a control character (%#02x)", c).WithHint("remove it")
	}
}

// syntax turns what the parser says ("yaml: line 3: …") into the form of every other
// error. Its own line is left out: it is missing in some errors, and one too low in most.
func (d decoder) syntax(data []byte, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if at, rest, ok := strings.Cut(text, ": "); ok {
		if digits, ok := strings.CutPrefix(at, "line "); ok && isDigits(digits) {
			text = rest
		}
	}
	return fault.New(fault.Invalid, "%s:%d: %s", d.file, lineOf(data, err), text)
}

// lineOf finds the line of a parser's error. It reads from the front and stops at its
// first error: so the line is the last of the shortest beginning with that same error,
// and the first of something that is never closed.
func lineOf(data []byte, err error) int {
	lines := bytes.SplitAfter(data, []byte("\n"))
	return 1 + sort.Search(len(lines)-1, func(i int) bool {
		beginning := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:i+1], nil)))
		for {
			switch again := beginning.Decode(new(yaml.Node)); {
			case errors.Is(again, io.EOF):
				return false
			case again != nil:
				return again.Error() == err.Error()
			}
		}
	})
}

// deepest is how far values may nest.
const deepest = 16

// plain refuses the parts of YAML in which a file does not say what it seems to
// say.
func (d decoder) plain(node *yaml.Node, depth int) error {
	switch {
	case depth > deepest:
		return d.refuse(node.Line, "values nest deeper than %d", deepest)
	case node.Kind == yaml.AliasNode:
		return d.refuse(node.Line, "an alias (*%s) is not allowed", clip(node.Value)).WithHint("write the value out")
	case node.Anchor != "":
		return d.refuse(node.Line, "an anchor (&%s) is not allowed", clip(node.Anchor)).WithHint("write the value out where it is needed")
	case node.Style&yaml.TaggedStyle != 0:
		return d.refuse(node.Line, "an explicit tag (%s) is not allowed", clip(node.Tag)).WithHint("remove it")
	}
	for _, child := range node.Content {
		if err := d.plain(child, depth+1); err != nil {
			return err
		}
	}
	if node.Kind == yaml.MappingNode {
		return d.uniqueKeys(node)
	}
	return nil
}

func (d decoder) uniqueKeys(node *yaml.Node) error {
	lines := map[string]int{}
	for i := 0; i < len(node.Content); i += 2 {
		key := node.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag != "!!str" {
			if key.Tag == "!!merge" {
				return d.refuse(key.Line, "a merge key (<<) is not allowed").WithHint("write the keys out")
			}
			return d.refuse(key.Line, "a key is not text")
		}
		if first, ok := lines[key.Value]; ok {
			return d.refuse(key.Line, "key %q comes twice; the first is on line %d", clip(key.Value), first)
		}
		lines[key.Value] = key.Line
	}
	return nil
}

// version refuses a file of another version. It comes last, so that a misspelt
// "version" is named as the misspelling.
func (d decoder) version(root *yaml.Node) error {
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value != "version" {
			continue
		}
		if value := root.Content[i+1]; value.Value != "1" {
			return d.refuse(value.Line, "version %s is not one that this program knows", clip(value.Value)).WithHint("write `version: 1`")
		}
		return nil
	}
	return d.refuse(root.Line, "the version is missing").WithHint("begin the file with `version: 1`")
}

type (
	textUnmarshaler interface{ UnmarshalText([]byte) error }
	validator       interface{ Validate() error }
	keyRefuser      interface{ RefuseKey(key string) error }
)

// decode puts a node's value into v. It does so by itself, because yaml takes
// `yes` for true, 0x10 and 1_000 for numbers, and a null for anything.
func (d decoder) decode(node *yaml.Node, key string, v reflect.Value) error {
	if node.Tag == "!!null" {
		return d.refuse(node.Line, "key %q has no value", clip(key)).WithHint("give it one, or remove the key")
	}
	list := v.Kind() == reflect.Slice && node.Kind == yaml.SequenceNode
	if text, ok := v.Addr().Interface().(textUnmarshaler); ok && !list {
		return d.text(node, key, text)
	}
	if v.Kind() == reflect.Pointer {
		value := reflect.New(v.Type().Elem())
		if err := d.decode(node, key, value.Elem()); err != nil {
			return err
		}
		v.Set(value)
		return nil
	}
	if err := d.byKind(node, key, v); err != nil {
		return err
	}
	if own, ok := v.Addr().Interface().(validator); ok {
		if err := own.Validate(); err != nil {
			return d.because(node, key, err)
		}
	}
	return nil
}

func (d decoder) byKind(node *yaml.Node, key string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Struct:
		return d.object(node, key, v)
	case reflect.Map:
		return d.names(node, key, v)
	case reflect.Slice:
		return d.list(node, key, v)
	default:
		return d.scalar(node, key, v)
	}
}

func (d decoder) text(node *yaml.Node, key string, into textUnmarshaler) error {
	if node.Kind != yaml.ScalarNode {
		return d.mismatch(node, key, "a single value")
	}
	if err := into.UnmarshalText([]byte(node.Value)); err != nil {
		return d.because(node, key, err)
	}
	return nil
}

// because refuses a value for the reason that it gave itself, and keeps what to do
// next.
func (d decoder) because(node *yaml.Node, key string, err error) error {
	refused := d.refuse(node.Line, "%s: %w", clip(key), err)
	var cause *fault.Error
	if errors.As(err, &cause) {
		refused.Hint = cause.Hint
	}
	return refused
}

func (d decoder) object(node *yaml.Node, key string, v reflect.Value) error {
	if node.Kind != yaml.MappingNode {
		return d.mismatch(node, key, "keys and values")
	}
	fields := map[string]reflect.Value{}
	var known []string
	for _, field := range fieldsOf(v) {
		fields[field.key] = field.value
		known = append(known, field.key)
	}
	setLine(v, node.Line)
	for i := 0; i < len(node.Content); i += 2 {
		name := node.Content[i].Value
		field, ok := fields[name]
		if !ok {
			return d.unknown(node.Content[i], known, v)
		}
		if err := d.decode(node.Content[i+1], name, field); err != nil {
			return err
		}
	}
	return nil
}

// field is one key of a struct.
type field struct {
	key   string
	value reflect.Value
}

// fieldsOf returns the keys of a struct in their order.
func fieldsOf(v reflect.Value) []field {
	var all []field
	for i := range v.NumField() {
		own := v.Type().Field(i)
		key, option, _ := strings.Cut(own.Tag.Get("yaml"), ",")
		switch {
		case own.Type == reflect.TypeFor[Line]():
		case option == "inline":
			all = append(all, fieldsOf(v.Field(i))...)
		default:
			all = append(all, field{key, v.Field(i)})
		}
	}
	return all
}

func setLine(v reflect.Value, line int) {
	for i := range v.NumField() {
		if v.Field(i).Type() == reflect.TypeFor[Line]() {
			v.Field(i).SetInt(int64(line))
		}
	}
}

func (d decoder) unknown(key *yaml.Node, known []string, of reflect.Value) error {
	if own, ok := of.Interface().(keyRefuser); ok {
		if err := own.RefuseKey(key.Value); err != nil {
			return d.because(key, key.Value, err)
		}
	}
	if nearest, ok := spelling.Nearest(key.Value, known); ok {
		return d.refuse(key.Line, "unknown key %q (did you mean %q?)", clip(key.Value), nearest)
	}
	return d.refuse(key.Line, "unknown key %q", clip(key.Value)).WithHint("known keys are %s", strings.Join(known, ", "))
}

func (d decoder) names(node *yaml.Node, key string, v reflect.Value) error {
	if node.Kind != yaml.MappingNode {
		return d.mismatch(node, key, "keys and values")
	}
	values := reflect.MakeMap(v.Type())
	for i := 0; i < len(node.Content); i += 2 {
		name := reflect.New(v.Type().Key()).Elem()
		if text, ok := name.Addr().Interface().(textUnmarshaler); !ok {
			name.SetString(node.Content[i].Value)
		} else if err := d.text(node.Content[i], key, text); err != nil {
			return err
		}
		value := reflect.New(v.Type().Elem()).Elem()
		if err := d.decode(node.Content[i+1], node.Content[i].Value, value); err != nil {
			return err
		}
		values.SetMapIndex(name, value)
	}
	v.Set(values)
	return nil
}

func (d decoder) list(node *yaml.Node, key string, v reflect.Value) error {
	if node.Kind != yaml.SequenceNode {
		return d.mismatch(node, key, "a list")
	}
	values := reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content))
	for i, element := range node.Content {
		if err := d.decode(element, key, values.Index(i)); err != nil {
			return err
		}
	}
	v.Set(values)
	return nil
}

func (d decoder) scalar(node *yaml.Node, key string, v reflect.Value) error {
	if node.Kind != yaml.ScalarNode {
		return d.mismatch(node, key, "a single value")
	}
	switch v.Kind() {
	case reflect.String:
		if node.Tag != "!!str" {
			return d.mismatch(node, key, "text").WithHint("put it in quotes if that is what you mean")
		}
		v.SetString(node.Value)
	case reflect.Bool:
		if node.Tag != "!!bool" || (node.Value != "true" && node.Value != "false") {
			return d.mismatch(node, key, "true or false")
		}
		v.SetBool(node.Value == "true")
	case reflect.Int, reflect.Int64:
		n, ok := wholeNumber(node, v.Type().Bits())
		if !ok {
			return d.mismatch(node, key, "a whole number in digits")
		}
		v.SetInt(n)
	case reflect.Float64:
		n, ok := decimal(node)
		if !ok {
			return d.mismatch(node, key, "a number such as 2 or 1.5")
		}
		v.SetFloat(n)
	default:
		return fault.New(fault.Internal, "%s: no rule for a %s", d.file, v.Type())
	}
	return nil
}

func (d decoder) mismatch(node *yaml.Node, key, want string) *fault.Error {
	if key == "" {
		return d.refuse(node.Line, "the value is not %s", want)
	}
	return d.refuse(node.Line, "the value of %q is not %s", clip(key), want)
}

// clip bounds what an error repeats of a file.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
