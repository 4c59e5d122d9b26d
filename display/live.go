package display

import (
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// The prefixes of a Sprout's lines. No line of ours begins with either.
const (
	StdoutPrefix = "│ "
	StderrPrefix = "┆ "
)

// longestRow bounds the bytes of one row where there is no terminal whose width
// would.
const longestRow = 4096

// narrowest is the width below which rows are not broken any more: a terminal
// that says it is narrower says nothing useful.
const narrowest = 20

// Live shows what happens while it happens: lines of Sprouts, each behind its
// prefix, lines of ours, and on a terminal one status row below them. Each row
// of a Sprout is broken before a terminal would wrap it, because what a
// terminal wraps begins at the left edge, where our own lines begin.
//
// Live is safe for concurrent use. What it writes to is not to be written
// otherwise meanwhile. A write error is kept and returned by Close: that nobody
// looks any more does not end a run.
type Live struct {
	mu      sync.Mutex
	w       io.Writer
	width   func() int // columns of the terminal; 0 where there is none
	streams []*Stream
	status  bool // a status row is on the screen
	err     error
}

// NewLive returns a Live that writes to w. If w is a terminal, rows are broken
// to its width, and there is a status row.
func NewLive(w io.Writer) *Live {
	return &Live{w: w, width: func() int { return terminalWidth(w) }}
}

// terminalWidth is the number of columns of a terminal, and 0 for anything
// else.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil || columns < narrowest {
		return narrowest
	}
	return columns
}

// Stream returns a writer for what one source writes. Its rows begin with the
// prefix, which is ours and is written as it is.
func (l *Live) Stream(prefix string) *Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &Stream{live: l, prefix: prefix}
	l.streams = append(l.streams, s)
	return s
}

// Notice shows one line of ours. Text in it that came from elsewhere is escaped
// here as well.
func (l *Live) Notice(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	l.write(Line(line) + "\n")
}

// Status shows line as the status row, and takes the row away if line is empty.
// Where there is no terminal it does nothing.
func (l *Live) Status(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	width := l.width()
	if width == 0 {
		return
	}
	l.clearStatus()
	if line == "" {
		return
	}
	var b strings.Builder
	column := 0
	for _, r := range Line(line) {
		// The last column stays free: a terminal wraps when it is filled.
		if column += columns(r); column >= width {
			break
		}
		b.WriteRune(r)
	}
	l.emit(b.String())
	l.status = true
}

// Close shows what streams have not ended with a newline, takes the status row
// away, and returns the first error there was in writing.
func (l *Live) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	l.clearStatus()
	return l.err
}

// flush ends the row that each stream has begun.
func (l *Live) flush() {
	for _, s := range l.streams {
		s.endPartial()
	}
}

// clearStatus takes the status row off the screen (ECMA-48 EL).
func (l *Live) clearStatus() {
	if l.status {
		l.emit("\r\x1b[K")
		l.status = false
	}
}

// write writes whole rows above the status row. The row comes back with the
// next Status.
func (l *Live) write(rows string) {
	l.clearStatus()
	l.emit(rows)
}

func (l *Live) emit(s string) {
	if _, err := io.WriteString(l.w, s); err != nil && l.err == nil {
		l.err = err
	}
}

// Stream is one source's output. It is an [io.Writer] that never fails and
// keeps no more than one row.
type Stream struct {
	live   *Live
	prefix string
	row    strings.Builder // the row so far, without its prefix; escaped
	column int             // where it ends, at most
	split  []byte          // the beginning of a rune whose end has not come yet
	cr     bool            // a carriage return came last, and may belong to a newline
}

// Write shows whole rows at once and keeps the rest until it is one.
func (s *Stream) Write(p []byte) (int, error) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	width := s.live.width()
	var rows strings.Builder
	text := p
	if len(s.split) > 0 {
		text = append(s.split, p...)
		s.split = nil
	}
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			s.split = append([]byte(nil), text...) // three bytes at most
			break
		}
		r, size := utf8.DecodeRune(text)
		s.add(&rows, string(text[:size]), r, width)
		text = text[size:]
		if rows.Len() > 64<<10 { // a chunk of newlines grows by its prefixes
			s.live.write(rows.String())
			rows.Reset()
		}
	}
	if rows.Len() > 0 {
		s.live.write(rows.String())
	}
	return len(p), nil
}

// add puts one rune into the row, and the row into rows when it is whole.
func (s *Stream) add(rows *strings.Builder, encoded string, r rune, width int) {
	if s.cr {
		s.cr = false
		if r != '\n' { // alone it would go back to the left edge
			s.put(rows, `\r`, 2, width)
		}
	}
	switch {
	case r == '\n':
		s.endRow(rows)
	case r == '\r':
		s.cr = true
	case r == '\t' && width > 0:
		// As spaces: where a terminal's tab stops are is not ours to know.
		for range 8 - s.column%8 {
			s.put(rows, " ", 1, width)
		}
	case r == '\t':
		s.put(rows, "\t", 0, width)
	case isVisible(r) && (r != utf8.RuneError || len(encoded) > 1):
		s.put(rows, encoded, columns(r), width)
	default:
		var b strings.Builder
		writeRune(&b, encoded, r)
		s.put(rows, b.String(), b.Len(), width)
	}
}

// put appends what stands for one rune and takes so many columns at most.
func (s *Stream) put(rows *strings.Builder, text string, columns, width int) {
	// The last column stays free: a terminal wraps when it is filled.
	full := width > 0 && utf8.RuneCountInString(s.prefix)+s.column+columns >= width
	if full || s.row.Len()+len(text) > longestRow {
		s.endRow(rows)
	}
	s.row.WriteString(text)
	s.column += columns
}

func (s *Stream) endRow(rows *strings.Builder) {
	rows.WriteString(s.prefix)
	rows.WriteString(s.row.String())
	rows.WriteByte('\n')
	s.row.Reset()
	s.column = 0
}

// endPartial shows what has not become a row by itself. The lock is held.
func (s *Stream) endPartial() {
	var rows strings.Builder
	width := s.live.width()
	for _, b := range s.split {
		s.add(&rows, string([]byte{b}), utf8.RuneError, width)
	}
	s.split = nil
	if s.cr {
		s.cr = false
		s.put(&rows, `\r`, 2, width)
	}
	if s.row.Len() > 0 {
		s.endRow(&rows)
	}
	if rows.Len() > 0 {
		s.live.write(rows.String())
	}
}

// columns is the most columns that a visible rune takes. Below U+1100 nothing is wide
// (Unicode Standard Annex 11), nor are the ranges that programs draw with;
// anything else counts as wide, which at worst breaks a row early. A terminal
// that is set to show ambiguous characters as wide may still wrap a row.
func columns(r rune) int {
	switch {
	case r < 0x1100,
		r >= 0x2010 && r <= 0x2027, // punctuation
		r >= 0x2190 && r <= 0x22ff, // arrows and operators
		r >= 0x2500 && r <= 0x259f, // lines and blocks
		r >= 0x2800 && r <= 0x28ff: // Braille, of which spinners are made
		return 1
	default:
		return 2
	}
}
