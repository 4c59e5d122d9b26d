package substrate

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tendril/fault"
)

// maxAlternates is how deep Git follows; here it bounds how many there are.
const maxAlternates = 5

// alternates returns the object directories of a repository: its own first,
// then all that it borrows from, however deep. Each must exist and belong to
// this account, so that nobody's objects become readable by naming them
// (measured: a planted alternates file leaks a host repository's objects).
func alternates(commonDir string) ([]string, error) {
	pending := []string{filepath.Join(commonDir, "objects")}
	var all []string
	for len(pending) > 0 {
		dir := pending[0]
		pending = pending[1:]
		if slices.Contains(all, dir) {
			continue
		}
		all = append(all, dir)
		if len(all) > maxAlternates+1 {
			return nil, fault.New(fault.Invalid, "%s borrows objects from more than %d places", commonDir, maxAlternates).
				WithHint("run git repack -a -d in it, then remove objects/info/alternates")
		}
		more, err := alternatesOf(dir)
		if err != nil {
			return nil, invalid(fmt.Errorf("%s borrows objects: %w", commonDir, err))
		}
		pending = append(pending, more...)
	}
	return all, nil
}

func alternatesOf(objects string) ([]string, error) {
	dir, err := openRoot(objects)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	st, err := dir.lstat(".")
	if err != nil {
		return nil, err
	}
	if err := checkOwner(objects, st); err != nil {
		return nil, err
	}
	if _, err := dir.lstat("info/http-alternates"); err == nil {
		return nil, fault.New(fault.Invalid, "%s/info/http-alternates names objects elsewhere", objects)
	}
	data, err := dir.readFile("info/alternates", maxSmallFile)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for line := range bytes.Lines(data) {
		path := strings.TrimSuffix(string(line), "\n")
		if path == "" || path[0] == '#' {
			continue
		}
		if path, err = unquoteAlternate(path); err != nil {
			return nil, fmt.Errorf("%s/info/alternates: %w", objects, err)
		}
		paths = append(paths, absoluteTo(objects, path))
	}
	return paths, nil
}

// unquoteAlternate reads a line of objects/info/alternates, which may be quoted
// like a C string.
func unquoteAlternate(line string) (string, error) {
	if line[0] == '"' {
		rest, ok := strings.CutSuffix(line[1:], `"`)
		if !ok {
			return "", errors.New("a quoted path does not end")
		}
		var b []byte
		for rest != "" {
			c, _, tail, err := strconv.UnquoteChar(rest, '"')
			if err != nil || c > 0xff && rest[0] == '\\' {
				return "", errors.New("a quoted path is malformed")
			}
			if rest[0] == '\\' {
				b = append(b, byte(c))
			} else {
				b = append(b, rest[:len(rest)-len(tail)]...)
			}
			rest = tail
		}
		line = string(b)
	}
	return parsePathLine([]byte(line))
}
