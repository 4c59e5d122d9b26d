package sprout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxResult bounds what the model gets back from one call, in bytes.
const maxResult = 16 << 10

// page is how much of it a tool fills; a note of its own follows.
const page = maxResult - 2*noteSize

// A tool is what the model may call. The schema is JSON Schema, as both providers want
// it. An error of do is told to the model; it is an inputError when the input is not what
// the schema says.
type tool struct {
	name, about, schema string
	do                  func(ctx context.Context, input string) (string, error)
}

type inputError struct{ err error }

func (e inputError) Error() string { return e.err.Error() }

func badInput(format string, args ...any) error { return inputError{fmt.Errorf(format, args...)} }

// A workplace is the directory that the tools work in. read, write, edit and search stay
// in it, whatever links there are; the shell does what the Terrarium permits.
type workplace struct {
	dir  string
	root *os.Root
}

func openWorkplace(dir string) (*workplace, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &workplace{dir, root}, nil
}

func (w *workplace) close() { _ = w.root.Close() }

func (w *workplace) tools() []tool {
	return []tool{
		{"shell", "Run a command with sh -c in the working directory. The result is what it wrote to stdout and stderr together, its middle left out when it is long, and its exit status. stdin is empty.", shellSchema, w.shell},
		{"read", "Read lines of a text file; each is shown after its number and a tab.", readSchema, w.read},
		{"write", "Create a file, or replace the whole of it. Directories on the way are made.", writeSchema, w.write},
		{"edit", "Replace a text that occurs exactly once in a file.", editSchema, w.edit},
		{"search", "Find the lines of files that match a regular expression (RE2). Looks at the files beneath a directory, less .git and what Git ignores.", searchSchema, w.search},
	}
}

// name is a path as the model wrote it, relative to the working directory. That it
// stays inside is for os.Root to see to.
func (w *workplace) name(path string) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", badInput("the path has a zero byte")
	}
	if !filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	name, err := filepath.Rel(w.dir, path)
	if err != nil {
		return "", badInput("%w", err)
	}
	return name, nil
}

// decode reads a tool's input strictly: a model that misspells a field is told so.
func decode(input string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(input))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return badInput("the input is not what the tool takes: %w", err)
	}
	return nil
}

// perform does one call. It reports whether the call made sense, done well or not.
func perform(ctx context.Context, tools []tool, c call) (r result, sense bool) {
	if !c.object() {
		return result{"the input is no JSON object: " + start(c.input, kept), true}, false
	}
	for _, t := range tools {
		if t.name != c.name {
			continue
		}
		text, err := t.do(ctx, c.input)
		var input inputError
		if err != nil {
			return result{clip(err.Error(), maxResult), true}, !errors.As(err, &input)
		}
		return result{clip(text, maxResult), false}, true
	}
	return result{fmt.Sprintf("there is no tool %q", c.name), true}, false
}

// subject is what a call is about, for a person.
func (c call) subject() string {
	var input struct{ Command, Path, Pattern string }
	_ = json.Unmarshal([]byte(c.input), &input)
	return strings.TrimSpace(strings.Join([]string{input.Command, input.Pattern, input.Path}, " "))
}
