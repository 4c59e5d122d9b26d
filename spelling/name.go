package spelling

import (
	"strings"

	"tendril/fault"
)

// LongestName is the most bytes that a name may have, as in a label of DNS (RFC 1035,
// section 2.3.4).
const LongestName = 63

// CheckName refuses what is not the canonical form of a name: groups of lower case
// ASCII letters and digits, joined by single hyphens, of at most [LongestName] bytes.
// There is one spelling of each name and it is compared byte by byte, so that no two
// names can be taken for each other by a file system, a terminal or a person. Nothing
// is folded; the fault, of the kind invalid, names the spelling that folding would give
// where that is no guess. what says whose name it is, such as "Pollen".
func CheckName(what, name string) error {
	if isCanonical(name) {
		return nil
	}
	refused := fault.New(fault.Invalid, "%q is not the name of a %s", clip(name), what).
		WithRule("names are lower case letters a to z and digits, in groups joined by single hyphens, at most 63 bytes")
	if folded := fold(name); isCanonical(folded) {
		return refused.WithHint("did you mean %q?", folded)
	}
	return refused.WithHint("write something like ci-docs")
}

func isCanonical(name string) bool {
	if len(name) > LongestName {
		return false
	}
	for group := range strings.SplitSeq(name, "-") {
		if group == "" || strings.Trim(group, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return false
		}
	}
	return true
}

// fold returns what a person may have meant with ASCII in another case or with other
// punctuation, and "" for what it would have to guess: characters beyond ASCII, which
// may look like others, and control characters.
func fold(name string) string {
	if len(name) > 4*LongestName {
		return ""
	}
	var folded strings.Builder
	hyphen := false
	for _, c := range []byte(name) {
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c < ' ' || c > '~':
			return ""
		case (c < 'a' || c > 'z') && (c < '0' || c > '9'):
			hyphen = true
			continue
		}
		if hyphen && folded.Len() > 0 {
			folded.WriteByte('-')
		}
		hyphen = false
		folded.WriteByte(c)
	}
	return folded.String()
}

// clip bounds what an error repeats of a name.
func clip(s string) string {
	if len(s) > LongestName+1 {
		return s[:LongestName+1] + "…"
	}
	return s
}
