package substrate

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shellSyntax is what makes a command more than words between blanks.
const shellSyntax = "'\"\\$*?[{`;|&<>()#\n"

// spelled returns the changed path of which a component may stand in a command that
// has shell syntax: as a word or a part of one, whatever is quoted, or by a pattern.
// What the shell would make of the command is not asked, and cannot be known.
// Too much is refused rather than too little.
func (t touched) spelled(command string) string {
	if !strings.ContainsAny(command, shellSyntax) {
		return ""
	}
	command = strings.ToLower(command)
	plain := strings.NewReplacer("'", "", `"`, "", "\\\n", "", `\`, "").Replace(command)
	patterns := strings.FieldsFunc(strings.NewReplacer("$*", "", "$?", "").Replace(plain), func(c rune) bool {
		return unicode.IsSpace(c) || strings.ContainsRune("/;|&<>(){},=`", c)
	})
	for component, hit := range t.components {
		if hasWordPart(command, component) || hasWordPart(plain, component) {
			return hit
		}
		for _, p := range patterns {
			if !strings.ContainsAny(p, "*?[") {
				continue
			}
			if matches, err := path.Match(p, component); err == nil && matches {
				return hit
			}
		}
	}
	return ""
}

// hasWordPart reports whether a name occurs with no letter, digit or underscore
// before and after it.
func hasWordPart(text, name string) bool {
	inWord := func(c rune, size int) bool { // size 0: there is nothing
		return size > 0 && (c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c))
	}
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		at += i
		if !inWord(utf8.DecodeLastRuneInString(text[:at])) && !inWord(utf8.DecodeRuneInString(text[at+len(name):])) {
			return true
		}
		at++
	}
}
