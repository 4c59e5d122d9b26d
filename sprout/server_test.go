package sprout

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A reply is what the scripted model answers to one request.
type reply struct {
	text   string
	calls  []call
	stop   string // the provider's word; empty: the right one
	breaks bool   // the connection ends in the middle of the answer
	raw    string // the stream as it is, instead of all that

	status     int // an error instead
	retryAfter string
	kind, code string
}

func use(name string, input any) reply {
	text, err := json.Marshal(input)
	if err != nil {
		panic(err)
	}
	return reply{text: "now " + name, calls: []call{{name: name, input: string(text)}}}
}

func shell(command string) reply { return use("shell", map[string]any{"command": command}) }

func words(text string) reply { return reply{text: text} }

// scripted is a model server that answers the nth request with the nth reply, and
// after the last one with the last one.
type scripted struct {
	*httptest.Server
	route  string
	script []reply
	t      *testing.T

	mu       sync.Mutex
	requests []string // bodies
}

func serve(t *testing.T, route string, script ...reply) *scripted {
	t.Helper()
	s := &scripted{route: route, script: script, t: t}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *scripted) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Errorf("read the request: %v", err)
	}
	s.mu.Lock()
	s.requests = append(s.requests, string(body))
	n := len(s.requests)
	s.mu.Unlock()
	if s.route == RouteAnthropic {
		checkAnthropic(s.t, r, body)
	} else {
		checkOpenAI(s.t, r, body)
	}
	answer := s.script[min(n, len(s.script))-1]
	if answer.status != 0 {
		w.Header().Set("Content-Type", "application/json")
		if answer.retryAfter != "" {
			w.Header().Set("Retry-After", answer.retryAfter)
		}
		if answer.status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(answer.status)
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "error",
			"error": map[string]any{"type": answer.kind, "code": answer.code, "message": "no: " + answer.kind}})
		return
	}
	stream := answer.raw
	if stream == "" {
		for i := range answer.calls {
			answer.calls = slices.Clone(answer.calls)
			if answer.calls[i].id == "" {
				answer.calls[i].id = fmt.Sprintf("call_%d_%d", n, i)
			}
		}
		if s.route == RouteAnthropic {
			stream = anthropicStream(answer)
		} else {
			stream = openAIStream(answer)
		}
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	if answer.breaks {
		_, _ = io.WriteString(w, stream[:len(stream)*2/3])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	for len(stream) > 0 { // in pieces that know nothing of lines and characters
		n := min(max(7, len(stream)/100), len(stream))
		_, _ = io.WriteString(w, stream[:n])
		stream = stream[n:]
	}
}

// pieces cuts a text into small ones, between characters.
func pieces(text string) []string {
	var out []string
	runes := []rune(text)
	size := max(11, len(runes)/100)
	for len(runes) > 0 {
		n := min(size, len(runes))
		out = append(out, string(runes[:n]))
		runes = runes[n:]
	}
	return out
}

func anthropicStream(r reply) string {
	var b strings.Builder
	send := func(kind string, fields map[string]any) {
		fields["type"] = kind
		text, _ := json.Marshal(fields)
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", kind, text)
	}
	send("message_start", map[string]any{"message": map[string]any{"role": "assistant", "usage": map[string]any{"input_tokens": 1}}})
	send("ping", map[string]any{})
	i := 0
	if r.text != "" {
		send("content_block_start", map[string]any{"index": i, "content_block": map[string]any{"type": "text", "text": ""}})
		for _, piece := range pieces(r.text) {
			send("content_block_delta", map[string]any{"index": i, "delta": map[string]any{"type": "text_delta", "text": piece}})
		}
		send("content_block_stop", map[string]any{"index": i})
		i++
	}
	for _, c := range r.calls {
		send("content_block_start", map[string]any{"index": i, "content_block": map[string]any{"type": "tool_use", "id": c.id, "name": c.name, "input": map[string]any{}}})
		for _, piece := range pieces(c.input) {
			send("content_block_delta", map[string]any{"index": i, "delta": map[string]any{"type": "input_json_delta", "partial_json": piece}})
		}
		send("content_block_stop", map[string]any{"index": i})
		i++
	}
	stop := r.stop
	if stop == "" && len(r.calls) > 0 {
		stop = "tool_use"
	} else if stop == "" {
		stop = "end_turn"
	}
	send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop}, "usage": map[string]any{"output_tokens": 1}})
	send("message_stop", map[string]any{})
	return b.String()
}

