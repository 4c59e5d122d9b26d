package substrate

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds on the paths of a tree.
const (
	maxPath  = 4095 // PATH_MAX without its terminator
	maxName  = 255  // NAME_MAX
	maxDepth = 512
)

// checkPath refuses what cannot be a path of an entry at all. Nothing honest
// ever sends one.
func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("it is empty")
	case len(path) > maxPath:
		return fmt.Errorf("it has more than %d bytes", maxPath)
	case path[0] == '/':
		return errors.New("it is absolute")
	case strings.IndexByte(path, 0) >= 0:
		return errors.New("it holds a NUL byte")
	case strings.Count(path, "/") >= maxDepth:
		return fmt.Errorf("it is more than %d levels deep", maxDepth)
	}
	for name := range strings.SplitSeq(path, "/") {
		if err := checkComponent(name); err != nil {
			return err
		}
	}
	return nil
}

func checkComponent(name string) error {
	switch {
	case name == "":
		return errors.New("a component is empty")
	case name == "." || name == "..":
		return fmt.Errorf("a component is %q", name)
	case len(name) > maxName:
		return fmt.Errorf("a component has %d bytes, and at most %d are possible", len(name), maxName)
	}
	return nil
}

// refuseName says why an entry of a tree is not taken although its name is
// possible: some file system, or Git itself, would take it for Git's own. The
// answers are those of git-fsck(1), checked against it in the tests, and stricter
// where a backslash may be a separator. "" means that it is welcome.
func refuseName(name string, mode uint32) string {
	// NTFS takes a backslash for a separator.
	for part := range strings.SplitSeq(name, `\`) {
		if isNTFSDotGit(part) {
			return "some file system takes its name for .git"
		}
	}
	if isHFSDot(name, "git") {
		return "some file system takes its name for .git"
	}
	switch mode {
	case modeFile, modeExec:
		return ""
	case modeSymlink:
		if isDot(name, "gitmodules", "gi7eba") {
			return ".gitmodules is a symbolic link"
		}
		return "" // Git itself follows no .gitattributes that is one
	}
	if isDot(name, "gitmodules", "gi7eba") || isDot(name, "gitattributes", "gi7d29") {
		return "Git takes a file of that name for settings, and this is none"
	}
	return ""
}

// isDot reports whether some file system takes a name, or a part of it after a
// backslash, for "." + word. hash is what NTFS's hashed short names begin with.
func isDot(name, word, hash string) bool {
	for part := range strings.SplitSeq(name, `\`) {
		if isNTFSDot(part, word, hash) {
			return true
		}
	}
	return isHFSDot(name, word)
}

// isNTFSDotGit knows .git and its short name GIT~1, which NTFS also reaches with
// trailing dots and spaces, or with the name of a stream (CVE-2014-9390,
// CVE-2019-1352).
func isNTFSDotGit(name string) bool {
	for _, form := range []string{".git", "git~1"} {
		if rest, ok := cutPrefixFold(name, form); ok && onlyTrailer(rest) {
			return true
		}
	}
	return false
}

// isNTFSDot knows "." + word, its short names (of .gitmodules, GITMOD~1 to ~4), and
// the hashed short names that NTFS falls back to when those are taken.
func isNTFSDot(name, word, hash string) bool {
	if rest, ok := cutPrefixFold(name, "."+word); ok {
		return onlyTrailer(rest)
	}
	if rest, ok := cutPrefixFold(name, word[:6]+"~"); ok && rest != "" && rest[0] >= '1' && rest[0] <= '4' {
		return onlyTrailer(rest[1:])
	}
	if len(name) < 8 {
		return false
	}
	head, digits, ok := strings.Cut(name[:8], "~")
	if !ok || len(head) > 6 || !strings.EqualFold(head, hash[:len(head)]) {
		return false
	}
	if digits == "" || digits[0] == '0' || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	return onlyTrailer(name[8:])
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// onlyTrailer reports whether NTFS ignores what follows a name.
func onlyTrailer(s string) bool {
	s = strings.TrimLeft(s, ". ")
	return s == "" || s[0] == ':'
}

// isHFSDot reports whether HFS+, which folds case and passes over some
// invisible characters, takes a name for "." + word. As in Git, a byte that is
// not UTF-8 ends the name.
func isHFSDot(name, word string) bool {
	want := "." + word
	for name != "" {
		c, n := utf8.DecodeRuneInString(name)
		if c == utf8.RuneError && n == 1 {
			break
		}
		name = name[n:]
		switch {
		case c >= 0x200c && c <= 0x200f, c >= 0x202a && c <= 0x202e, c >= 0x206a && c <= 0x206f, c == 0xfeff:
			continue
		case c == '\\' && want == "": // a separator on Windows
			return true
		case want == "" || c > 127 || lower(byte(c)) != want[0]:
			return false
		}
		want = want[1:]
	}
	return want == ""
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// isOwnGit reports whether a path is in the .git that the base image holds.
func isOwnGit(path string) bool { return path == ".git" || strings.HasPrefix(path, ".git/") }
