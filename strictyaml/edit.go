package strictyaml

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"tendril/fault"
)

// An edit moves lines and leaves the rest of a file as its author wrote it: comments, order,
// indentation. It knows the layouts that people use for lists of keys and values,
// one key a line; what is written otherwise is refused and left to a person. Positions come
// from a parser and lines from the text, so whoever edits decodes the result and compares
// it with what was meant.

// AddItem returns the text with one more item, a struct, at the end of the list at a
// key of the file. An empty text becomes a file. file is its name as errors give it.
func AddItem(file string, text []byte, key string, item any) ([]byte, error) {
	lines, err := encode(reflect.ValueOf(item))
	if err != nil {
		return nil, fault.New(fault.Internal, "%s: %w", file, err)
	}
	return add(file, text, key, "[]", "- "+strings.Join(lines, "\n  "))
}

// AddEntry returns the text with one more name and its value, a struct, at the end of
// the map at a key of the file.
func AddEntry(file string, text []byte, key, name string, value any) ([]byte, error) {
	lines, err := encode(reflect.ValueOf(value))
	if err != nil {
		return nil, fault.New(fault.Internal, "%s: %w", file, err)
	}
	if !plainText(name) {
		name = quote(name)
	}
	return add(file, text, key, "{}", name+":\n  "+strings.Join(lines, "\n  "))
}

// RemoveItem returns the text without one item, counted from 0, of the list at a key,
// and without the comments inside it. Those above it stay.
func RemoveItem(file string, text []byte, key string, index int) ([]byte, error) {
	return remove(file, text, key, "[]", func(l list) int { return index })
}

// RemoveEntry returns the text without one name and its value of the map at a key.
func RemoveEntry(file string, text []byte, key, name string) ([]byte, error) {
	return remove(file, text, key, "{}", func(l list) int {
		return slices.IndexFunc(l.entries, func(e entry) bool { return e.name == name })
	})
}

// RemoveWord returns the text without one word of a list of several: the list at the key inner
// of an item of the list at key.
func RemoveWord(file string, text []byte, key string, index int, inner, word string) ([]byte, error) {
	e, err := open(file, text)
	if err != nil {
		return nil, err
	}
	_, items := e.value(e.root, key)
	if items == nil || items.Kind != yaml.SequenceNode || index >= len(items.Content) {
		return nil, e.byHand(e.root, key)
	}
	_, words := e.value(items.Content[index], inner)
	if words == nil || words.Kind != yaml.SequenceNode || len(words.Content) < 2 {
		return nil, e.byHand(items.Content[index], inner)
	}
	at := slices.IndexFunc(words.Content, func(n *yaml.Node) bool { return n.Value == word })
	if at < 0 {
		return nil, e.byHand(words, inner)
	}
	return e.withoutWord(words, at, inner)
}

// editor is a file that is being edited.
type editor struct {
	decoder
	text  []byte
	lines []string // with their line breaks
	root  *yaml.Node
}

func open(file string, text []byte) (editor, error) {
	d := decoder{file: file}
	root, err := d.document(text)
	if err != nil {
		return editor{}, err
	}
	return editor{d, text, strings.SplitAfter(string(text), "\n"), root}, nil
}

// byHand is the refusal of every layout that an edit does not know.
func (e editor) byHand(at *yaml.Node, key string) error {
	return e.refuse(at.Line, "%q is not written in a way that this program edits", clip(key)).
		WithHint("edit the file by hand; a list of grants or Substrates has one key a line and no brackets around it")
}

// value returns a key of a map, and its value.
func (e editor) value(of *yaml.Node, key string) (name, value *yaml.Node) {
	if of.Kind == yaml.MappingNode {
		for i := 0; i < len(of.Content); i += 2 {
			if of.Content[i].Value == key {
				return of.Content[i], of.Content[i+1]
			}
		}
	}
	return nil, nil
}

// list is a list or a map that is written one entry below the other.
type list struct {
	indent  int // of its dashes or names, in columns
	entries []entry
	end     int // the line after everything that could belong to it, from 0
}

type entry struct {
	name  string // of a map
	first int    // its line, from 0
}

// list finds the lines of a block list or map, whose key is one of the file's.
func (e editor) list(key *yaml.Node, value *yaml.Node) (list, bool) {
	l := list{indent: value.Column - 1, end: len(e.lines)}
	if value.Style&yaml.FlowStyle != 0 || e.root.Style&yaml.FlowStyle != 0 {
		return list{}, false
	}
	for i := 0; i < len(e.root.Content); i += 2 {
		if other := e.root.Content[i].Line; other > key.Line {
			l.end = min(l.end, other-1)
		}
	}
	step := 1
	if value.Kind == yaml.MappingNode {
		step = 2
	}
	for i := 0; i < len(value.Content); i += step {
		first := value.Content[i].Line - 1
		if step == 1 {
			first = e.dash(first, l.indent)
		}
		if first < key.Line { // on the line of its key
			return list{}, false
		}
		l.entries = append(l.entries, entry{value.Content[i].Value, first})
	}
	return l, true
}

// dash goes back from a line to the one with the item's dash.
func (e editor) dash(line, indent int) int {
	for ; line >= 0; line-- {
		if here, ok := indentOf(e.lines[line]); ok && here == indent && e.lines[line][indent] == '-' {
			break
		}
	}
	return line
}

