// Package ignore answers as Git does whether an untracked path is ignored by the
// .gitignore files of its tree (gitignore(5)). It is pure: the caller walks the
// tree from the top and hands over the contents of the files.
//
// Patterns may come from an enemy. Every match takes time that is bounded by the
// product of the pattern's and the path's length; there is no backtracking. How
// many patterns there are is the caller's to bound.
//
// It knows the patterns of a tree alone: not info/exclude, not
// core.excludesFile, not core.ignoreCase, and not the index. That a tracked path
// is never ignored is the caller's to say.
package ignore

import (
	"bytes"
	"strings"
)

// Dir is a directory of a walk from the top down, with the rules that apply in
// it. A Dir does not change; it may be used from any goroutine.
type Dir struct {
	parent  *Dir
	path    string // relative to the top, with a slash at its end; "" is the top
	rules   []rule
	ignored bool
}

// Top starts a walk. gitignore is the content of the top's .gitignore, nil when
// there is none.
func Top(gitignore []byte) *Dir {
	return &Dir{rules: parse(gitignore)}
}

// Enter goes down into the directory name. gitignore is the content of its
// .gitignore. Git does not read that file in an ignored directory; there it makes
// no difference.
func (d *Dir) Enter(name string, gitignore []byte) *Dir {
	child := &Dir{parent: d, path: d.path + name + "/", ignored: d.Ignored(name, true)}
	if !child.ignored {
		child.rules = parse(gitignore)
	}
	return child
}

// Ignored reports whether the entry name of the directory is ignored when it is
// not tracked. Everything beneath an ignored directory is.
func (d *Dir) Ignored(name string, isDir bool) bool {
	if d.ignored {
		return true
	}
	path := d.path + name
	for at := d; at != nil; at = at.parent {
		beneath := path[len(at.path):]
		for i := len(at.rules) - 1; i >= 0; i-- {
			if r := &at.rules[i]; r.match(beneath, name, isDir) {
				return !r.include
			}
		}
	}
	return false
}

// rule is one line of a .gitignore.
type rule struct {
	include bool // !pattern
	dirOnly bool // pattern/
	base    bool // the pattern has no other slash: it is compared with the last name alone
	literal string
	glob    []token // after literal; nil: the literal is all
	least   int     // bytes that glob needs
	never   bool    // a pattern that nothing matches
}

// parse reads the lines of a .gitignore, whose strange cases are Git's own: see
// add_patterns_from_buffer and parse_path_pattern in its dir.c.
func parse(file []byte) []rule {
	var rules []rule
	file = bytes.TrimPrefix(file, []byte("\xef\xbb\xbf"))
	for len(file) > 0 {
		line, rest, _ := bytes.Cut(file, []byte("\n"))
		file = rest
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		line, _, _ = bytes.Cut(line, []byte{0}) // Git's strings end there
		if r := newRule(trimSpaces(string(line))); !r.never {
			rules = append(rules, r)
		}
	}
	return rules
}

// trimSpaces removes the spaces at the end that no backslash quotes.
func trimSpaces(s string) string {
	end := len(s)
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			if end == len(s) {
				end = i
			}
			continue
		case '\\':
			i++
			if i == len(s) {
				return s
			}
		}
		end = len(s)
	}
	return s[:end]
}

func newRule(p string) rule {
	var r rule
	p, r.include = strings.CutPrefix(p, "!")
	p, r.dirOnly = strings.CutSuffix(p, "/")
	r.base = !strings.Contains(p, "/")
	if !r.base {
		p = strings.TrimPrefix(p, "/")
	}
	// Git compares what comes before the first special character literally and
	// gives only the rest to its matcher, for which it is the start.
	n := strings.IndexAny(p, `*?[\`)
	switch {
	case n < 0:
		r.literal = p
		r.never = p == ""
	case r.base:
		r.glob, r.least, r.never = compile(p, false)
	default:
		r.literal = p[:n]
		r.glob, r.least, r.never = compile(p[n:], true)
	}
	return r
}

// match compares the rule with a path beneath its directory, whose last name is
// name.
func (r *rule) match(path, name string, isDir bool) bool {
	if r.dirOnly && !isDir {
		return false
	}
	if r.base {
		path = name
	}
	if r.glob == nil {
		return path == r.literal
	}
	rest, ok := strings.CutPrefix(path, r.literal)
	return ok && len(rest) >= r.least && matchGlob(r.glob, rest)
}
