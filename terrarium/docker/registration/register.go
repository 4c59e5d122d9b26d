//go:build linux

package registration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// member is one entry of an object of JSON, by where it is in the text.
type member struct {
	key              string
	start, from, end int // of the key, of the value, and the value's end
}

// object is where one is in the text.
type object struct {
	open, close int // of its brackets
	members     []member
}

// register puts the runtime into the configuration and leaves every other byte as it is.
func register(text []byte, path string) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	top, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	ours := registeredRuntime{path, Args}
	i := top.find("runtimes")
	if i < 0 {
		return insert(text, top, "runtimes", map[string]any{"runsc": ours})
	}
	runtimes, err := objectAt(text, top.members[i])
	if err != nil {
		return nil, fmt.Errorf("runtimes: %w", err)
	}
	j := runtimes.find("runsc")
	if j < 0 {
		return insert(text, runtimes, "runsc", ours)
	}
	has, err := registered(text, runtimes.members[j])
	if err != nil {
		return nil, err
	}
	switch {
	case has.Path != path:
		return nil, fmt.Errorf("there is a runtime runsc already, %q, and it is not tendril's", has.Path)
	case reflect.DeepEqual(has.Args, Args):
		return text, nil
	}
	without := remove(text, runtimes, j) // as an older tendril registered it
	return register(without, path)
}

// unregister takes the runtime out again.
func unregister(text []byte, path string) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return text, nil
	}
	top, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	i := top.find("runtimes")
	if i < 0 {
		return text, nil
	}
	runtimes, err := objectAt(text, top.members[i])
	if err != nil {
		return nil, fmt.Errorf("runtimes: %w", err)
	}
	j := runtimes.find("runsc")
	if j < 0 {
		return text, nil
	}
	has, err := registered(text, runtimes.members[j])
	if err != nil || has.Path != path {
		return text, err // somebody else's
	}
	if len(runtimes.members) == 1 {
		return remove(text, top, i), nil
	}
	return remove(text, runtimes, j), nil
}

type registeredRuntime struct {
	Path string   `json:"path"`
	Args []string `json:"runtimeArgs"`
}

func registered(text []byte, m member) (registeredRuntime, error) {
	var has registeredRuntime
	if err := json.Unmarshal(text[m.from:m.end], &has); err != nil {
		return has, fmt.Errorf("runtimes.runsc: %w", err)
	}
	return has, nil
}

func (o object) find(key string) int {
	return slices.IndexFunc(o.members, func(m member) bool { return m.key == key })
}

// insert puts a member at the end of an object, indented like those that are there.
func insert(text []byte, into object, key string, value any) ([]byte, error) {
	base := indentation(text, into.close)
	indent := base + "    "
	if len(into.members) > 0 {
		indent = indentation(text, into.members[0].start)
	}
	step := strings.TrimPrefix(indent, base)
	if step == "" || step == indent && base != "" {
		step = "    "
	}
	rendered, err := json.MarshalIndent(value, indent, step)
	if err != nil {
		return nil, err
	}
	added := fmt.Sprintf("\n%s%q: %s", indent, key, rendered)
	if len(into.members) > 0 {
		last := into.members[len(into.members)-1].end
		return slices.Concat(text[:last], []byte(","+added), text[last:]), nil
	}
	return slices.Concat(text[:into.open+1], []byte(added+"\n"+base), text[into.close:]), nil
}

// indentation is the white space with which the line of a place begins.
func indentation(text []byte, at int) string {
	line := text[bytes.LastIndexByte(text[:at], '\n')+1 : at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// remove takes a member out, with its comma.
func remove(text []byte, from object, i int) []byte {
	switch m := from.members[i]; {
	case i > 0:
		return slices.Concat(text[:from.members[i-1].end], text[m.end:])
	case len(from.members) > 1:
		return slices.Concat(text[:m.start], text[from.members[1].start:])
	default:
		return slices.Concat(text[:from.open+1], text[from.close:])
	}
}

// parseObject reads a text that is one object of strict JSON: no comments, nothing after
// it, and no key twice at any depth, which programs read in different ways.
func parseObject(text []byte) (object, error) {
	if err := strict(text); err != nil {
		return object{}, err
	}
	return objectAt(text, member{from: 0, end: len(text)})
}

// objectAt reads the object that is the value of a member, in a text that is strict.
func objectAt(text []byte, at member) (object, error) {
	d := json.NewDecoder(bytes.NewReader(text[at.from:at.end]))
	token, err := d.Token()
	if err != nil || token != json.Delim('{') {
		return object{}, errors.Join(err, errors.New("it is no object"))
	}
	o := object{open: at.from + int(d.InputOffset()) - 1}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return object{}, err
		}
		keyEnd := at.from + int(d.InputOffset())
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return object{}, err
		}
		end := at.from + int(d.InputOffset())
		o.members = append(o.members, member{key: key.(string), start: keyStart(text, keyEnd), from: end - len(value), end: end})
	}
	if _, err := d.Token(); err != nil {
		return object{}, err
	}
	o.close = at.from + int(d.InputOffset()) - 1
	return o, nil
}

// keyStart finds the quote that opens the string which ends at end.
func keyStart(text []byte, end int) int {
	for i := end - 2; ; i-- {
		if text[i] != '"' {
			continue
		}
		slashes := 0
		for text[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}

// strict refuses what the daemon and this program could read in two ways.
func strict(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := strictValue(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is something after the end of the configuration")
	}
	return nil
}

// maxNested bounds how deep a configuration may be.
const maxNested = 64

func strictValue(d *json.Decoder, depth int) error {
	token, err := d.Token()
	if err != nil {
		return fmt.Errorf("it is not strict JSON: %w", err)
	}
	open, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	if depth == maxNested {
		return fmt.Errorf("it is nested deeper than %d", maxNested)
	}
	keys := map[string]bool{}
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				return fmt.Errorf("it is not strict JSON: %w", err)
			}
			name := key.(string)
			if depth == 0 {
				name = strings.ToLower(name) // the daemon takes its own settings in any case
			}
			if keys[name] {
				return fmt.Errorf("the key %q is there twice", name)
			}
			keys[name] = true
		}
		if err := strictValue(d, depth+1); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("it is not strict JSON: %w", err)
	}
	return nil
}
