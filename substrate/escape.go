package substrate

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes text of a repository or a Sprout fit to be shown: control
// characters, bidirectional and other invisible characters and bytes that are
// not UTF-8 become visible \x, \u and \U forms. A tab stays. A backslash that
// would read as such a form is doubled.
func Escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\t':
			b.WriteByte('\t')
		case r == '\\' && len(s) > 1 && strings.IndexByte(`xuU\`, s[1]) >= 0:
			b.WriteString(`\\`)
		case !hidden(r):
			b.WriteString(s[:n])
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// hidden reports whether a character can deceive a reader: controls (Cc), the
// format characters (Cf), among them all bidirectional ones (CVE-2021-42574)
// and tags, line and paragraph separators, and what has no assigned look.
func hidden(r rune) bool {
	if r < 0x7f {
		return r < 0x20
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs, unicode.Variation_Selector) ||
		r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0 // fillers that show as nothing
}
