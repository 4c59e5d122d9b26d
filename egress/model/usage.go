package model

import (
	"encoding/json"

	"tendril/budget"
)

// meter reads what a provider reports of one answer.
type meter struct {
	usage    budget.Usage
	reported bool  // all counts of usage were there, and are counts
	absurd   bool  // a count was there that is beyond counting
	ended    bool  // a stream ended as it should; what was reported before is not all
	written  int64 // bytes of text that a stream has given so far
	extra    bool  // the event that was read last holds usage and nothing else
}

// longestToken is the most bytes that one token of today's vocabularies stands for; the
// longest ones are runs of spaces. So a text has at least its bytes divided by it.
const longestToken = 128

// least is the fewest output tokens that what a stream has given can be.
func (m *meter) least() int64 { return m.written / longestToken }

// report takes a usage that was read, if its counts are counts.
func (m *meter) report(u budget.Usage) {
	m.absurd = max(u.Input, u.Output, u.CacheRead, u.CacheWrite) > mostCounted
	if m.reported = countable(u); m.reported {
		m.usage = u
	}
}

// anthropicUsage is "usage" of the Messages API. Null and missing counts are not there.
type anthropicUsage struct {
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`

	// Iterations are the parts of an answer that took several rounds. The counts above
	// leave some of them out, such as a compaction.
	Iterations []anthropicUsage `json:"iterations"`
}

func (a *anthropicUsage) apply(u *budget.Usage) {
	for _, one := range []struct {
		from *int64
		to   *int64
	}{{a.Input, &u.Input}, {a.Output, &u.Output}, {a.CacheRead, &u.CacheRead}, {a.CacheWrite, &u.CacheWrite}} {
		if one.from != nil {
			*one.to = *one.from
		}
	}
	var sum budget.Usage
	for _, iteration := range a.Iterations {
		var part budget.Usage
		iteration.Iterations = nil
		iteration.apply(&part)
		if iteration.Input == nil || iteration.Output == nil || !countable(part) {
			u.Input = -1 // no report
			return
		}
		sum.Input, sum.Output = sum.Input+part.Input, sum.Output+part.Output
		sum.CacheRead, sum.CacheWrite = sum.CacheRead+part.CacheRead, sum.CacheWrite+part.CacheWrite
	}
	if len(a.Iterations) > 0 && countable(*u) {
		u.Input, u.Output = max(u.Input, sum.Input), max(u.Output, sum.Output)
		u.CacheRead, u.CacheWrite = max(u.CacheRead, sum.CacheRead), max(u.CacheWrite, sum.CacheWrite)
	}
}

// mostCounted keeps sums of counts far from where they wrap.
const mostCounted = 1 << 40

func countable(u budget.Usage) bool {
	for _, n := range []int64{u.Input, u.Output, u.CacheRead, u.CacheWrite} {
		if n < 0 || n > mostCounted {
			return false
		}
	}
	return true
}

func anthropicBody(m *meter, data []byte) {
	var answer struct {
		Usage *anthropicUsage `json:"usage"`
	}
	if json.Unmarshal(data, &answer) != nil || answer.Usage == nil || answer.Usage.Input == nil || answer.Usage.Output == nil {
		return
	}
	var u budget.Usage
	answer.Usage.apply(&u)
	m.report(u)
}

func anthropicEvent(m *meter, data []byte) {
	var event struct {
		Type    string `json:"type"`
		Message struct {
			Usage *anthropicUsage `json:"usage"`
		} `json:"message"`
		Usage *anthropicUsage `json:"usage"`
		Delta struct {
			Text     string `json:"text"`
			JSON     string `json:"partial_json"`
			Thinking string `json:"thinking"`
		} `json:"delta"`
	}
	if json.Unmarshal(data, &event) != nil {
		return
	}
	switch event.Type {
	case "message_start":
		// The output of this one is of the beginning only: what counts comes with the delta.
		if first := event.Message.Usage; first != nil && first.Input != nil {
			first.apply(&m.usage)
		}
	case "content_block_delta":
		m.written += int64(len(event.Delta.Text) + len(event.Delta.JSON) + len(event.Delta.Thinking))
	case "message_delta":
		if last := event.Usage; last != nil && last.Output != nil {
			u := m.usage
			last.apply(&u)
			m.report(u)
		}
	case "message_stop":
		m.ended = true
	}
}

// openaiUsage is "usage" of both OpenAI APIs, which spell it differently.
type openaiUsage struct {
	Prompt     *int64 `json:"prompt_tokens"`
	Completion *int64 `json:"completion_tokens"`
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
	Total      *int64 `json:"total_tokens"`

	PromptDetails openaiDetails `json:"prompt_tokens_details"`
	InputDetails  openaiDetails `json:"input_tokens_details"`
}

// openaiDetails says which of the input tokens were cached.
type openaiDetails struct {
	Read  int64 `json:"cached_tokens"`
	Write int64 `json:"cache_write_tokens"`
}

func (m *meter) reportOpenAI(input, output, total *int64, cached openaiDetails) {
	if input == nil || output == nil {
		return
	}
	// Where this wraps, one of the four is no count either.
	u := budget.Usage{Input: *input - cached.Read - cached.Write, Output: *output, CacheRead: cached.Read, CacheWrite: cached.Write}
	if total != nil && *total > *input { // some servers leave reasoning out of the output
		u.Output = max(u.Output, *total-*input)
	}
	m.report(u)
}

func chatBody(m *meter, data []byte) {
	var answer struct {
		Usage *openaiUsage `json:"usage"`
	}
	if json.Unmarshal(data, &answer) == nil && answer.Usage != nil {
		m.reportOpenAI(answer.Usage.Prompt, answer.Usage.Completion, answer.Usage.Total, answer.Usage.PromptDetails)
	}
}

func chatEvent(m *meter, data []byte) {
	m.extra = false
	if string(data) == "[DONE]" {
		m.ended = true
		return
	}
	var chunk struct {
		Usage   *openaiUsage `json:"usage"`
		Choices []struct {
			Delta struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning_content"`
				Tools     []struct {
					Function struct {
						Arguments string `json:"arguments"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"delta"`
		} `json:"choices"`
	}
	if json.Unmarshal(data, &chunk) != nil {
		return
	}
	for _, choice := range chunk.Choices {
		m.written += int64(len(choice.Delta.Content) + len(choice.Delta.Reasoning))
		for _, tool := range choice.Delta.Tools {
			m.written += int64(len(tool.Function.Arguments))
		}
	}
	if u := chunk.Usage; u != nil {
		m.reportOpenAI(u.Prompt, u.Completion, u.Total, u.PromptDetails)
		m.extra = len(chunk.Choices) == 0
	}
}

func responsesBody(m *meter, data []byte) {
	var answer struct {
		Usage *openaiUsage `json:"usage"`
	}
	if json.Unmarshal(data, &answer) == nil && answer.Usage != nil {
		m.reportOpenAI(answer.Usage.Input, answer.Usage.Output, answer.Usage.Total, answer.Usage.InputDetails)
	}
}

func responsesEvent(m *meter, data []byte) {
	var event struct {
		Type     string          `json:"type"`
		Delta    json.RawMessage `json:"delta"`
		Response json.RawMessage `json:"response"`
	}
	if json.Unmarshal(data, &event) != nil {
		return
	}
	switch event.Type {
	case "response.completed", "response.incomplete", "response.failed":
		responsesBody(m, event.Response)
		m.ended = true
	default:
		var text string
		if len(event.Delta) > 0 && json.Unmarshal(event.Delta, &text) == nil {
			m.written += int64(len(text))
		}
	}
}
