package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"tendril/budget"
	"tendril/egress/model"
	"tendril/fault"
)

const (
	ask        = `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`
	askStream  = `{"model":"m","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hi"}]}`
	askOpenAI  = `{"model":"m","max_output_tokens":100,"input":"hi"}`
	askChat    = `{"model":"m","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hi"}]}`
	messages   = "/v1/messages"
	chat       = "/v1/chat/completions"
	responses  = "/v1/responses"
	wholeHi    = `{"type":"message","content":[],"usage":{"input_tokens":11,"output_tokens":7,"cache_read_input_tokens":5,"cache_creation_input_tokens":null}}`
	openaiHi   = `{"object":"response","usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":20,"cache_write_tokens":4},"output_tokens":7,"total_tokens":37}}`
	stopEvent  = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	startEvent = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":11,\"output_tokens\":1,\"cache_read_input_tokens\":5}}}\n\n"
	deltaEvent = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n"
)

var limited = budget.Limits{Run: budget.Limit{Tokens: count(1_000_000), Spend: count(100_000_000)}}

func TestAnAnswerIsPaidFor(t *testing.T) {
	w := newWorld(t, budget.Anthropic, limited, func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Request-Id", "req_1")
		out.Header().Set("Set-Cookie", "a=b")
		out.Header().Set("Anthropic-Organization-Id", "org")
		out.Header().Set("Anthropic-Ratelimit-Requests-Remaining", "9")
		jsonAnswer(200, wholeHi)(out, r)
	})
	got := w.post(messages+"?beta=true", ask, "Anthropic-Beta", "claude-code-20250219, files-api-2025-04-14", "Anthropic-Beta", "fast-mode-2026-02-01,effort-2025-11-24",
		"X-Api-Key", "placeholder", "User-Agent", "agent/1", "Anthropic-Version", "2099-01-01", "X-Forwarded-For", "1.2.3.4", "Cookie", "a=b")
	if got.status != 200 || got.body != wholeHi {
		t.Errorf("%+v", got)
	}
	for name, want := range map[string]string{"Request-Id": "req_1", "Set-Cookie": "", "Anthropic-Organization-Id": "", "Anthropic-Ratelimit-Requests-Remaining": "9"} {
		if value := got.header.Get(name); value != want {
			t.Errorf("the answer has %s: %q", name, value)
		}
	}
	w.wantSettled(budget.Usage{Input: 11, Output: 7, CacheRead: 5})
	received := w.received()[0]
	if received.target != "POST /v1/messages?beta=true" {
		t.Error(received.target)
	}
	for name, want := range map[string]string{
		"X-Api-Key": "", "Authorization": "", "Cookie": "", "X-Forwarded-For": "", "Content-Type": "application/json", "User-Agent": "agent/1",
		"Anthropic-Version": "2023-06-01", "Anthropic-Beta": "claude-code-20250219,effort-2025-11-24", "Accept-Encoding": "identity",
	} {
		if value := strings.Join(received.header.Values(name), " "); value != want {
			t.Errorf("%s: %q was sent, want %q", name, value, want)
		}
	}
	call := w.accounts.calls[0]
	if strings.Join(call.Removed, " ") != "anthropic-beta.files-api-2025-04-14 anthropic-beta.fast-mode-2026-02-01" || call.Model != "m" || call.Endpoint != messages {
		t.Errorf("%+v", call)
	}
	if least := int64(len(received.body)); call.Bound.Tokens < least+100 || call.Bound.Tokens > least+100+5000 || call.Bound.Spend < 3*least+15*100 {
		t.Errorf("%d bytes are bounded by %+v", least, call.Bound)
	}
	if o := w.accounts.settled[0]; o.Came != (budget.Amount{Tokens: 23, Spend: 33 + 105 + 2}) || o.Status != 200 || !o.Ended {
		t.Errorf("%+v", o)
	}
}

