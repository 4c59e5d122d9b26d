package sprout

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// A model answers to what has happened so far. It keeps nothing between two calls. Its
// errors are failures, or the context's.
type model interface {
	next(ctx context.Context, h *history) (turn, error)
}

// A turn is one whole answer.
type turn struct {
	text  string
	calls []call
	cut   bool // the answer ended at the limit of its length
}

// A call is what the model wants to be done. Its input is a JSON text only if valid says
// so; nothing else of it is checked yet.
type call struct {
	id, name string
	input    string
}

// object reports whether the input is one JSON object.
func (c call) object() bool {
	return strings.HasPrefix(strings.TrimLeft(c.input, " \t\r\n"), "{") && json.Valid([]byte(c.input))
}

// Bounds of one answer.
const (
	maxAnswer = 256 << 10 // bytes of text and inputs together
	maxCalls  = 32
)

// What the providers accept when they get a call back in the history.
var wellFormed = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// A draft is an answer while it streams in.
type draft struct {
	text  strings.Builder
	calls []openCall
	size  int
}

type openCall struct {
	id, name string
	input    strings.Builder
}

func (d *draft) grow(n int) error {
	if d.size += n; d.size > maxAnswer {
		return garbage("the answer is longer than %d bytes", maxAnswer)
	}
	return nil
}

func (d *draft) say(text string) error {
	d.text.WriteString(text)
	return d.grow(len(text))
}

// open begins a call and returns its index.
func (d *draft) open(id, name string) (int, error) {
	if len(d.calls) == maxCalls {
		return 0, garbage("the answer has more than %d tool calls", maxCalls)
	}
	d.calls = append(d.calls, openCall{id: id, name: name})
	return len(d.calls) - 1, d.grow(len(id) + len(name))
}

func (d *draft) extend(i int, input string) error {
	d.calls[i].input.WriteString(input)
	return d.grow(len(input))
}

// turn checks what has to be right for the answer to be repeated in the history.
func (d *draft) turn(cut bool) (turn, error) {
	t := turn{text: d.text.String(), cut: cut}
	if strings.TrimSpace(t.text) == "" { // which Messages do not accept
		t.text = ""
	}
	seen := map[string]bool{}
	for i := range d.calls {
		c := &d.calls[i]
		if !wellFormed.MatchString(c.id) || !wellFormed.MatchString(c.name) || seen[c.id] {
			return turn{}, garbage("a tool call has the id %q and the name %q", start(c.id, 64), start(c.name, 64))
		}
		seen[c.id] = true
		input := c.input.String()
		if strings.TrimSpace(input) == "" {
			input = "{}"
		}
		t.calls = append(t.calls, call{id: c.id, name: c.name, input: input})
	}
	return t, nil
}

// A failure is why there is no answer, and what may be done about it.
type failure struct {
	kind  failureKind
	after time.Duration // busy: when the server wants to be asked again; 0 when it did not say
	err   error
}

type failureKind string

const (
	busy    failureKind = "busy"     // asking again may help: a limit of rate, a server's error, a stream that broke off
	useless failureKind = "useless"  // an answer that makes no sense
	tooLong failureKind = "too long" // the history is longer than the model's context
	spent   failureKind = "spent"    // the budget is used up
	refused failureKind = "refused"  // asking again is no use
)

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(kind failureKind, format string, args ...any) *failure {
	return &failure{kind: kind, err: fmt.Errorf(format, args...)}
}

func garbage(format string, args ...any) error { return fail(useless, format, args...) }
