// Package display shows things to a person at a terminal.
//
// It promises that hostile text stays text: whatever a Sprout, a repository or
// another machine wrote comes out without a control character, without
// bidirectional or invisible characters and without invalid bytes, each replaced
// by a visible escape; and that [Live] output can neither move the cursor nor
// look like a line of ours. It does not guard against letters that look alike,
// nor against what text says.
package display

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with everything that is not plainly visible text replaced by an
// escape, but for newline and tab: control characters as \x1b, bidirectional,
// invisible, private and unassigned characters and every space but U+0020 as
// \u202e, invalid bytes as \xff, a carriage return as \r. It is for text of several lines,
// such as a diff. Applied twice it does what it does once; a backslash is left alone, so
// the result cannot be turned back: use [Quote] where that matters.
func Text(s string) string {
	return escape(s, "\n\t")
}

// Line is [Text] for what must stay on one line: newline and tab are escaped
// too.
func Line(s string) string {
	return escape(s, "")
}

// Quote returns s escaped and in double quotes, such that different strings
// never look the same.
func Quote(s string) string {
	return `"` + Line(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)) + `"`
}

func escape(s, keep string) string {
	if visible(s) { // the ordinary case costs no copy
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if size == 1 && strings.IndexByte(keep, s[0]) >= 0 {
			b.WriteByte(s[0])
		} else {
			writeRune(&b, s[:size], r)
		}
		s = s[size:]
	}
	return b.String()
}

func visible(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// writeRune writes one rune, or what stands for it. encoded is its own bytes,
// or the one byte that is none.
func writeRune(b *strings.Builder, encoded string, r rune) {
	switch {
	case r == utf8.RuneError && len(encoded) == 1:
		fmt.Fprintf(b, `\x%02x`, encoded[0])
	case isVisible(r):
		b.WriteString(encoded)
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\r':
		b.WriteString(`\r`)
	case r == '\t':
		b.WriteString(`\t`)
	case r < 0x80:
		fmt.Fprintf(b, `\x%02x`, r)
	case r <= 0xffff:
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		fmt.Fprintf(b, `\U%08x`, r)
	}
}

// blank lists characters that Unicode counts as letters, marks or symbols and
// that show nothing. Together with the categories that unicode.IsPrint leaves
// out they are what can hide in a line: CVE-2021-42574 used the bidirectional
// ones, and variation selectors have carried whole programs.
var blank = []*unicode.RangeTable{
	unicode.Other_Default_Ignorable_Code_Point, // fillers, the grapheme joiner
	unicode.Variation_Selector,
	{R16: []unicode.Range16{
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // Braille without dots
		{Lo: 0xfffc, Hi: 0xfffc, Stride: 1}, // stands for an object that is not there
	}},
}

func isVisible(r rune) bool {
	if r < 0x80 {
		return r >= ' ' && r <= '~'
	}
	return unicode.IsPrint(r) && !unicode.In(r, blank...)
}
