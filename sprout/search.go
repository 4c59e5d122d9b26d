package sprout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"tendril/ignore"
)

const searchSchema = `{"type":"object","properties":{
"pattern":{"type":"string"},
"path":{"type":"string","description":"a directory or a file; default: everything"},
"files":{"type":"string","description":"only files whose name matches, such as *.go"}},
"required":["pattern"],"additionalProperties":false}`

const (
	maxPattern = 1 << 10
	maxFound   = 200
	maxWalked  = 100_000 // entries of directories
	maxShown   = 300     // bytes of a line that matches
	searchTime = 30 * time.Second
)

// errEnough ends a search before its end.
var errEnough = errors.New("the search is cut short: narrow it down")

type finder struct {
	*workplace
	pattern *regexp.Regexp
	files   string // a pattern of path.Match; "" matches all
	out     strings.Builder
	found   int
	walked  int
}

func (w *workplace) search(ctx context.Context, input string) (string, error) {
	var in struct {
		Pattern string `json:"pattern"`
		Path    string `json:"path"`
		Files   string `json:"files"`
	}
	if err := decode(input, &in); err != nil {
		return "", err
	}
	if in.Pattern == "" || len(in.Pattern) > maxPattern {
		return "", badInput("search takes a pattern of 1 to %d bytes", maxPattern)
	}
	pattern, err := regexp.Compile(in.Pattern)
	if err != nil {
		return "", badInput("%w", err)
	}
	if _, err := path.Match(in.Files, ""); err != nil {
		return "", badInput("files: %w", err)
	}
	name, err := w.name(in.Path)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, searchTime, errEnough)
	defer cancel()
	f := &finder{workplace: w, pattern: pattern, files: in.Files}
	err = f.from(ctx, name)
	switch {
	case errors.Is(err, errEnough):
		fmt.Fprintf(&f.out, "[%v]", errEnough)
	case err != nil:
		return "", explained(err)
	case f.found == 0:
		return "[nothing matches]", nil
	}
	return f.out.String(), nil
}

// from searches a file, or the directory with the ignore rules that apply there.
func (f *finder) from(ctx context.Context, name string) error {
	info, err := f.root.Stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return f.file(name)
	}
	dir, at := ignore.Top(f.rules(".")), "."
	if name != "." {
		for part := range strings.SplitSeq(filepath.ToSlash(name), "/") {
			at = path.Join(at, part)
			if dir.Ignored(part, true) {
				dir = ignore.Top(nil) // who names it wants to see it
				break
			}
			dir = dir.Enter(part, f.rules(at))
		}
	}
	return f.directory(ctx, name, dir)
}

// rules are those of a directory, none when they cannot be read.
func (f *finder) rules(dir string) []byte {
	text, err := f.content(path.Join(dir, ".gitignore"))
	if err != nil {
		return nil
	}
	return text
}

func (f *finder) directory(ctx context.Context, name string, rules *ignore.Dir) error {
	entries, err := fs.ReadDir(f.root.FS(), filepath.ToSlash(name))
	if err != nil {
		return nil // what may not be read is not found
	}
	for _, e := range entries {
		if f.walked++; f.walked > maxWalked {
			return errEnough
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		inside := path.Join(name, e.Name())
		switch {
		case e.Name() == ".git" || rules.Ignored(e.Name(), e.IsDir()):
		case e.IsDir():
			err = f.directory(ctx, inside, rules.Enter(e.Name(), f.rules(inside)))
		case e.Type().IsRegular():
			err = f.file(inside)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *finder) file(name string) error {
	if match, _ := path.Match(f.files, path.Base(name)); !match && f.files != "" {
		return nil
	}
	text, err := f.content(name)
	if err != nil || isBinary(text) {
		return nil
	}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimRight(line, "\r\n")
		if !f.pattern.Match(line) {
			continue
		}
		shown := fmt.Sprintf("%s:%d: %s\n", name, number, clip(string(line), maxShown))
		if f.found == maxFound || f.out.Len()+len(shown) > page {
			return errEnough
		}
		f.found++
		f.out.WriteString(shown)
	}
	return nil
}
