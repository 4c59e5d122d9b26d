package sprout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const readSchema = `{"type":"object","properties":{
"path":{"type":"string"},
"first_line":{"type":"integer","minimum":1,"description":"default 1"},
"lines":{"type":"integer","minimum":1,"description":"default 400"}},
"required":["path"],"additionalProperties":false}`

const writeSchema = `{"type":"object","properties":{
"path":{"type":"string"},"content":{"type":"string"}},
"required":["path","content"],"additionalProperties":false}`

const editSchema = `{"type":"object","properties":{
"path":{"type":"string"},
"old":{"type":"string","description":"the text as it is in the file, with its white space, without line numbers"},
"new":{"type":"string"}},
"required":["path","old","new"],"additionalProperties":false}`

const (
	maxFile      = 8 << 20 // bytes of a file that is looked at
	maxLine      = 1 << 10 // bytes of a line that are shown
	defaultLines = 400     // read's default
	binary       = 8 << 10 // where a zero byte says that a file is no text, as Git does
)

// open opens a regular file. Anything else could keep the reader for ever: a pipe is
// opened without waiting for its other end, and then refused.
func (w *workplace) open(name string, flag int) (*os.File, error) {
	f, err := w.root.OpenFile(name, flag|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, explained(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// explained says what os.Root means; its error has no value of its own to compare with.
func explained(err error) error {
	if strings.Contains(err.Error(), "escapes from parent") {
		return fmt.Errorf("%w: only the shell leaves the working directory", err)
	}
	return err
}

// content reads a whole file.
func (w *workplace) content(name string) ([]byte, error) {
	f, err := w.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes: use the shell", name, maxFile)
	}
	return text, nil
}

func isBinary(text []byte) bool {
	return bytes.IndexByte(text[:min(len(text), binary)], 0) >= 0
}

func (w *workplace) read(_ context.Context, input string) (string, error) {
	in := struct {
		Path  string `json:"path"`
		First int    `json:"first_line"`
		Lines int    `json:"lines"`
	}{First: 1, Lines: defaultLines}
	if err := decode(input, &in); err != nil {
		return "", err
	}
	if in.Path == "" || in.First < 1 || in.Lines < 1 {
		return "", badInput("read takes a path, and a first line and a number of lines from 1")
	}
	name, err := w.name(in.Path)
	if err != nil {
		return "", err
	}
	text, err := w.content(name)
	if err != nil {
		return "", err
	}
	if isBinary(text) {
		return "", fmt.Errorf("%s is no text: %d bytes", name, len(text))
	}
	var out strings.Builder
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if number < in.First {
			continue
		}
		shown := fmt.Sprintf("%d\t%s\n", number, clip(string(bytes.TrimRight(line, "\r\n")), maxLine))
		if number-in.First >= in.Lines || out.Len()+len(shown) > page {
			fmt.Fprintf(&out, "[more follows: first_line %d]", number)
			return out.String(), nil
		}
		out.WriteString(shown)
	}
	if out.Len() == 0 {
		return fmt.Sprintf("[the file has %d lines]", number), nil
	}
	return out.String(), nil
}

func (w *workplace) write(_ context.Context, input string) (string, error) {
	var in struct {
		Path    string  `json:"path"`
		Content *string `json:"content"`
	}
	if err := decode(input, &in); err != nil {
		return "", err
	}
	if in.Path == "" || in.Content == nil {
		return "", badInput("write takes a path and the content")
	}
	name, err := w.name(in.Path)
	if err != nil {
		return "", err
	}
	if dir := filepath.Dir(name); dir != "." {
		if err := w.root.MkdirAll(dir, 0o755); err != nil {
			return "", explained(err)
		}
	}
	if err := w.replace(name, []byte(*in.Content)); err != nil {
		return "", err
	}
	return fmt.Sprintf("wrote %d bytes", len(*in.Content)), nil
}

func (w *workplace) edit(_ context.Context, input string) (string, error) {
	var in struct {
		Path string  `json:"path"`
		Old  string  `json:"old"`
		New  *string `json:"new"`
	}
	if err := decode(input, &in); err != nil {
		return "", err
	}
	if in.Path == "" || in.Old == "" || in.New == nil {
		return "", badInput("edit takes a path, the old text and the new one")
	}
	name, err := w.name(in.Path)
	if err != nil {
		return "", err
	}
	text, err := w.content(name)
	if err != nil {
		return "", err
	}
	before, after, found := bytes.Cut(text, []byte(in.Old))
	if !found {
		return "", fmt.Errorf("the old text does not occur in %s: read the file again", name)
	}
	// The second may overlap the first, so the search goes on one byte later.
	if bytes.Contains(text[len(before)+1:], []byte(in.Old)) {
		return "", fmt.Errorf("the old text occurs more than once in %s: take more of what is around it", name)
	}
	edited := bytes.Join([][]byte{before, after}, []byte(*in.New))
	if err := w.replace(name, edited); err != nil {
		return "", err
	}
	return fmt.Sprintf("edited line %d", bytes.Count(before, []byte("\n"))+1), nil
}

// replace gives a file new content and leaves its mode.
func (w *workplace) replace(name string, content []byte) error {
	f, err := w.open(name, os.O_WRONLY|os.O_CREATE)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: the shell may change its mode", err)
	}
	if err != nil {
		return err
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.Write(content)
	}
	return errors.Join(err, f.Close())
}
