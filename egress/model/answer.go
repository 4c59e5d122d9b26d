package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"tendril/budget"
	"tendril/fault"
)

// refusal is an answer of the Stem in the place of the provider's.
type refusal struct {
	status int
	word   string // the provider's word for it
	code   string // OpenAI's second word
	text   string
}

// voice is how a provider says an error: the forms that its clients understand.
type voice struct {
	body  func(r refusal) any
	event func(r refusal) []byte // within a stream

	// Its words for what can be wrong.
	invalid, notFound, tooLarge, denied, spent, unavailable refusal
}

// Clients try again what they take for a passing failure: 408, 409, 429 and 5xx, and
// codex also 402 and 403. What will not pass is therefore said with 400, but where the
// provider has a word of its own that its clients heed.
var (
	anthropicVoice = voice{
		body:        anthropicError,
		event:       func(r refusal) []byte { return eventOf("error", anthropicError(r)) },
		invalid:     refusal{status: 400, word: "invalid_request_error"},
		notFound:    refusal{status: 404, word: "not_found_error"},
		tooLarge:    refusal{status: 413, word: "request_too_large"},
		denied:      refusal{status: 400, word: "invalid_request_error"},
		spent:       refusal{status: 402, word: "billing_error"},
		unavailable: refusal{status: 502, word: "api_error"},
	}
	openaiVoice = voice{
		body:        openaiError,
		event:       func(r refusal) []byte { return eventOf("", openaiError(r)) },
		invalid:     refusal{status: 400, word: "invalid_request_error"},
		notFound:    refusal{status: 404, word: "invalid_request_error", code: "unknown_url"},
		tooLarge:    refusal{status: 413, word: "invalid_request_error"},
		denied:      refusal{status: 400, word: "invalid_request_error", code: "permission_denied"},
		spent:       refusal{status: 400, word: "insufficient_quota", code: "insufficient_quota"},
		unavailable: refusal{status: 502, word: "server_error"},
	}
)

func anthropicError(r refusal) any {
	return map[string]any{"type": "error", "error": map[string]any{"type": r.word, "message": r.text}}
}

func openaiError(r refusal) any {
	var code any
	if r.code != "" {
		code = r.code
	}
	return map[string]any{"error": map[string]any{"message": r.text, "type": r.word, "param": nil, "code": code}}
}

// responsesEventError is an error within a stream of the Responses API, which has a form
// of its own there.
func responsesEventError(r refusal) []byte {
	return eventOf("error", map[string]any{"type": "error", "code": r.code, "message": r.text, "param": nil, "sequence_number": 0})
}

func eventOf(name string, data any) []byte {
	text, err := json.Marshal(data)
	if err != nil {
		panic("egress/model: an error has no JSON: " + err.Error()) // it is made of text
	}
	if name != "" {
		return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, text)
	}
	return fmt.Appendf(nil, "data: %s\n\n", text)
}

// refusalOf is what a client is told of an error. The text of one that is no fault stays
// here.
func (v voice) refusalOf(err error) refusal {
	var f *fault.Error
	if !errors.As(err, &f) {
		r := v.unavailable
		r.text = "tendril: the request failed within the Stem"
		return r
	}
	r := v.unavailable
	var exceeded *budget.Exceeded
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &exceeded):
		return v.usedUp(exceeded.Unit, exceeded.Scope)
	case errors.As(err, &tooLarge):
		r = v.tooLarge
	case f.Kind == fault.Denied || f.Kind == fault.NeedsApproval:
		r = v.denied
	case f.Kind == fault.Invalid:
		r = v.invalid
	case f.Kind == fault.NotFound:
		r = v.notFound
	}
	r.text = "tendril: " + f.Detail
	if f.Rule != "" {
		r.text += " (" + f.Rule + ")"
	}
	if f.Hint != "" {
		r.text += "; " + f.Hint
	}
	return r
}

// usedUp says that a limit leaves no room. There is no number in it, nor the word limit:
// clients look for such (500 is in 25000) to tell what will pass from what will not.
func (v voice) usedUp(unit budget.Unit, scope budget.Scope) refusal {
	of := map[budget.Scope]string{budget.OfRun: "this run", budget.OfDay: "this Pollen for today"}[scope]
	r := v.spent
	r.text = fmt.Sprintf("tendril: the budget for %s of %s is used up; ask the Botanist for more", unit, of)
	return r
}

// refuse answers with an error. Stainless' clients, which are most, heed x-should-retry.
func (v voice) refuse(w http.ResponseWriter, r refusal) {
	if r.status < 500 {
		w.Header().Set("X-Should-Retry", "false")
	}
	writeJSON(w, r.status, v.body(r))
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic("egress/model: an answer has no JSON: " + err.Error()) // it is made of text
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	w.Write(text) // a client that is gone reads no error either
}