func openAIStream(r reply) string {
	var b strings.Builder
	send := func(delta map[string]any, finish any) {
		text, _ := json.Marshal(map[string]any{"object": "chat.completion.chunk",
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
		fmt.Fprintf(&b, "data: %s\n\n", text)
	}
	send(map[string]any{"role": "assistant", "content": nil}, nil)
	for _, piece := range pieces(r.text) {
		send(map[string]any{"content": piece}, nil)
	}
	for i, c := range r.calls {
		send(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": c.id, "type": "function",
			"function": map[string]any{"name": c.name, "arguments": ""}}}}, nil)
		for _, piece := range pieces(c.input) {
			send(map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]any{"arguments": piece}}}}, nil)
		}
	}
	stop := r.stop
	if stop == "" && len(r.calls) > 0 {
		stop = "tool_calls"
	} else if stop == "" {
		stop = "stop"
	}
	send(map[string]any{}, stop)
	b.WriteString("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
	return b.String()
}

// checkAnthropic holds a request against what the Messages API demands.
func checkAnthropic(t *testing.T, r *http.Request, body []byte) {
	t.Helper()
	if r.URL.Path != "/v1/messages" || r.Header.Get("X-Api-Key") != "placeholder" || r.Header.Get("Anthropic-Version") == "" {
		t.Errorf("the request goes to %s with the headers %v", r.URL.Path, r.Header)
	}
	var request anthropicRequest
	if err := json.Unmarshal(body, &request); err != nil {
		t.Fatalf("the request is no JSON: %v", err)
	}
	if request.Model != "m" || request.MaxTokens != 1000 || !request.Stream || len(request.Tools) != 5 || len(request.System) != 1 {
		t.Errorf("the request is %.300s", body)
	}
	if len(request.Messages) == 0 || request.Messages[0].Role != "user" || request.Messages[len(request.Messages)-1].Role != "user" {
		t.Errorf("the messages do not begin and end with the user's: %.300s", body)
	}
	var open []string
	for _, m := range request.Messages {
		for i, b := range m.Content {
			switch {
			case b.Type == "tool_use" && m.Role == "assistant":
				if !wellFormed.MatchString(b.Name) || !strings.HasPrefix(string(b.Input), "{") {
					t.Errorf("a call of %q with the input %s is repeated", b.Name, b.Input)
				}
				open = append(open, b.ID)
			case b.Type == "tool_result" && m.Role == "user":
				if len(open) == 0 || open[0] != b.ToolUseID {
					t.Fatalf("result %d is of %q, and open are %q", i, b.ToolUseID, open)
				}
				open = open[1:]
			case b.Type != "text" || strings.TrimSpace(b.Text) == "" || len(open) > 0 && m.Role == "user":
				t.Errorf("block %d of a message of the %s is %+v", i, m.Role, b)
			}
		}
		if m.Role == "user" && len(open) > 0 {
			t.Errorf("calls without a result: %q", open)
		}
	}
}

// checkOpenAI holds a request against what Chat Completions demands.
func checkOpenAI(t *testing.T, r *http.Request, body []byte) {
	t.Helper()
	if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer placeholder" {
		t.Errorf("the request goes to %s with the headers %v", r.URL.Path, r.Header)
	}
	var request openAIRequest
	if err := json.Unmarshal(body, &request); err != nil {
		t.Fatalf("the request is no JSON: %v", err)
	}
	if request.Model != "m" || request.MaxTokens != 1000 || !request.Stream || len(request.Tools) != 5 {
		t.Errorf("the request is %.300s", body)
	}
	var open []string
	for i, m := range request.Messages {
		switch {
		case m.Role == "tool":
			if len(open) == 0 || open[0] != m.ToolCallID || m.Content == nil {
				t.Fatalf("message %d is the result of %q, and open are %q", i, m.ToolCallID, open)
			}
			open = open[1:]
		case len(open) > 0:
			t.Errorf("calls without a result: %q", open)
		case m.Role == "assistant":
			for _, c := range m.ToolCalls {
				if c.Type != "function" || !strings.HasPrefix(c.Function.Arguments, "{") {
					t.Errorf("the call %+v is repeated", c)
				}
				open = append(open, c.ID)
			}
		case (m.Role == "system") != (i == 0), i == 1 && m.Role != "user", m.Content == nil:
			t.Errorf("message %d is of the %s", i, m.Role)
		}
	}
	if len(open) > 0 {
		t.Errorf("calls without a result: %q", open)
	}
}
