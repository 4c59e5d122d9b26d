package sprout

import (
	"context"
	"encoding/json"
	"net/http"
)

// openAI speaks Chat Completions, streamed.
type openAI struct {
	*endpoint
	name   string // the model's
	output int    // tokens of one answer
	tools  []tool
}

func newOpenAI(o Options, tools []tool) (model, error) {
	e, err := newEndpoint(o.BaseURL, "/chat/completions", http.Header{"Authorization": {"Bearer " + placeholder}})
	return &openAI{endpoint: e, name: o.Model, output: o.Output, tools: tools}, err
}

type openAIRequest struct {
	Model     string          `json:"model"`
	MaxTokens int             `json:"max_completion_tokens"`
	Stream    bool            `json:"stream"`
	Tools     []openAITool    `json:"tools"`
	Messages  []openAIMessage `json:"messages"`
}

type openAITool struct {
	Type     string `json:"type"` // function
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

type openAIMessage struct {
	Role       string       `json:"role"`
	Content    *string      `json:"content"` // null in an answer of calls alone
	ToolCalls  []openAICall `json:"tool_calls,omitempty"`
	ToolCallID string       `json:"tool_call_id,omitempty"`
}

type openAICall struct {
	Index    *int   `json:"index,omitempty"` // in a stream
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func (o *openAI) next(ctx context.Context, h *history) (turn, error) {
	var answer openAIAnswer
	err := o.stream(ctx, o.request(h), answer.take)
	if err != nil {
		return turn{}, err
	}
	switch answer.reason {
	case "stop", "tool_calls", "length":
		return answer.turn(answer.reason == "length")
	case "content_filter":
		return turn{}, fail(refused, "the model's answer was filtered")
	}
	return turn{}, garbage("the answer ended for the reason %q", start(answer.reason, 64))
}

func (o *openAI) request(h *history) openAIRequest {
	r := openAIRequest{Model: o.name, MaxTokens: o.output, Stream: true}
	for _, t := range o.tools {
		offered := openAITool{Type: "function"}
		offered.Function.Name, offered.Function.Description = t.name, t.about
		offered.Function.Parameters = json.RawMessage(t.schema)
		r.Tools = append(r.Tools, offered)
	}
	say := func(role, text string) {
		r.Messages = append(r.Messages, openAIMessage{Role: role, Content: &text})
	}
	say("system", h.system)
	say("user", h.request())
	for _, x := range h.exchanges {
		if x.said.text != "" || len(x.said.calls) > 0 {
			said := openAIMessage{Role: "assistant"}
			if x.said.text != "" {
				said.Content = &x.said.text
			}
			for _, c := range x.said.calls {
				made := openAICall{ID: c.id, Type: "function"}
				made.Function.Name, made.Function.Arguments = c.name, c.input
				said.ToolCalls = append(said.ToolCalls, made)
			}
			r.Messages = append(r.Messages, said)
		}
		for i, c := range x.said.calls {
			text := x.results[i].text
			if x.results[i].failed {
				text = "error: " + text
			}
			r.Messages = append(r.Messages, openAIMessage{Role: "tool", ToolCallID: c.id, Content: &text})
		}
		if x.note != "" {
			say("user", x.note)
		}
	}
	return r
}

// openAIAnswer collects the chunks of one answer.
type openAIAnswer struct {
	draft
	reason string
}

func (a *openAIAnswer) take(e event) (whole bool, err error) {
	if string(e.data) == "[DONE]" {
		if a.reason == "" {
			return false, garbage("the answer is done and says no reason")
		}
		return true, nil
	}
	var chunk struct {
		Choices []struct {
			Delta struct {
				Content   string
				Refusal   string
				ToolCalls []openAICall `json:"tool_calls"`
			}
			FinishReason string `json:"finish_reason"`
		}
		Error *problem
	}
	if err := json.Unmarshal(e.data, &chunk); err != nil {
		return false, garbage("a chunk of the answer is no JSON: %w", err)
	}
	if chunk.Error != nil {
		return false, chunk.Error.failure(0)
	}
	if len(chunk.Choices) == 0 { // usage
		return false, nil
	}
	choice := chunk.Choices[0]
	if err := a.say(choice.Delta.Content + choice.Delta.Refusal); err != nil {
		return false, err
	}
	for _, c := range choice.Delta.ToolCalls {
		if err := a.call(c); err != nil {
			return false, err
		}
	}
	if choice.FinishReason != "" {
		a.reason = choice.FinishReason
	}
	return false, nil
}

// call takes a piece of a call: the first one has the id and the name.
func (a *openAIAnswer) call(c openAICall) error {
	i := 0
	if c.Index != nil {
		i = *c.Index
	}
	if i == len(a.calls) {
		if _, err := a.open(c.ID, c.Function.Name); err != nil {
			return err
		}
	}
	if i < 0 || i >= len(a.calls) {
		return garbage("the answer goes on with a tool call that it did not begin")
	}
	return a.extend(i, c.Function.Arguments)
}
