package sprout

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An excerpt is the head and the tail of what is written to it, in bounded memory
// however much that is. Where something fails it says so at the end; what it was about
// stands at the beginning.
type excerpt struct {
	half       int // bytes of the head, and of the tail
	head, tail []byte
	written    int64
}

// noteSize is room for the line that says how much was left out.
const noteSize = 64

// newExcerpt returns one whose text has at most limit bytes; limit is above noteSize.
func newExcerpt(limit int) *excerpt {
	return &excerpt{half: (limit - noteSize) / 2}
}

// Write never fails.
func (e *excerpt) Write(p []byte) (int, error) {
	n := len(p)
	e.written += int64(n)
	room := min(e.half-len(e.head), len(p))
	e.head = append(e.head, p[:room]...)
	e.tail = append(e.tail, p[room:][max(0, len(p)-room-e.half):]...)
	if over := len(e.tail) - e.half; over > e.half {
		e.tail = append(e.tail[:0], e.tail[over:]...)
	}
	return n, nil
}

// String returns valid UTF-8. A byte that is none of it becomes one question mark, and
// not U+FFFD, so that the bound holds for binary data too.
func (e *excerpt) String() string {
	tail := e.tail[max(0, len(e.tail)-e.half):]
	left := e.written - int64(len(e.head)) - int64(len(tail))
	if left == 0 {
		return strings.ToValidUTF8(string(e.head)+string(tail), "?")
	}
	head := wholeRunes(e.head)
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	return strings.ToValidUTF8(string(head), "?") +
		fmt.Sprintf("\n[%d bytes left out]\n", left) +
		strings.ToValidUTF8(string(tail), "?")
}

// wholeRunes takes a character that was cut in two from the end.
func wholeRunes(b []byte) []byte {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i]
			}
			break
		}
	}
	return b
}

// clip returns the text, or an excerpt of at most limit bytes.
func clip(text string, limit int) string {
	e := newExcerpt(limit)
	_, _ = e.Write([]byte(text))
	return e.String()
}

// start returns the text's first bytes, at most limit of them and whole characters.
func start(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return string(wholeRunes([]byte(text[:limit]))) + "…"
}

// Plain escapes what could steer a terminal, all but line feeds and tabs.
func Plain(text string) string {
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\n', r == '\t', unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// line is a text on one line, as far as it fits there.
func line(text string, limit int) string {
	return Plain(strings.Join(strings.Fields(start(text, limit)), " "))
}
