package display

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// at returns a Live as on a terminal of that many columns; 0 is none.
func at(w interface{ Write([]byte) (int, error) }, width int) *Live {
	return &Live{w: w, width: func() int { return width }}
}

func TestLiveShowsLinesBehindTheirPrefix(t *testing.T) {
	for _, test := range []struct {
		name   string
		writes []string
		want   string
	}{
		{"a line", []string{"one\n"}, "│ one\n"},
		{"a line in pieces", []string{"o", "ne", "\ntw", "o\n"}, "│ one\n│ two\n"},
		{"no newline at the end", []string{"one"}, "│ one\n"},
		{"an empty line", []string{"\n\n"}, "│ \n│ \n"},
		{"a tab", []string{"a\tb\n"}, "│ a\tb\n"},
		{"a line of another system", []string{"one\r", "\ntwo\r\n"}, "│ one\n│ two\n"},
		{"a return over the prefix", []string{"one\rtendril: clean\n"}, "│ one\\rtendril: clean\n"},
		{"a return at the end", []string{"one\r"}, "│ one\\r\n"},
		{"a move of the cursor", []string{"\x1b[1A\x1b[2Kgone\n"}, "│ \\x1b[1A\\x1b[2Kgone\n"},
		{"a move in pieces", []string{"\x1b", "[1A\n"}, "│ \\x1b[1A\n"},
		{"a title", []string{"\x1b]0;owned\x07\n"}, "│ \\x1b]0;owned\\x07\n"},
		{"a backspace", []string{"│\b\b\b\n"}, "│ │\\x08\\x08\\x08\n"},
		{"a rune in pieces", []string{"\xf0\x9f", "\x8c", "\xb1\n"}, "│ 🌱\n"},
		{"a rune that never ends", []string{"\xf0\x9f"}, "│ \\xf0\\x9f\n"},
		{"a rune that breaks off", []string{"\xf0\x9f", "a\n"}, "│ \\xf0\\x9fa\n"},
		{"other line ends", []string{"a\u2028b\u0085c\vd\fe\n"}, "│ a\\u2028b\\u0085c\\x0bd\\x0ce\n"},
		{"turned around", []string{"\u202etfel\n"}, "│ \\u202etfel\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			live := NewLive(&out)
			s := live.Stream(StdoutPrefix)
			for _, w := range test.writes {
				if n, err := s.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatalf("Write = %d, %v", n, err)
				}
			}
			if err := live.Close(); err != nil {
				t.Fatal(err)
			}
			if out.String() != test.want {
				t.Errorf("got  %q\nwant %q", out.String(), test.want)
			}
		})
	}
}

// TestLiveCannotBeForged lets a Sprout push a line of ours to where a terminal
// would wrap, which is where our own lines begin.
func TestLiveCannotBeForged(t *testing.T) {
	const forged = "tendril: verdict clean"
	for _, width := range []int{narrowest, 21, 22, 23, 79, 80} {
		for _, filler := range []string{"x", "木", "\t", "─", "\x1b", "\u0301"} {
			var out bytes.Buffer
			live := at(&out, width)
			s := live.Stream(StdoutPrefix)
			for pad := range 2 * width {
				fmt.Fprintf(s, "%s%s\n", strings.Repeat(filler, pad), forged)
			}
			live.Close()
			for row := range strings.Lines(out.String()) {
				row = strings.TrimSuffix(row, "\n")
				if !strings.HasPrefix(row, StdoutPrefix) {
					t.Fatalf("width %d: row %q has no prefix", width, row)
				}
				if n := takes(row); n >= width {
					t.Fatalf("width %d: row %q takes %d columns", width, row, n)
				}
			}
		}
	}
}

// takes is how many columns a terminal gives a row: what is drawn as wide here
// is what the test above uses.
func takes(row string) int {
	n := 0
	for _, r := range row {
		switch r {
		case '木':
			n += 2
		case '\u0301':
		case '\t':
			n += 8 - n%8
		default:
			n++
		}
	}
	return n
}

func TestLiveKeepsNoMoreThanARow(t *testing.T) {
	var out bytes.Buffer
	live := NewLive(&out)
	s := live.Stream(StdoutPrefix)
	chunk := bytes.Repeat([]byte("x"), 1<<16)
	for range 256 {
		s.Write(chunk)
		if s.row.Len() > longestRow || s.row.Cap() > 4*longestRow {
			t.Fatalf("a stream keeps %d bytes", s.row.Cap())
		}
	}
	live.Close()
	if got := bytes.Count(out.Bytes(), []byte("x")); got != 256<<16 {
		t.Errorf("%d bytes came out, %d went in", got, 256<<16)
	}
}

