package model

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"
)

// Requests of the form that today's agents send pass as they are, but for what is named.
func TestWhatAgentsSend(t *testing.T) {
	f := BuiltIn()
	for name, c := range map[string]struct {
		dialect
		form
		removed []string          // names, as they are recorded
		gone    []string          // members of the request
		changed map[string]string // members of the request, as they are instead
	}{
		"claude":        {f.anthropic, messagesForm, nil, nil, nil},
		"claude-search": {f.anthropic, messagesForm, []string{"tools.web_search_20250305", "request.tool_choice"}, []string{"tools", "tool_choice"}, nil},
		"codex": {f.responses, responsesForm, []string{"tools.web_search", "request.client_metadata"}, []string{"client_metadata"}, map[string]string{
			"tools": `[{"type": "function", "name": "exec_command", "description": "Run a command", "strict": false, "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}}},
				{"type": "custom", "name": "apply_patch", "description": "Edit files", "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin"}},
				{"type": "namespace", "name": "multi_agent_v1", "description": "Other agents", "tools": [{"type": "function", "name": "close_agent", "description": "Close one", "strict": false, "parameters": {"type": "object", "properties": {}}}]}]`}},
		"opencode": {f.chat, chatForm, nil, nil, map[string]string{"store": "false"}},
		"pi":       {f.chat, chatForm, nil, nil, nil},
	} {
		text, err := os.ReadFile("testdata/agents/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		q, err := read(text, c.dialect, c.form, Permit{}, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Join(q.removed, " ") != strings.Join(c.removed, " ") {
			t.Errorf("%s: %q were removed", name, q.removed)
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(want, func(key string, _ json.RawMessage) bool {
			return strings.Contains(" "+strings.Join(c.gone, " ")+" ", " "+key+" ")
		})
		for key, value := range c.changed {
			want[key] = json.RawMessage(value)
		}
		expected, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if !same(t, string(q.body), string(expected)) {
			t.Errorf("%s:\n%s\nwant\n%s", name, q.body, expected)
		}
		if !q.stream {
			t.Errorf("%s: no stream", name)
		}
	}
}