// A stream arrives event by event, is what it was, and is settled before its end is seen.
func TestStreams(t *testing.T) {
	for _, c := range []struct {
		name      string
		route     budget.Route
		path, ask string
		events    []string
		want      string // what the client sees; "" is all of it
		usage     budget.Usage
		kept      bool
	}{
		{"anthropic", budget.Anthropic, messages, askStream, []string{startEvent, ": ping\n\n", event("content_block_delta", `{"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}`), deltaEvent, stopEvent}, "",
			budget.Usage{Input: 11, Output: 7, CacheRead: 5}, false},
		{"anthropic, the delta knows more of the input", budget.Anthropic, messages, askStream, []string{startEvent, event("message_delta", `{"type":"message_delta","usage":{"output_tokens":7,"input_tokens":20,"cache_creation_input_tokens":3}}`), stopEvent}, "",
			budget.Usage{Input: 20, Output: 7, CacheRead: 5, CacheWrite: 3}, false},
		{"anthropic, in several rounds", budget.Anthropic, messages, askStream, []string{startEvent, event("message_delta", `{"type":"message_delta","usage":{"output_tokens":7,"iterations":[{"type":"compaction","input_tokens":100,"output_tokens":50},{"type":"message","input_tokens":11,"output_tokens":7}]}}`), stopEvent}, "",
			budget.Usage{Input: 111, Output: 57, CacheRead: 5}, false},
		{"anthropic, data in several lines and CRLF", budget.Anthropic, messages, askStream, []string{startEvent, "event: message_delta\r\ndata: {\"type\":\"message_delta\",\r\ndata: \"usage\":{\"output_tokens\":7}}\r\n\r\n", stopEvent}, "",
			budget.Usage{Input: 11, Output: 7, CacheRead: 5}, false},
		{"anthropic, rounds that wrap", budget.Anthropic, messages, askStream, []string{startEvent, event("message_delta", `{"type":"message_delta","usage":{"output_tokens":7,"iterations":[{"input_tokens":9223372036854775807,"output_tokens":1},{"input_tokens":9223372036854775807,"output_tokens":1},{"input_tokens":2,"output_tokens":1}]}}`), stopEvent}, "", budget.Usage{}, true},
		{"anthropic, half a round", budget.Anthropic, messages, askStream, []string{startEvent, event("message_delta", `{"type":"message_delta","usage":{"output_tokens":7,"iterations":[{"output_tokens":1}]}}`), stopEvent}, "", budget.Usage{}, true},
		{"anthropic, no beginning", budget.Anthropic, messages, askStream, []string{deltaEvent, stopEvent}, "", budget.Usage{}, true},
		{"anthropic, no usage at the end", budget.Anthropic, messages, askStream, []string{startEvent, stopEvent}, "", budget.Usage{}, true},
		{"anthropic, no end", budget.Anthropic, messages, askStream, []string{startEvent, deltaEvent}, "", budget.Usage{}, true},
		{"anthropic, an error", budget.Anthropic, messages, askStream, []string{startEvent, event("error", `{"type":"error","error":{"type":"overloaded_error"}}`)}, "", budget.Usage{}, true},
		{"anthropic, a negative report", budget.Anthropic, messages, askStream, []string{startEvent, event("message_delta", `{"type":"message_delta","usage":{"output_tokens":-7}}`), stopEvent}, "", budget.Usage{}, true},
		{"anthropic, an absurd report", budget.Anthropic, messages, askStream, []string{startEvent, event("message_delta", `{"type":"message_delta","usage":{"output_tokens":7,"cache_read_input_tokens":9000000000000000000}}`), stopEvent}, "", budget.Usage{}, true},
		{"anthropic, a report in halves", budget.Anthropic, messages, askStream, []string{startEvent, event("message_delta", `{"type":"message_delta","usage":{"output_tokens":7.5}}`), stopEvent}, "", budget.Usage{}, true},
		{"garbage", budget.Anthropic, messages, askStream, []string{"data: {\n\n", "\x00\xff\n\n", "data\n\ndata: [1,2\n\n"}, "", budget.Usage{}, true},

		{"chat", budget.OpenAI, chat, askChat, []string{event("", `{"choices":[{"delta":{"content":"hi"}}],"usage":null}`), event("", `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":37,"prompt_tokens_details":{"cached_tokens":20}}}`), event("", "[DONE]")},
			event("", `{"choices":[{"delta":{"content":"hi"}}],"usage":null}`) + event("", "[DONE]"), budget.Usage{Input: 10, Output: 7, CacheRead: 20}, false},
		{"chat, usage in the last choice", budget.OpenAI, chat, askChat, []string{event("", `{"choices":[{"delta":{"content":"hi"}}],"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":39}}`), event("", "[DONE]")}, "",
			budget.Usage{Input: 30, Output: 9}, false},
		{"chat, the client asks for usage", budget.OpenAI, chat, strings.Replace(askChat, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1),
			[]string{event("", `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7}}`), event("", "[DONE]")}, "", budget.Usage{Input: 30, Output: 7}, false},
		{"chat, no usage", budget.OpenAI, chat, askChat, []string{event("", `{"choices":[{"delta":{"content":"hi"}}]}`), event("", "[DONE]")}, "", budget.Usage{}, true},
		{"chat, more cached than there was", budget.OpenAI, chat, askChat, []string{event("", `{"choices":[{}],"usage":{"prompt_tokens":3,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":20}}}`), event("", "[DONE]")}, "", budget.Usage{}, true},
		{"chat, negative details", budget.OpenAI, chat, askChat, []string{event("", `{"choices":[{}],"usage":{"prompt_tokens":3,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":-9223372036854775808}}}`), event("", "[DONE]")}, "", budget.Usage{}, true},

		{"responses", budget.OpenAI, responses, strings.Replace(askOpenAI, "{", `{"stream":true,`, 1), []string{event("response.created", `{"type":"response.created","response":{"usage":null}}`), event("response.output_text.delta", `{"type":"response.output_text.delta","delta":"hi"}`), event("response.completed", `{"type":"response.completed","response":`+openaiHi+`}`)}, "",
			budget.Usage{Input: 6, Output: 7, CacheRead: 20, CacheWrite: 4}, false},
		{"responses, incomplete", budget.OpenAI, responses, strings.Replace(askOpenAI, "{", `{"stream":true,`, 1), []string{event("response.incomplete", `{"type":"response.incomplete","response":`+openaiHi+`}`)}, "",
			budget.Usage{Input: 6, Output: 7, CacheRead: 20, CacheWrite: 4}, false},
		{"responses, failed", budget.OpenAI, responses, strings.Replace(askOpenAI, "{", `{"stream":true,`, 1), []string{event("response.failed", `{"type":"response.failed","response":{"usage":null,"error":{"code":"server_error"}}}`)}, "", budget.Usage{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.route, limited, func(out http.ResponseWriter, _ *http.Request) { stream(out, c.events...) })
			got := w.post(c.path, c.ask)
			if c.want == "" {
				c.want = strings.Join(c.events, "")
			}
			if got.status != 200 || got.body != c.want || got.cut || !strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream") {
				t.Errorf("%+v\nwant %q", got, c.want)
			}
			if c.kept {
				w.wantKept()
			} else {
				w.wantSettled(c.usage)
			}
		})
	}
}