// indentOf returns how many spaces a line begins with; ok is false for one without
// anything but spaces.
func indentOf(line string) (indent int, ok bool) {
	rest := strings.TrimLeft(line, " ")
	return len(line) - len(rest), strings.TrimSpace(rest) != ""
}

// contentEnd goes back from the line end over what does not belong to the entries before it: blank
// lines, and comments that are not indented by at least so much.
func (e editor) contentEnd(end, indent int) int {
	for ; end > 0; end-- {
		here, ok := indentOf(e.lines[end-1])
		if ok && (e.lines[end-1][here] != '#' || here >= indent) {
			break
		}
	}
	return end
}

// add puts the lines of block at the end of the list or map at key. empty is how it is
// written without entries.
func add(file string, text []byte, key, empty, block string) ([]byte, error) {
	if len(text) == 0 {
		text = []byte("version: 1\n")
	}
	e, err := open(file, text)
	if err != nil {
		return nil, err
	}
	name, value := e.value(e.root, key)
	if value == nil {
		if e.root.Style&yaml.FlowStyle != 0 {
			return nil, e.byHand(e.root, key)
		}
		return e.insert(e.contentEnd(len(e.lines), 0), key+":\n"+indented(block, 2)), nil
	}
	if len(value.Content) == 0 && value.Kind != yaml.ScalarNode {
		before, after, ok := strings.Cut(e.lines[value.Line-1], empty)
		if !ok || e.root.Style&yaml.FlowStyle != 0 || name.Line != value.Line {
			return nil, e.byHand(value, key)
		}
		e.lines[value.Line-1] = strings.TrimRight(before, " ") + strings.TrimRight(after, "\r\n") + "\n"
		return e.insert(value.Line, indented(block, 2)), nil
	}
	l, ok := e.list(name, value)
	if !ok {
		return nil, e.byHand(value, key)
	}
	keep := l.indent
	if l.end == len(e.lines) {
		keep = 0 // nothing follows that a comment could belong to
	} else if keep == 0 {
		keep = 1
	}
	return e.insert(e.contentEnd(l.end, keep), indented(block, l.indent)), nil
}

func indented(block string, by int) string {
	margin := strings.Repeat(" ", by)
	return margin + strings.ReplaceAll(block, "\n", "\n"+margin) + "\n"
}

// insert puts text before a line, counted from 0.
func (e editor) insert(line int, text string) []byte {
	before := strings.Join(e.lines[:line], "")
	if before != "" && !strings.HasSuffix(before, "\n") {
		before += "\n"
	}
	return []byte(before + text + strings.Join(e.lines[line:], ""))
}

// remove takes the entry that which names out of the list or map at key.
func remove(file string, text []byte, key, empty string, which func(list) int) ([]byte, error) {
	e, err := open(file, text)
	if err != nil {
		return nil, err
	}
	name, value := e.value(e.root, key)
	if value == nil {
		return nil, e.byHand(e.root, key)
	}
	l, ok := e.list(name, value)
	if !ok {
		return nil, e.byHand(value, key)
	}
	at := which(l)
	if at < 0 || at >= len(l.entries) {
		return nil, fault.New(fault.Internal, "%s: %q has no such entry", file, clip(key))
	}
	first, end := l.entries[at].first, l.end
	if at+1 < len(l.entries) {
		end = l.entries[at+1].first
	}
	end = max(e.contentEnd(end, l.indent+1), first+1)
	if len(l.entries) == 1 {
		line := e.lines[name.Line-1]
		colon := name.Column - 1 + len(key) + 1
		if len(line) < colon || line[colon-1] != ':' {
			return nil, e.byHand(name, key)
		}
		e.lines[name.Line-1] = line[:colon] + " " + empty + line[colon:]
	}
	return []byte(strings.Join(slices.Delete(e.lines, first, end), "")), nil
}

// withoutWord takes one of several words out of their list.
func (e editor) withoutWord(words *yaml.Node, at int, key string) ([]byte, error) {
	first, end, ok := e.span(words.Content[at])
	if !ok {
		return nil, e.byHand(words, key)
	}
	switch {
	case words.Style&yaml.FlowStyle == 0:
		line := words.Content[at].Line - 1
		return []byte(strings.Join(slices.Delete(e.lines, e.dash(line, words.Column-1), line+1), "")), nil
	case at+1 < len(words.Content): // with the comma that follows
		end, _, ok = e.span(words.Content[at+1])
	default: // with the comma before
		_, first, ok = e.span(words.Content[at-1])
	}
	if !ok {
		return nil, e.byHand(words, key)
	}
	return slices.Delete(bytes.Clone(e.text), first, end), nil
}

// span is where in the text a word of ASCII stands, with its quotes.
func (e editor) span(word *yaml.Node) (first, end int, ok bool) {
	for _, line := range e.lines[:word.Line-1] {
		first += len(line)
	}
	rest := e.text[first:]
	for range word.Column - 1 { // columns are characters
		_, size := utf8.DecodeRune(rest)
		first, rest = first+size, rest[size:]
	}
	for _, written := range []string{word.Value, `"` + word.Value + `"`, "'" + word.Value + "'"} {
		if bytes.HasPrefix(rest, []byte(written)) {
			return first, first + len(written), true
		}
	}
	return 0, 0, false
}
