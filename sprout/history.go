package sprout

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A history is what the model is shown: what it was asked for, and what it said and got
// since, each call with its result.
type history struct {
	system    string
	ask       string
	dropped   int // exchanges that are not shown any more
	exchanges []exchange
}

// An exchange is an answer of the model, empty when it was of no use, and what it was
// told then.
type exchange struct {
	said    turn
	results []result // one for each call
	note    string
}

type result struct {
	text   string
	failed bool
}

// request is the first message.
func (h *history) request() string {
	if h.dropped == 0 {
		return h.ask
	}
	return fmt.Sprintf("%s\n\n[%d earlier steps of yours are not shown any more. What they did to the files stands.]", h.ask, h.dropped)
}

// bytesPerToken is low: code has three to four bytes in a token, so that the estimate
// errs on the side of too many tokens.
const bytesPerToken = 3

// fixed is what the tools' descriptions and the frame around each text take, in bytes.
const (
	fixed = 4 << 10
	frame = 48
)

// tokens estimates how long the history is for the model.
func (h *history) tokens() int {
	n := fixed + len(h.system) + len(h.request())
	for _, x := range h.exchanges {
		n += len(x.said.text) + len(x.note) + 2*frame
		for i, c := range x.said.calls {
			n += len(c.id)*2 + len(c.name) + len(c.input) + len(x.results[i].text) + 2*frame
		}
	}
	return n / bytesPerToken
}

// fit makes the history shorter when it has more tokens than limit: first what is long
// in old exchanges gives way to a note, then whole old exchanges go, and at last what is
// long in the newest one. It goes down to half of the limit where notes suffice, and so
// does not change each time, because what stays the same costs less: providers cache it.
func (h *history) fit(limit int) {
	if h.tokens() <= limit {
		return
	}
	for i := 0; i < len(h.exchanges)-1 && h.tokens() > limit/2; i++ {
		h.exchanges[i].shorten()
	}
	for len(h.exchanges) > 1 && h.tokens() > limit {
		h.exchanges = append(h.exchanges[:0:0], h.exchanges[1:]...)
		h.dropped++
	}
	if len(h.exchanges) > 0 && h.tokens() > limit {
		h.exchanges[0].shorten()
	}
}

// kept is how many bytes of something long stay.
const kept = 200

func (x *exchange) shorten() {
	x.said.text = shortened(x.said.text)
	for i := range x.said.calls {
		x.said.calls[i].input = shortenedInput(x.said.calls[i].input)
		x.results[i].text = shortened(x.results[i].text)
	}
}

func shortened(text string) string {
	if len(text) <= kept+noteSize {
		return text
	}
	return clip(text, kept+noteSize)
}

// shortenedInput keeps what a call was about.
func shortenedInput(input string) string {
	if len(input) <= kept {
		return input
	}
	if short := fields(input, shortened); len(short) <= 4*kept {
		return short
	}
	return fmt.Sprintf(`{"left out":"%d bytes"}`, len(input))
}

// repeatable is a call's input as it may stand in a request: one object, without what a
// strict reader refuses there, such as a field that comes twice.
func repeatable(input string) string {
	return fields(input, func(text string) string { return text })
}

// fields writes an input anew, each text as change has it. No tool takes anything
// nested, so that is left out. What is no object becomes an empty one.
func fields(input string, change func(string) string) string {
	decoder := json.NewDecoder(strings.NewReader(input))
	decoder.UseNumber()
	var object map[string]any
	if decoder.Decode(&object) != nil || object == nil {
		return "{}"
	}
	for name, value := range object {
		switch value := value.(type) {
		case string:
			object[name] = change(value)
		case map[string]any, []any:
			object[name] = "[left out]"
		}
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(object) != nil {
		return "{}"
	}
	return strings.TrimSpace(out.String())
}