// Each event is given on when it comes, not when the next one does.
func TestAStreamIsNotHeldBack(t *testing.T) {
	next := make(chan struct{})
	w := newWorld(t, budget.Anthropic, limited, func(out http.ResponseWriter, _ *http.Request) {
		stream(out, startEvent)
		<-next
		stream(out, deltaEvent, stopEvent)
	})
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.inside.URL+messages, strings.NewReader(askStream))
	r.Header.Set("Content-Type", "application/json")
	response, err := w.inside.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	first := make([]byte, len(startEvent))
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != startEvent {
		t.Fatalf("%q, %v", first, err)
	}
	close(next)
	if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != deltaEvent+stopEvent {
		t.Errorf("%q, %v", rest, err)
	}
	w.wantSettled(budget.Usage{Input: 11, Output: 7, CacheRead: 5})
}

// A stream that breaks off is broken off for the client as well, and stays reserved.
func TestABrokenStream(t *testing.T) {
	w := newWorld(t, budget.Anthropic, limited, func(out http.ResponseWriter, _ *http.Request) {
		stream(out, startEvent, deltaEvent)
		panic(http.ErrAbortHandler)
	})
	if got := w.post(messages, askStream); !got.cut || !strings.HasPrefix(got.body, startEvent) {
		t.Errorf("%+v", got)
	}
	w.wantKept()
}

