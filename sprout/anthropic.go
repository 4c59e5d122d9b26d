package sprout

import (
	"context"
	"encoding/json"
	"net/http"
)

// anthropic speaks the Messages API, streamed.
type anthropic struct {
	*endpoint
	name   string // the model's
	output int    // tokens of one answer
	tools  []tool
}

func newAnthropic(o Options, tools []tool) (model, error) {
	e, err := newEndpoint(o.BaseURL, "/v1/messages", http.Header{
		"X-Api-Key":         {placeholder},
		"Anthropic-Version": {"2023-06-01"},
	})
	return &anthropic{endpoint: e, name: o.Model, output: o.Output, tools: tools}, err
}

type anthropicRequest struct {
	Model     string             `json:"model"`
	MaxTokens int                `json:"max_tokens"`
	Stream    bool               `json:"stream"`
	System    []anthropicBlock   `json:"system"`
	Tools     []anthropicTool    `json:"tools"`
	Messages  []anthropicMessage `json:"messages"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type anthropicMessage struct {
	Role    string           `json:"role"`
	Content []anthropicBlock `json:"content"`
}

// anthropicBlock is a block of text, of tool_use, or of tool_result.
type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Cache     *anthropicCache `json:"cache_control,omitempty"`
}

type anthropicCache struct {
	Type string `json:"type"`
}

func (a *anthropic) next(ctx context.Context, h *history) (turn, error) {
	answer := anthropicAnswer{blocks: map[int]int{}}
	err := a.stream(ctx, a.request(h), answer.take)
	if err != nil {
		return turn{}, err
	}
	switch answer.reason {
	case "end_turn", "stop_sequence", "tool_use", "max_tokens":
		return answer.turn(answer.reason == "max_tokens")
	case "model_context_window_exceeded":
		return turn{}, fail(tooLong, "the answer did not fit into the model's context")
	case "refusal":
		return turn{}, fail(refused, "the model refused to go on")
	}
	return turn{}, garbage("the answer ended for the reason %q", start(answer.reason, 64))
}

func (a *anthropic) request(h *history) anthropicRequest {
	r := anthropicRequest{
		Model: a.name, MaxTokens: a.output, Stream: true,
		System: []anthropicBlock{{Type: "text", Text: h.system}},
	}
	for _, t := range a.tools {
		r.Tools = append(r.Tools, anthropicTool{t.name, t.about, json.RawMessage(t.schema)})
	}
	say := func(role string, blocks ...anthropicBlock) {
		if len(blocks) > 0 {
			r.Messages = append(r.Messages, anthropicMessage{role, blocks})
		}
	}
	say("user", anthropicBlock{Type: "text", Text: h.request()})
	for _, x := range h.exchanges {
		var said, heard []anthropicBlock
		if x.said.text != "" {
			said = append(said, anthropicBlock{Type: "text", Text: x.said.text})
		}
		for i, c := range x.said.calls {
			said = append(said, anthropicBlock{Type: "tool_use", ID: c.id, Name: c.name, Input: json.RawMessage(c.input)})
			heard = append(heard, anthropicBlock{Type: "tool_result", ToolUseID: c.id, Content: x.results[i].text, IsError: x.results[i].failed})
		}
		if x.note != "" {
			heard = append(heard, anthropicBlock{Type: "text", Text: x.note})
		}
		say("assistant", said...)
		say("user", heard...)
	}
	// What is before a mark is cached, and costs a tenth when it comes again.
	last := r.Messages[len(r.Messages)-1].Content
	last[len(last)-1].Cache = &anthropicCache{"ephemeral"}
	return r
}

// anthropicAnswer collects the events of one answer.
type anthropicAnswer struct {
	draft
	blocks map[int]int // index of a block → index of its call
	reason string
}

func (a *anthropicAnswer) take(e event) (whole bool, err error) {
	var ev struct {
		Type  string
		Index int
		Block struct {
			Type, Text, ID, Name string
			Input                json.RawMessage
		} `json:"content_block"`
		Delta struct {
			Type, Text  string
			PartialJSON string `json:"partial_json"`
			StopReason  string `json:"stop_reason"`
		}
		Error problem
	}
	if err := json.Unmarshal(e.data, &ev); err != nil {
		return false, garbage("an event of the answer is no JSON: %w", err)
	}
	switch ev.Type {
	case "content_block_start":
		switch ev.Block.Type {
		case "text":
			return false, a.say(ev.Block.Text)
		case "tool_use":
			i, err := a.open(ev.Block.ID, ev.Block.Name)
			a.blocks[ev.Index] = i
			return false, err
		}
	case "content_block_delta":
		switch ev.Delta.Type {
		case "text_delta":
			return false, a.say(ev.Delta.Text)
		case "input_json_delta":
			i, ok := a.blocks[ev.Index]
			if !ok {
				return false, garbage("the answer goes on with a tool call that it did not begin")
			}
			return false, a.extend(i, ev.Delta.PartialJSON)
		}
	case "message_delta":
		a.reason = ev.Delta.StopReason
	case "message_stop":
		return true, nil
	case "error":
		return false, ev.Error.failure(0)
	}
	return false, nil
}
