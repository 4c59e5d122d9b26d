package sprout

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var leftOut = regexp.MustCompile(`(?s)^(.*)\n\[(\d+) bytes left out\]\n(.*)$`)

// TestExcerpt: it is short, valid, and made of the head and the tail, however it was
// written.
func TestExcerpt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(noteSize+2, 300).Draw(t, "limit")
		writes := rapid.SliceOf(rapid.OneOf(
			rapid.StringN(0, 400, -1),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 400), func(b []byte) string { return string(b) }),
		)).Draw(t, "writes")
		e := newExcerpt(limit)
		for _, w := range writes {
			if n, err := e.Write([]byte(w)); n != len(w) || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
		}
		if len(e.head) > limit || len(e.tail) > limit || cap(e.tail) > 8*limit {
			t.Fatalf("it holds %d and %d bytes", len(e.head), len(e.tail))
		}
		all, got := strings.Join(writes, ""), e.String()
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("%d bytes of at most %d, valid %t", len(got), limit, utf8.ValidString(got))
		}
		if got != clip(all, limit) {
			t.Fatal("it depends on how it was written")
		}
		if !utf8.ValidString(all) {
			return
		}
		if len(all) <= limit-noteSize-1 && got != all {
			t.Fatalf("%q became %q", all, got)
		}
		if got != all {
			m := leftOut.FindStringSubmatch(got)
			if m == nil {
				t.Fatalf("%q became %q", all, got)
			}
			left, _ := strconv.Atoi(m[2])
			lost := len(all) - left - len(m[1]) - len(m[3]) // of a character at each cut
			if !strings.HasPrefix(all, m[1]) || !strings.HasSuffix(all, m[3]) || lost < 0 || lost > 2*(utf8.UTFMax-1) {
				t.Fatalf("%q became %q", all, got)
			}
		}
	})
}

func TestStart(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"木木", 3, "木…"}, {"木木", 4, "木…"}, {"木木", 5, "木…"}, {"木木", 2, "…"}, {"", 0, ""}} {
		if got := start(test.text, test.limit); got != test.want {
			t.Errorf("start(%q, %d) = %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\nc \"'\\ 木": "a\tb\nc \"'\\ 木",
		"\x1b[2J\r\x00":   `\x1b[2J\r\x00`,
		"\u202e\u009b":    `\u202e\u009b`,
		"\xff\ufffd":      `\xff` + "\ufffd",
	} {
		if got := Plain(in); got != want {
			t.Errorf("Plain(%q) = %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for _, r := range Plain(rapid.String().Draw(t, "text")) {
			if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
				t.Fatalf("%U is shown as it is", r)
			}
		}
	})
}