func TestAnEventWithoutEnd(t *testing.T) {
	w := newWorld(t, budget.Anthropic, limited, func(out http.ResponseWriter, _ *http.Request) {
		stream(out, startEvent, "data: ")
		piece := strings.Repeat("x", 1<<20)
		for range 64 {
			if _, err := io.WriteString(out, piece); err != nil {
				return
			}
		}
	})
	if got := w.post(messages, askStream); !got.cut || got.body != startEvent {
		t.Errorf("%d bytes, cut: %v", len(got.body), got.cut)
	}
	w.wantKept()
}

// Whoever leaves before the end is told nothing more, but what the provider says within
// a moment still counts.
func TestAClientThatLeaves(t *testing.T) {
	left := make(chan struct{})
	var released sync.WaitGroup
	released.Add(1)
	w := newWorld(t, budget.Anthropic, limited, func(out http.ResponseWriter, _ *http.Request) {
		defer released.Done()
		stream(out, startEvent)
		<-left
		stream(out, deltaEvent, stopEvent)
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.inside.URL+messages, strings.NewReader(askStream))
	r.Header.Set("Content-Type", "application/json")
	response, err := w.inside.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(response.Body, make([]byte, len(startEvent)))
	cancel()
	response.Body.Close()
	close(left)
	released.Wait()
	w.inside.Close() // waits for the handler
	w.wantSettled(budget.Usage{Input: 11, Output: 7, CacheRead: 5})
}

func TestWhatAnAnswerCosts(t *testing.T) {
	big := strings.Repeat(" ", 17<<20)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		status int
		usage  *budget.Usage // nil: kept
	}{
		"rate limit":          {jsonAnswer(429, `{"type":"error"}`), 429, &budget.Usage{}},
		"a bad request":       {jsonAnswer(400, `{"type":"error"}`), 400, &budget.Usage{}},
		"overloaded":          {jsonAnswer(529, `{"type":"error"}`), 529, &budget.Usage{}},
		"unavailable":         {jsonAnswer(503, `{"type":"error"}`), 503, &budget.Usage{}},
		"a failure":           {jsonAnswer(500, `{"type":"error"}`), 500, nil},
		"a gateway's failure": {jsonAnswer(504, ``), 504, nil},
		"garbage":             {jsonAnswer(200, `<html>`), 200, nil},
		"no usage":            {jsonAnswer(200, `{"type":"message"}`), 200, nil},
		"half a usage":        {jsonAnswer(200, `{"usage":{"input_tokens":1}}`), 200, nil},
		"a negative usage":    {jsonAnswer(200, `{"usage":{"input_tokens":-1,"output_tokens":1}}`), 200, nil},
		"too large":           {jsonAnswer(200, big), 502, nil},
		"a redirect": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(302)
		}, 502, nil},
		"compressed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, wholeHi)
		}, 502, nil},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, wholeHi)
		}, 502, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, budget.Anthropic, limited, c.answer)
			if got := w.post(messages, ask); got.status != c.status || got.status == 502 && !contains(got.body, `"api_error"`) {
				t.Errorf("%d %.200s", got.status, got.body)
			}
			if c.usage == nil {
				w.wantKept()
			} else {
				w.wantSettled(*c.usage)
			}
			if n := len(w.received()); n != 1 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