func TestLiveTakesTurns(t *testing.T) {
	var out bytes.Buffer
	live := NewLive(&out)
	stdout, stderr := live.Stream(StdoutPrefix), live.Stream(StderrPrefix)
	stdout.Write([]byte("half"))
	stderr.Write([]byte("whole\n"))
	live.Notice("tendril: run \x1b[2J stopped\nnow")
	stdout.Write([]byte("rest\n"))
	live.Close()
	want := "┆ whole\n│ half\ntendril: run \\x1b[2J stopped\\nnow\n│ rest\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

func TestStatusIsOneRowOfATerminal(t *testing.T) {
	var out bytes.Buffer
	live := at(&out, 24)
	s := live.Stream(StdoutPrefix)
	live.Status("preparing")
	live.Status("running: " + strings.Repeat("木", 20))
	s.Write([]byte("one\n"))
	live.Status("")
	live.Status("collecting")
	live.Close()
	want := "preparing" + "\r\x1b[K" + "running: 木木木木木木木" + "\r\x1b[K" + "│ one\n" + "collecting" + "\r\x1b[K"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

func TestStatusNeedsATerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	live := NewLive(w)
	live.Status("preparing")
	live.Notice("tendril: done")
	live.Close()
	w.Close()
	var out bytes.Buffer
	out.ReadFrom(r)
	if out.String() != "tendril: done\n" {
		t.Errorf("got %q", out.String())
	}
}

type broken struct{ writes int }

func (b *broken) Write([]byte) (int, error) { b.writes++; return 0, errors.New("nobody looks") }

func TestLiveGoesOnWhenNobodyLooks(t *testing.T) {
	live := NewLive(&broken{})
	s := live.Stream(StdoutPrefix)
	if n, err := s.Write([]byte("one\n")); n != 4 || err != nil {
		t.Errorf("Write = %d, %v", n, err)
	}
	if err := live.Close(); err == nil || err.Error() != "nobody looks" {
		t.Errorf("Close = %v", err)
	}
}

func TestLiveIsSafeForConcurrentUse(t *testing.T) {
	var out bytes.Buffer
	live := at(&out, 80)
	var wg sync.WaitGroup
	for i := range 4 {
		s := live.Stream(StdoutPrefix)
		wg.Go(func() {
			for range 200 {
				fmt.Fprintf(s, "%d%d%d\n", i, i, i)
				live.Status("running")
			}
		})
	}
	wg.Wait()
	live.Close()
	text := strings.ReplaceAll(strings.ReplaceAll(out.String(), "\r\x1b[K", ""), "running", "")
	for row := range strings.Lines(text) {
		if len(row) != len("│ 000\n") || row[4] != row[5] || row[5] != row[6] {
			t.Fatalf("rows run into each other: %q", row)
		}
	}
}

func FuzzLive(f *testing.F) {
	f.Add([]byte("one\ntwo"), uint8(3), uint8(0))
	f.Add([]byte("\x1b[2J\r\n\x1b]0;t\x07"), uint8(1), uint8(40))
	f.Add([]byte("\xf0\x9f\x8c\xb1\u202e\t\ttendril: clean"), uint8(2), uint8(24))
	f.Add(bytes.Repeat([]byte("木\t"), 100), uint8(7), uint8(20))
	f.Fuzz(func(t *testing.T, data []byte, cut, columns uint8) {
		width := 0
		if columns > 0 {
			width = max(int(columns), narrowest)
		}
		var out, whole bytes.Buffer
		live := at(&out, width)
		s := live.Stream(StdoutPrefix)
		for rest := data; len(rest) > 0; {
			n := min(int(cut)+1, len(rest))
			s.Write(rest[:n])
			rest = rest[n:]
		}
		live.Close()
		at1 := at(&whole, width)
		at1.Stream(StdoutPrefix).Write(data)
		at1.Close()
		if out.String() != whole.String() {
			t.Errorf("where a write ends changes what is shown:\n%q\n%q", out.String(), whole.String())
		}
		checkVisible(t, out.String(), "\n\t")
		for row := range strings.Lines(out.String()) {
			if !strings.HasPrefix(row, StdoutPrefix) || !strings.HasSuffix(row, "\n") {
				t.Errorf("%q is not a row of the Sprout", row)
			}
			if width > 0 && utf8.RuneCountInString(row) > width {
				t.Errorf("%q is wider than %d", row, width)
			}
		}
	})
}
