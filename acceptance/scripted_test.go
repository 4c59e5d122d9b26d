package acceptance_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// turn is what a scripted model has its agent do once.
type turn struct {
	tool  string
	input map[string]any
	// answers is what the agent then has to send back as the tool's result.
	answers string
	// limited and cut come before the turn: the answer 429, and a stream that ends in the
	// middle.
	limited, cut bool
}

// scriptedModel is a provider that follows a script, by the interface that it is asked
// by. How far an agent is, the model sees from the conversation alone, so an agent may
// ask again as often as it likes.
type scriptedModel struct {
	turns []turn
	key   string // that each request must carry

	mu       sync.Mutex
	problems []string
	cuts     int // streams that were cut, and
	limits   int // answers 429
	ended    int // how often the last turn was told
	asked    int
	used     int64 // tokens, by what was reported
}

// The tokens that each whole answer reports.
const scriptedInput, scriptedOutput = 1000, 50

func (m *scriptedModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if r.Header.Get("X-Api-Key") != m.key && r.Header.Get("Authorization") != "Bearer "+m.key {
		m.problem("a request to %s without its key", r.URL.Path)
	}
	speak := map[string]func(*sse, *turn){"/v1/messages": messagesAnswer, "/v1/responses": responsesAnswer, "/v1/chat/completions": chatAnswer}[r.URL.Path]
	body, err := io.ReadAll(r.Body)
	var request struct {
		Messages, Input, Tools []any
	}
	if err == nil && speak != nil {
		err = json.Unmarshal(body, &request)
	}
	if err != nil || speak == nil {
		m.problem("asked for %s: %v", r.URL.Path, err)
		http.NotFound(w, r)
		return
	}
	if len(request.Tools) == 0 { // about a title, or whatever else
		m.used += scriptedInput + scriptedOutput
		speak(&sse{w: w}, nil)
		return
	}
	results := toolResults(append(request.Messages, request.Input...))
	var next *turn
	if n := len(results); n > 0 && n <= len(m.turns) && !strings.Contains(results[n-1], m.turns[n-1].answers) {
		m.problem("turn %d had the result %.300q, want %q", n-1, results[n-1], m.turns[n-1].answers)
	}
	if len(results) < len(m.turns) {
		next = &m.turns[len(results)]
	} else {
		m.ended++
	}
	switch {
	case next != nil && next.limited:
		next.limited = false
		m.limits++
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"type":"error","error":{"type":"rate_limit_error","message":"slower, please","code":"rate_limit_exceeded"}}`)
	case next != nil && next.cut:
		next.cut = false
		m.cuts++
		speak(&sse{w: w, cut: true}, next)
		panic(http.ErrAbortHandler)
	default:
		m.used += scriptedInput + scriptedOutput
		speak(&sse{w: w}, next)
	}
}

func (m *scriptedModel) problem(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// toolResults are the texts of what tools gave, in their order, in any of the three forms.
func toolResults(conversation []any) (results []string) {
	for _, item := range conversation {
		m, _ := item.(map[string]any)
		kind, _ := m["type"].(string)
		content, _ := m["content"].([]any)
		switch {
		case kind == "tool_result", m["role"] == "tool":
			results = append(results, fmt.Sprint(m["content"]))
		case kind == "function_call_output", kind == "custom_tool_call_output":
			results = append(results, fmt.Sprint(m["output"]))
		default:
			results = append(results, toolResults(content)...)
		}
	}
	return results
}

// sse writes server-sent events. A stream that is cut has none after the middle.
type sse struct {
	w    http.ResponseWriter
	cut  bool
	over bool
}

// middle is between the halves of what an answer says.
func (s *sse) middle() { s.over = s.cut }

func (s *sse) send(event string, data any) {
	if s.over {
		return
	}
	s.w.Header().Set("Content-Type", "text/event-stream")
	text, ok := data.(string)
	if !ok {
		encoded, err := json.Marshal(data)
		if err != nil {
			panic(err)
		}
		text = string(encoded)
	}
	if event != "" {
		fmt.Fprintf(s.w, "event: %s\n", event)
	}
	fmt.Fprintf(s.w, "data: %s\n\n", text)
	s.w.(http.Flusher).Flush()
}

type object = map[string]any

const scriptedText = "All of it is done."

// arguments are a turn's input as text, in two parts.
func (t *turn) arguments() (whole, first, second string) {
	encoded, err := json.Marshal(t.input)
	if err != nil {
		panic(err)
	}
	whole = string(encoded)
	return whole, whole[:len(whole)/2], whole[len(whole)/2:]
}

// messagesAnswer is a turn as Anthropic's Messages stream it; nil is the end.
func messagesAnswer(s *sse, t *turn) {
	send := func(kind string, more object) {
		more["type"] = kind
		s.send(kind, more)
	}
	send("message_start", object{"message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": scriptedInput, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
	}})
	reason := "end_turn"
	if t == nil {
		send("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
		send("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": scriptedText}})
	} else {
		reason = "tool_use"
		_, first, second := t.arguments()
		send("content_block_start", object{"index": 0, "content_block": object{"type": "tool_use", "id": fmt.Sprintf("toolu_%p", t), "name": t.tool, "input": object{}}})
		send("content_block_delta", object{"index": 0, "delta": object{"type": "input_json_delta", "partial_json": first}})
		s.middle()
		send("content_block_delta", object{"index": 0, "delta": object{"type": "input_json_delta", "partial_json": second}})
	}
	send("content_block_stop", object{"index": 0})
	send("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": scriptedOutput}})
	send("message_stop", object{})
}

// responsesAnswer is a turn as OpenAI's Responses stream it.
func responsesAnswer(s *sse, t *turn) {
	number := 0
	send := func(kind string, more object) {
		more["type"], more["sequence_number"] = kind, number
		number++
		s.send(kind, more)
	}
	response := object{"id": "resp_1", "object": "response", "created_at": 1, "model": "m-1", "status": "in_progress", "output": []any{}}
	send("response.created", object{"response": response})
	var item object
	if t == nil {
		item = object{"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []any{}}
		part := object{"type": "output_text", "text": "", "annotations": []any{}}
		send("response.output_item.added", object{"output_index": 0, "item": item})
		send("response.content_part.added", object{"output_index": 0, "content_index": 0, "item_id": "msg_1", "part": part})
		send("response.output_text.delta", object{"output_index": 0, "content_index": 0, "item_id": "msg_1", "delta": scriptedText})
		part["text"] = scriptedText
		item["content"], item["status"] = []any{part}, "completed"
	} else {
		whole, first, second := t.arguments()
		item = object{"type": "function_call", "id": fmt.Sprintf("fc_%p", t), "call_id": fmt.Sprintf("call_%p", t), "name": t.tool, "arguments": "", "status": "in_progress"}
		send("response.output_item.added", object{"output_index": 0, "item": item})
		send("response.function_call_arguments.delta", object{"output_index": 0, "item_id": item["id"], "delta": first})
		s.middle()
		send("response.function_call_arguments.delta", object{"output_index": 0, "item_id": item["id"], "delta": second})
		item["arguments"], item["status"] = whole, "completed"
	}
	send("response.output_item.done", object{"output_index": 0, "item": item})
	response["status"], response["output"] = "completed", []any{item}
	response["usage"] = object{
		"input_tokens": scriptedInput, "output_tokens": scriptedOutput, "total_tokens": scriptedInput + scriptedOutput,
		"input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0},
	}
	send("response.completed", object{"response": response})
}

// chatAnswer is a turn as OpenAI's Chat Completions stream it.
func chatAnswer(s *sse, t *turn) {
	send := func(more object) {
		more["id"], more["object"], more["created"], more["model"] = "chatcmpl-1", "chat.completion.chunk", 1, "m-1"
		s.send("", more)
	}
	delta := func(d object, reason any) {
		send(object{"choices": []any{object{"index": 0, "delta": d, "finish_reason": reason}}})
	}
	delta(object{"role": "assistant", "content": ""}, nil)
	if t == nil {
		delta(object{"content": scriptedText}, nil)
		delta(object{}, "stop")
	} else {
		_, first, second := t.arguments()
		delta(object{"tool_calls": []any{object{"index": 0, "id": fmt.Sprintf("call_%p", t), "type": "function", "function": object{"name": t.tool, "arguments": first}}}}, nil)
		s.middle()
		delta(object{"tool_calls": []any{object{"index": 0, "function": object{"arguments": second}}}}, nil)
		delta(object{}, "tool_calls")
	}
	send(object{"choices": []any{}, "usage": object{"prompt_tokens": scriptedInput, "completion_tokens": scriptedOutput, "total_tokens": scriptedInput + scriptedOutput}})
	s.send("", "[DONE]")
}