func TestRetryAfterIsPassedOn(t *testing.T) {
	w := newWorld(t, budget.OpenAI, limited, func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Retry-After", "7")
		out.Header().Set("X-Ratelimit-Reset-Tokens", "1s")
		jsonAnswer(429, `{"error":{}}`)(out, r)
	})
	if got := w.post(responses, askOpenAI); got.status != 429 || got.header.Get("Retry-After") != "7" || got.header.Get("X-Ratelimit-Reset-Tokens") != "1s" {
		t.Errorf("%+v", got)
	}
}

// unsent is the error of an upstream that knows that nothing has left.
type unsent struct{ error }

func (unsent) Unsent() bool    { return true }
func (u unsent) Unwrap() error { return u.error }

func TestWhatNeverLeftCostsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		says   string
		free   bool
	}{
		"refused":                   {unsent{fault.New(fault.Denied, "no rule names api.anthropic.com").WithHint("ask")}, 400, "no rule names api.anthropic.com; ask", true},
		"not dialled":               {fmt.Errorf("x: %w", unsent{errNetwork}), 502, "could not be reached", true},
		"dialled anew":              {fmt.Errorf("x: %w", &net.OpError{Op: "dial", Err: errNetwork}), 502, "could not be reached", false}, // after a first time?
		"an answer that is refused": {fault.New(fault.Denied, "the answer holds the credential"), 400, "the answer holds the credential", false},
		"unresolved":                {fault.New(fault.Unavailable, "the resolver 10.1.2.3 does not answer"), 502, "could not be reached", false},
		"not answered":              {errNetwork, 502, "could not be reached", false},
	} {
		w := newWorld(t, budget.Anthropic, limited, nil, func(config *model.Config) {
			config.Upstream = roundTrip(func(*http.Request) (*http.Response, error) { return nil, c.err })
		})
		got := w.post(messages, ask)
		if got.status != c.status || !contains(got.body, c.says) || contains(got.body, "10.1.2.3") {
			t.Errorf("%s: %+v", name, got)
		}
		if c.free {
			w.wantSettled(budget.Usage{})
		} else {
			w.wantKept()
		}
	}
}

// Nothing is given out of which there is no record.
func TestAnOutcomeThatCannotBeRecorded(t *testing.T) {
	w := newWorld(t, budget.Anthropic, limited, jsonAnswer(200, wholeHi))
	w.accounts.settling = errNetwork
	if got := w.post(messages, ask); got.status != 502 || contains(got.body, "usage") || contains(got.body, "10.1.2.3") {
		t.Errorf("%+v", got)
	}
	w = newWorld(t, budget.Anthropic, limited, func(out http.ResponseWriter, _ *http.Request) { stream(out, startEvent, deltaEvent, stopEvent) })
	w.accounts.settling = errNetwork
	if got := w.post(messages, askStream); !got.cut || contains(got.body, "message_stop") {
		t.Errorf("%+v", got)
	}
}

