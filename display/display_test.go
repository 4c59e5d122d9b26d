package display

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, test := range []struct{ in, text, line string }{
		{"plain text ~", "plain text ~", "plain text ~"},
		{"grün 木 — ☃ 🌱", "grün 木 — ☃ 🌱", "grün 木 — ☃ 🌱"},
		{"a\n\tb", "a\n\tb", `a\n\tb`},
		{"a\r\nb\rc", "a\\r\nb\\rc", `a\r\nb\rc`},
		{"\x1b[2J\x1b]0;title\x07", `\x1b[2J\x1b]0;title\x07`, `\x1b[2J\x1b]0;title\x07`},
		{"\x00\b\x7f", `\x00\x08\x7f`, `\x00\x08\x7f`},
		{"\u009b31m", `\u009b31m`, `\u009b31m`}, // C1 CSI
		{"\x9b31m", `\x9b31m`, `\x9b31m`},       // the same as one invalid byte
		{"bad \xff\xc3", `bad \xff\xc3`, `bad \xff\xc3`},
		{"\xed\xa0\x80", `\xed\xa0\x80`, `\xed\xa0\x80`}, // a surrogate
		{"\ufffd", "\ufffd", "\ufffd"},                   // the character itself is text
		{"a\u202eb\u2066c\u2069", `a\u202eb\u2066c\u2069`, `a\u202eb\u2066c\u2069`},
		{"\u200e\u200f\u061c", `\u200e\u200f\u061c`, `\u200e\u200f\u061c`},
		{"zero\u200bwidth\u2060\ufeff\u00ad", `zero\u200bwidth\u2060\ufeff\u00ad`, `zero\u200bwidth\u2060\ufeff\u00ad`},
		{"\u2028\u2029\u0085", `\u2028\u2029\u0085`, `\u2028\u2029\u0085`},
		{"tag \U000e0041 vs \ufe01\U000e0101", `tag \U000e0041 vs \ufe01\U000e0101`, `tag \U000e0041 vs \ufe01\U000e0101`},
		{"\u115f\u1160\u3164\uffa0\u034f", `\u115f\u1160\u3164\uffa0\u034f`, `\u115f\u1160\u3164\uffa0\u034f`},
		{"\u00a0\u3000\u2800", `\u00a0\u3000\u2800`, `\u00a0\u3000\u2800`},
		{"\ue000\U0010ffff", `\ue000\U0010ffff`, `\ue000\U0010ffff`}, // private use, noncharacter
	} {
		if got := Text(test.in); got != test.text {
			t.Errorf("Text(%q) = %q, want %q", test.in, got, test.text)
		}
		if got := Line(test.in); got != test.line {
			t.Errorf("Line(%q) = %q, want %q", test.in, got, test.line)
		}
	}
}

// TestEveryRune holds each code point against Unicode's own properties.
func TestEveryRune(t *testing.T) {
	hidden := []*unicode.RangeTable{unicode.C, unicode.Z, unicode.Bidi_Control, unicode.Join_Control,
		unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point, unicode.White_Space}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r >= 0xd800 && r <= 0xdfff {
			continue // not encodable
		}
		shown := Line(string(r)) == string(r)
		if shown && r != ' ' && unicode.In(r, hidden...) {
			t.Errorf("%U is shown as it is", r)
		}
		if !shown && unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && !unicode.In(r, blank...) {
			t.Errorf("%U is escaped", r)
		}
	}
}

func TestQuoteTellsStringsApart(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"", `\x1b`, "\x1b", `\\x1b`, `"`, `\"`, "\n", `\n`, "\xff", `\xff`, "\u202e", `\u202e`} {
		quoted := Quote(s)
		if other, ok := seen[quoted]; ok {
			t.Errorf("%q and %q are both shown as %s", s, other, quoted)
		}
		seen[quoted] = s
	}
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "plain", "\x1b[31m", "\u202e", "a\r\nb", "\xff\xfe", "\U000e0041", `\x1b`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, got := range map[string]string{"Text": Text(s), "Line": Line(s), "Quote": Quote(s)} {
			allowed := ""
			if name == "Text" {
				allowed = "\n\t"
			}
			checkVisible(t, got, allowed)
		}
		if once := Text(s); Text(once) != once {
			t.Errorf("Text changes its own result %q", once)
		}
		if once := Line(s); Line(once) != once {
			t.Errorf("Line changes its own result %q", once)
		}
	})
}

// checkVisible fails if s holds anything that a terminal acts on or hides.
func checkVisible(t *testing.T, s, allowed string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Errorf("%q is not valid UTF-8", s)
	}
	for _, r := range s {
		if strings.ContainsRune(allowed, r) {
			continue
		}
		if unicode.In(r, unicode.C, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			t.Errorf("%q holds %U", s, r)
		}
	}
}

func TestSize(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB",
		1<<20 - 1: "1 MiB", 1 << 20: "1 MiB", 1023 << 10: "1023 KiB", 4 << 30: "4 GiB",
		10_737_418_240: "10 GiB", -2048: "-2 KiB", math.MaxInt64: "8 EiB", math.MinInt64: "-8 EiB",
	} {
		if got := Size(bytes); got != want {
			t.Errorf("Size(%d) = %q, want %q", bytes, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                           "0 ms",
		812 * time.Millisecond:      "812 ms",
		999_600 * time.Microsecond:  "1.0 s",
		4200 * time.Millisecond:     "4.2 s",
		59_960 * time.Millisecond:   "1 m 00 s",
		187 * time.Second:           "3 m 07 s",
		2*time.Hour + 5*time.Minute: "2 h 05 m",
		76 * time.Hour:              "3 d 04 h",
		-4200 * time.Millisecond:    "-4.2s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) = %q, want %q", d, got, want)
		}
	}
}
