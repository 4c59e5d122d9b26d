package sprout

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func all(r io.Reader) (list []event, err error) {
	e := newEvents(r)
	for {
		ev, err := e.next()
		if err != nil {
			return list, err
		}
		list = append(list, ev)
	}
}

func TestEvents(t *testing.T) {
	one := []event{{"", []byte("a")}}
	for _, test := range []struct {
		name, stream string
		want         []event
	}{
		{"nothing", "", nil},
		{"LF", "data: a\n\n", one},
		{"CR", "data: a\r\r", one},
		{"CRLF", "data: a\r\n\r\n", one},
		{"mixed", "data: a\r\ndata:b\n\rdata:c\n\n", []event{{"", []byte("a\nb")}, {"", []byte("c")}}},
		{"a mark at the start", "\ufeffdata: a\n\n", one},
		{"a mark later is text", "\n\ufeffdata: a\n\n", nil},
		{"a name", "event: x\ndata: a\n\n", []event{{"x", []byte("a")}}},
		{"a name alone is no event, and forgotten", "event: x\n\ndata: a\n\n", one},
		{"one space is taken", "data:  a \n\n", []event{{"", []byte(" a ")}}},
		{"empty data", "data\n\ndata:\n\n", []event{{"", nil}, {"", nil}}},
		{"comments and unknown fields", ": ping\nid: 1\nretry: 5\nfoo\ndata: a\n\n", one},
		{"case counts", "Data: b\ndata: a\n\n", one},
		{"cut off before the blank line", "data: a\n\ndata: b\n", one},
		{"cut off within a line", "data: a\n\ndata: b", one},
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(test.stream), "by bytes": iotest.OneByteReader(strings.NewReader(test.stream))} {
			got, err := all(r)
			if err != io.EOF || len(got) != len(test.want) {
				t.Errorf("%s, %s: %q, %v", test.name, name, got, err)
				continue
			}
			for i := range got {
				if got[i].name != test.want[i].name || !bytes.Equal(got[i].data, test.want[i].data) {
					t.Errorf("%s, %s: %q, want %q", test.name, name, got, test.want)
				}
			}
		}
	}
}

// endless repeats a text for ever.
type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

func TestEventsAreBounded(t *testing.T) {
	for _, stream := range []string{"x", "data: a\n", "data\n", ": ping\n"} {
		e := newEvents(endless(stream))
		if _, err := e.next(); !errors.Is(err, errEndless) || maxStream-e.left > 2*maxEvent {
			t.Errorf("%q for ever: %v after %d bytes", stream, err, maxStream-e.left)
		}
	}
	for _, stream := range []string{": ping\n\n", "data: a\n\n", "\n", "\r\n"} {
		e := newEvents(endless(stream))
		e.left = 10_000
		var err error
		for err == nil {
			_, err = e.next()
		}
		if !errors.Is(err, errEndless) {
			t.Errorf("%q for ever: %v", stream, err)
		}
	}
	whole := errors.New("reset")
	if _, err := all(io.MultiReader(strings.NewReader("data: a\n"), iotest.ErrReader(whole))); !errors.Is(err, whole) {
		t.Errorf("a stream that was reset: %v", err)
	}
}

// FuzzEvents: any bytes are read in bounds, in the same way whatever pieces they come in,
// and no event holds what could end a line.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{"data: a\r\n\r\n", "\ufeffevent: x\ndata: a\rdata:b\n\n", ":\n\n\rdata\r\n\n", anthropicStream(shell("ls")), openAIStream(words("x"))} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		got, err := all(bytes.NewReader(stream))
		if err == nil {
			t.Fatal("it has no end")
		}
		pieces, again := all(iotest.OneByteReader(bytes.NewReader(stream)))
		if !reflect.DeepEqual(got, pieces) || again != err {
			t.Errorf("whole it is %q, %v, in pieces %q, %v", got, err, pieces, again)
		}
		for _, e := range got {
			if strings.ContainsAny(e.name, "\r\n") || bytes.ContainsRune(e.data, '\r') || len(e.data) > len(stream) {
				t.Errorf("an event is %q", e)
			}
		}
	})
}

// FuzzAnswers: whatever a server streams, there is a turn that may be repeated, or a
// failure of a known kind.
func FuzzAnswers(f *testing.F) {
	two := reply{text: "x", calls: []call{{"a", "shell", `{"command":"ls"}`}, {"b", "read", `{"path":"x"}`}}}
	for _, r := range []reply{shell("ls"), words("done"), two, {text: "x", stop: "because"}} {
		f.Add(anthropicStream(r))
		f.Add(openAIStream(r))
	}
	f.Add(`data: {"type":"error","error":{"type":"overloaded_error","message":"x"}}` + "\n\n")
	f.Add(`data: {"error":{"code":"insufficient_quota","message":1}}` + "\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		messages := &anthropicAnswer{blocks: map[int]int{}}
		completions := &openAIAnswer{}
		for _, answer := range []struct {
			take func(event) (bool, error)
			turn func(bool) (turn, error)
		}{{messages.take, messages.turn}, {completions.take, completions.turn}} {
			said, err := read(strings.NewReader(stream), answer.take, answer.turn)
			var failed *failure
			switch {
			case err == nil:
			case !errors.As(err, &failed) && err != io.EOF && !errors.Is(err, errEndless):
				t.Fatalf("it ended with %v", err)
			}
			seen := map[string]bool{}
			for _, c := range said.calls {
				if seen[c.id] || !wellFormed.MatchString(c.id) || !wellFormed.MatchString(c.name) || !(call{input: repeatable(c.input)}).object() {
					t.Errorf("a call is %+v", c)
				}
				seen[c.id] = true
			}
		}
	})
}

func read(r io.Reader, take func(event) (bool, error), finish func(bool) (turn, error)) (turn, error) {
	stream := newEvents(r)
	for {
		ev, err := stream.next()
		if err != nil {
			return turn{}, err
		}
		if whole, err := take(ev); err != nil {
			return turn{}, err
		} else if whole {
			return finish(false)
		}
	}
}

func TestPause(t *testing.T) {
	if err := pause(t.Context(), 0); err != nil {
		t.Error(err)
	}
	why := errors.New("told to end")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := pause(ctx, time.Hour); !errors.Is(err, why) {
		t.Errorf("it ended with %v", err)
	}
}