func TestOnlyWhatIsNamedIsServed(t *testing.T) {
	for route, paths := range map[budget.Route][]string{
		budget.Anthropic: {"POST /v1/messages/batches", "POST /v1/complete", "POST /v1/files", "GET /v1/messages", "PUT /v1/messages", "HEAD /", "GET /", "POST /v1/messages/", "POST //v1/messages",
			"POST /v1/chat/completions", "DELETE /v1/models/m", "POST /v1/models", "GET /v1/modelsx"},
		budget.OpenAI: {"POST /v1/batches", "POST /v1/files", "POST /v1/embeddings", "GET /v1/responses/r", "DELETE /v1/responses/r", "POST /v1/responses/r/cancel", "POST /v1/responses/compact",
			"POST /v1/images/generations", "POST /v1/messages", "GET /v1/responses", "POST /chat/completions"},
	} {
		w := newWorld(t, route, limited, jsonAnswer(200, wholeHi))
		for _, line := range paths {
			method, path, _ := strings.Cut(line, " ")
			r, err := http.NewRequest(method, w.inside.URL, strings.NewReader(ask))
			if err != nil {
				t.Fatal(err)
			}
			r.URL.Path = path
			r.Header.Set("Content-Type", "application/json")
			if got := w.do(r); got.status != 404 || method != "HEAD" && !contains(got.body, "this route serves POST /v1/", `"message":`) {
				t.Errorf("%s %s: %+v", route, line, got)
			}
		}
		for _, header := range [][]string{{"Content-Type", "text/plain"}, {"Content-Encoding", "zstd"}} {
			r, _ := http.NewRequest("POST", w.inside.URL+map[budget.Route]string{budget.Anthropic: messages, budget.OpenAI: responses}[route], strings.NewReader(ask))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(header[0], header[1])
			if got := w.do(r); got.status != 400 {
				t.Errorf("%v: %+v", header, got)
			}
		}
		for _, query := range []string{"?a=b", "?beta=true&x=1", "?beta=false"} {
			if got := w.post(messages+query, ask); route == budget.Anthropic && got.status != 400 {
				t.Errorf("%s: %+v", query, got)
			}
		}
		if len(w.received()) != 0 || len(w.accounts.calls) != 0 {
			t.Errorf("%d requests were sent", len(w.received()))
		}
	}
}

func TestCountingIsFree(t *testing.T) {
	w := newWorld(t, budget.Anthropic, limited, jsonAnswer(200, `{"input_tokens":5}`))
	got := w.post(messages+"/count_tokens", `{"model":"m","messages":[],"container":"c"}`)
	if got.status != 200 || got.body != `{"input_tokens":5}` || len(w.accounts.calls) != 0 || w.received()[0].body != `{"model":"m","messages":[]}` {
		t.Errorf("%+v %+v", got, w.received())
	}
}

func TestModelsAreListedHere(t *testing.T) {
	get := func(w *world, path string) answer {
		r, _ := http.NewRequest(http.MethodGet, w.inside.URL+path, nil)
		return w.do(r)
	}
	for _, route := range []budget.Route{budget.Anthropic, budget.OpenAI} {
		w := newWorld(t, route, limited, nil)
		if got := get(w, "/v1/models?client_version=1"); got.status != 200 || !contains(got.body, `"id":"m"`) || !json.Valid([]byte(got.body)) {
			t.Errorf("%+v", got)
		}
		if got := get(w, "/v1/models/m"); got.status != 200 || !contains(got.body, `"id":"m"`) {
			t.Errorf("%+v", got)
		}
		if got := get(w, "/v1/models/x"); got.status != 404 {
			t.Errorf("%+v", got)
		}
		w = newWorld(t, route, limited, nil, func(c *model.Config) {
			c.Terms = fixed(model.Terms{Limits: limited, Permit: model.Permit{Models: []string{"other"}}})
		})
		if got := get(w, "/v1/models"); !contains(got.body, `"id":"other"`) || contains(got.body, `"id":"m"`) {
			t.Errorf("%+v", got)
		}
		if len(w.received()) != 0 {
			t.Error("the provider was asked")
		}
	}
}

func TestConfigurationsThatMakeNoRoute(t *testing.T) {
	for name, c := range map[string]model.Config{
		"no route":    {Upstream: http.DefaultTransport, Accounts: &accounts{}, Terms: fixed(model.Terms{})},
		"nothing":     {Route: budget.OpenAI},
		"no accounts": {Route: budget.OpenAI, Upstream: http.DefaultTransport, Terms: fixed(model.Terms{})},
		"no terms":    {Route: budget.OpenAI, Upstream: http.DefaultTransport, Accounts: &accounts{}},
	} {
		if _, err := model.New(c); err == nil {
			t.Errorf("%s makes a route", name)
		}
	}
}
