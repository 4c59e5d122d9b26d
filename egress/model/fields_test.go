package model

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tendril/budget"
	"tendril/fault"
)

// reading is one request, and what is made of it.
type reading struct {
	name    string
	in      string
	out     string   // as JSON, in any order; "" if it is refused
	removed []string // in the order of the request, tools first
	says    string   // what a refusal says
	permit  Permit
}

func same(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatalf("%v: %s", err, a)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	one, _ := json.Marshal(x)
	two, _ := json.Marshal(y)
	return string(one) == string(two)
}

func check(t *testing.T, d dialect, e form, cases []reading) {
	t.Helper()
	for _, c := range cases {
		q, err := read([]byte(c.in), d.permitting(c.permit), e, c.permit, nil)
		if c.out == "" {
			if err == nil || !strings.Contains(err.Error(), c.says) || c.says == "" {
				t.Errorf("%s: %v, want a refusal that says %q", c.name, err, c.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !same(t, string(q.body), c.out) {
			t.Errorf("%s: %s\nwant %s", c.name, q.body, c.out)
		}
		if strings.Join(q.removed, " ") != strings.Join(c.removed, " ") {
			t.Errorf("%s: %q were removed, want %q", c.name, q.removed, c.removed)
		}
	}
}

var (
	messagesForm  = form{output: []string{"max_tokens"}, counted: true}
	chatForm      = form{output: []string{"max_tokens", "max_completion_tokens"}, copies: true, usage: true, store: true, counted: true}
	responsesForm = form{output: []string{"max_output_tokens"}, store: true, counted: true}
)

func TestMessages(t *testing.T) {
	const head = `{"model":"m","max_tokens":9,"messages":[`
	user := func(content string) string { return head + `{"role":"user","content":[` + content + `]}]}` }
	with := func(members string) string { return head + `],` + members + `}` }
	same := func(name, text string) reading { return reading{name: name, in: text, out: text} }
	check(t, BuiltIn().anthropic, messagesForm, []reading{
		same("text", head+`{"role":"user","content":"hi"}]}`),
		same("blocks", user(`{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}`)),
		same("a tool's turn", head+`{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"1","name":"n","input":{"url":"https://x","file_id":"f","a":[{"type":"url"}]}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"x"}],"is_error":false}]}]}`),
		same("tools of the agent's", with(`"tools":[{"name":"Bash","input_schema":{"type":"object","properties":{"url":{"type":"string"}}}},{"type":"custom","name":"x"},{"type":"bash_20250124","name":"bash"}],"tool_choice":{"type":"auto"}`)),
		same("a document in the request", user(`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="},"title":"t"}`)),
		{name: "server tools", in: with(`"tool_choice":{"type":"auto"},"tools":[{"name":"Bash"},{"type":"web_search_20250305","name":"web_search","max_uses":8},{"type":"code_execution_20250825","name":"c"},{"type":"mcp_toolset","mcp_server_name":"s"}]`),
			out: with(`"tools":[{"name":"Bash"}],"tool_choice":{"type":"auto"}`), removed: []string{"tools.web_search_20250305", "tools.code_execution_20250825", "tools.mcp_toolset"}},
		{name: "nothing but server tools", in: with(`"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}],"tool_choice":{"type":"any"}`),
			out: head + `]}`, removed: []string{"tools.web_fetch_20250910", "request.tool_choice"}},
		{name: "the choice of a server tool", in: with(`"tool_choice":{"type":"tool","name":"web_search"},"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"Bash"}]`),
			out: with(`"tools":[{"name":"Bash"}]`), removed: []string{"tools.web_search_20250305", "request.tool_choice"}},
		{name: "a tool without a known type", in: with(`"tools":[{"name":"a","type":7}]`), says: "a type in tools is not text"},
		{name: "what reaches or spends elsewhere", in: with(`"mcp_servers":[{"type":"url","url":"https://x"}],"container":"c","service_tier":"auto","speed":"fast","inference_geo":"us","fallbacks":[{"model":"x"}],"billing_policy":{},"unheard":1`),
			out: head + `]}`, removed: []string{"request.mcp_servers", "request.container", "request.service_tier", "request.speed", "request.inference_geo", "request.fallbacks", "request.billing_policy", "request.unheard"}},
		{name: "a cache for an hour", in: user(`{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}`),
			out: user(`{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}`), removed: []string{"ephemeral.ttl"}},
		{name: "compaction on the provider's side", in: with(`"context_management":{"edits":[{"type":"compact_20260112"},{"type":"clear_thinking_20251015","keep":"all"}]}`),
			out: with(`"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}`), removed: []string{"edits.compact_20260112"}},
		{name: "a picture from elsewhere", in: user(`{"type":"image","source":{"type":"url","url":"https://x/a.png"}}`), says: `source in the request holds "url"`},
		{name: "a picture from elsewhere in a result", in: user(`{"type":"tool_result","tool_use_id":"1","content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}`), says: `holds "url"`},
		{name: "a stored file", in: user(`{"type":"document","source":{"type":"file","file_id":"f"}}`), says: `holds "file"`},
		{name: "a stored file without its type", in: user(`{"type":"document","source":{"file_id":"f"}}`), says: `holds "source"`},
		{name: "an upload", in: user(`{"type":"container_upload","file_id":"f"}`), says: `holds "container_upload"`},
		{name: "a block of no kind", in: user(`{"text":"x","file_id":"f"}`), says: "file_id"},
		{name: "a stored thread", in: with(`"thread":{"id":"t"}`), says: "asks for thread"},
		{name: "no thread", in: with(`"thread":null`), out: head + `]}`, removed: []string{"request.thread"}},
		same("settings", with(`"metadata":{"user_id":"x"},"thinking":{"type":"enabled","budget_tokens":5000},"output_config":{"effort":"high","format":{"type":"json_schema","schema":{"any":{"type":"x"}}}},"tools":[{"name":"n","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"n","disable_parallel_tool_use":true}`)),
		{name: "more in a setting", in: with(`"metadata":{"user_id":"x","z":1},"thinking":{"type":"enabled","budget_tokens":5000,"x":1},"output_config":{"effort":"high","speed":1},"output_format":{"type":"json_schema","schema":{},"x":{}},"tool_choice":{"type":"auto","x":1},"context_management":{"edits":[{"type":"clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":1,"x":1},"keep":{"type":"tool_uses","value":1,"x":1},"clear_at_least":{"type":"input_tokens","value":1,"x":2}}]}`),
			out:     with(`"metadata":{"user_id":"x"},"thinking":{"type":"enabled","budget_tokens":5000},"output_config":{"effort":"high"},"output_format":{"type":"json_schema","schema":{}},"tool_choice":{"type":"auto"},"context_management":{"edits":[{"type":"clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":1},"keep":{"type":"tool_uses","value":1},"clear_at_least":{"type":"input_tokens","value":1}}]}`),
			removed: []string{"metadata.z", "enabled.x", "output_config.speed", "json_schema.x", "auto.x", "input_tokens.x", "tool_uses.x"}},
		{name: "more in what is said about citations", in: user(`{"type":"document","source":{"type":"text","data":"x"},"citations":{"enabled":true,"x":1}}`), out: user(`{"type":"document","source":{"type":"text","data":"x"},"citations":{"enabled":true}}`), removed: []string{"citations.x"}},
		{name: "thinking of a kind that is not known", in: with(`"thinking":{"type":"elsewhere"}`), says: `thinking in the request holds "elsewhere"`},
		{name: "another spelling of a known key", in: `{"Model":"x","model":"m","max_tokens":9,"messages":[]}`, out: head + `]}`, removed: []string{"request.Model"}},
		{name: "an escaped spelling of a known key", in: `{"mod\u0065l":"m","max_tokens":9,"messages":[]}`, out: head + `]}`},
		{name: "an escaped spelling of a type", in: user(`{"type":"\u0075rl"}`), says: `holds "url"`},
		{name: "a key that comes twice", in: `{"model":"m","model":"n","max_tokens":9,"messages":[]}`, says: `"model" comes twice`},
		{name: "a key that comes twice, escaped", in: `{"model":"m","\u006dodel":"n","max_tokens":9,"messages":[]}`, says: `"model" comes twice`},
		{name: "a key that comes twice, deep", in: with(`"metadata":{"a":{"b":1,"b":2}}`), says: `"b" comes twice`},
		{name: "an output that two readers differ on", in: `{"model":"m","max_tokens":9.0,"messages":[]}`, says: "max_tokens is not a whole number"},
		{name: "an output in another form", in: `{"model":"m","max_tokens":1e3,"messages":[]}`, says: "max_tokens"},
		{name: "an output as text", in: `{"model":"m","max_tokens":"9","messages":[]}`, says: "max_tokens"},
		{name: "a negative output", in: `{"model":"m","max_tokens":-1,"messages":[]}`, says: "max_tokens"},
		{name: "an output beyond counting", in: `{"model":"m","max_tokens":99999999999999999999999,"messages":[]}`, says: "max_tokens"},
		{name: "no model", in: `{"max_tokens":9,"messages":[]}`, says: "not the name of a model"},
		{name: "a model that is no text", in: `{"model":["m"],"max_tokens":9,"messages":[]}`, says: "not the name of a model"},
		{name: "a stream that is neither", in: with(`"stream":1`), says: "stream is neither"},
		{name: "an output in yet another form", in: `{"model":"m","max_tokens":-0,"messages":[]}`, says: "max_tokens"},
		{name: "a type of the whole", in: with(`"type":"batch"`), out: head + `]}`, removed: []string{"request.type"}},
		{name: "a request in a message", in: user(`{"type":"request","model":"n"}`), says: `holds "request"`},
		{name: "no object", in: `[1]`, says: "not an object"},

		{name: "strict", in: with(`"speed":"fast","tools":[{"type":"web_search_20250305"}]`), permit: Permit{Strict: true}, says: "tools.web_search_20250305, request.speed"},
		{name: "strict, and nothing to take out", in: head + `]}`, out: head + `]}`, permit: Permit{Strict: true}},
		{name: "a tool that the grant names", in: with(`"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":8},{"type":"web_fetch_20250910"}]`),
			out:    with(`"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":8}]`),
			permit: Permit{Tools: []string{"web_search_20250305"}}, removed: []string{"tools.web_fetch_20250910"}},
		{name: "a field that the grant names", in: with(`"mcp_servers":[{"type":"url","url":"https://x"}],"thread":{"id":"t"}`),
			out: with(`"mcp_servers":[{"type":"url","url":"https://x"}],"thread":{"id":"t"}`), permit: Permit{Fields: []string{"mcp_servers", "thread"}}},
		{name: "a model that the grant does not name", in: head + `]}`, permit: Permit{Models: []string{"n"}}, says: "the model m is not one that the grant names"},
		{name: "a model that the grant names", in: head + `]}`, out: head + `]}`, permit: Permit{Models: []string{"n", "m"}}},
	})
}

func TestChat(t *testing.T) {
	const head = `{"model":"m","messages":[`
	user := func(content, more string) string {
		return head + `{"role":"user","content":[` + content + `]}]` + more + `}`
	}
	const store = `,"store":false`
	check(t, BuiltIn().chat, chatForm, []reading{
		{name: "text", in: head + `{"role":"user","content":"hi","name":"n"}],"n":2,"temperature":0.5}`, out: head + `{"role":"user","content":"hi","name":"n"}],"n":2,"temperature":0.5` + store + `}`},
		{name: "a stream reports its usage", in: head + `],"stream":true}`, out: head + `],"stream":true` + store + `,"stream_options":{"include_usage":true}}`},
		{name: "a stream that was to report none", in: head + `],"stream":true,"stream_options":{"include_usage":false}}`, out: head + `],"stream":true` + store + `,"stream_options":{"include_usage":true}}`},
		{name: "no stream", in: head + `],"stream_options":{"include_usage":true},"stream":false}`, out: head + `],"stream":false` + store + `}`},
		{name: "an answer that was to be stored", in: head + `],"store":true}`, out: head + `]` + store + `}`, removed: []string{"request.store"}},
		{name: "a tool's turn", in: head + `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"n","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]}`,
			out: head + `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"n","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]` + store + `}`},
		{name: "a picture in the request", in: user(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}}`, ""), out: user(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}}`, store)},
		{name: "a picture from elsewhere", in: user(`{"type":"image_url","image_url":{"url":"https://x/a.png"}}`, ""), says: "url in the request is not a data: URL"},
		{name: "a picture from elsewhere, in capitals", in: user(`{"type":"image_url","image_url":{"url":"HTTP://x/a.png"}}`, ""), says: "not a data: URL"},
		{name: "a picture from elsewhere, as text", in: user(`{"type":"image_url","image_url":"https://x"}`, ""), says: "image_url in the request is not a data: URL"},
		{name: "a stored file", in: user(`{"type":"file","file":{"file_id":"f"}}`, ""), says: "asks for file_id"},
		{name: "sound", in: user(`{"type":"input_audio","input_audio":{"data":"","format":"wav"}}`, ""), says: `holds "input_audio"`},
		{name: "search on the provider's side", in: head + `],"web_search_options":{}}`, says: "asks for web_search_options"},
		{name: "what costs otherwise", in: head + `],"service_tier":"priority","modalities":["audio"],"audio":{},"prediction":{"type":"content","content":"x"}}`, out: head + `]` + store + `}`,
			removed: []string{"request.service_tier", "request.modalities", "request.audio", "request.prediction"}},
		{name: "tools", in: head + `],"parallel_tool_calls":true,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},{"type":"web_search"}]}`,
			out: head + `],"parallel_tool_calls":true,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]` + store + `}`, removed: []string{"tools.web_search"}},
		{name: "settings", in: head + `],"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"any":{"type":"x"}}}},"tools":[{"type":"function","function":{"name":"f","strict":false}},{"type":"custom","custom":{"name":"c","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"x"}}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"functions":[{"name":"g","parameters":{"a":1}}],"function_call":{"name":"g"}}`,
			out: head + `],"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"any":{"type":"x"}}}},"tools":[{"type":"function","function":{"name":"f","strict":false}},{"type":"custom","custom":{"name":"c","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"x"}}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"functions":[{"name":"g","parameters":{"a":1}}],"function_call":{"name":"g"}` + store + `}`},
		{name: "more in a setting", in: head + `],"response_format":{"type":"json_schema","json_schema":{"name":"n","x":1},"y":2},"tools":[{"type":"function","function":{"name":"f","z":1}}],"tool_choice":{"type":"function","function":{"name":"f"},"server":1},"functions":[{"name":"g","u":1}],"function_call":{"name":"g","v":1}}`,
			out:     head + `],"response_format":{"type":"json_schema","json_schema":{"name":"n"}},"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}},"functions":[{"name":"g"}],"function_call":{"name":"g"}` + store + `}`,
			removed: []string{"function.z", "json_schema.x", "json_schema.y", "function.server", "functions.u", "function_call.v"}},
		{name: "more copies than a model gives", in: head + `],"n":129}`, says: "n is not a whole number from 0 to 128"},
		{name: "stream options of another form", in: head + `],"stream_options":[]}`, says: "stream_options is not"},
	})
}

func TestResponses(t *testing.T) {
	const head = `{"model":"m","input":[`
	item := func(text, more string) string { return head + text + `]` + more + `}` }
	const store = `,"store":false`
	same := func(name, text string) reading {
		return reading{name: name, in: item(text, ""), out: item(text, store)}
	}
	check(t, BuiltIn().responses, responsesForm, []reading{
		{name: "text", in: `{"model":"m","input":"hi"}`, out: `{"model":"m","input":"hi","store":false}`},
		same("messages", `{"role":"user","content":"x"},{"type":"message","role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"}]}`),
		same("a tool's turn", `{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"x"}],"encrypted_content":"e"},{"type":"function_call","call_id":"1","name":"n","arguments":"{\"url\":\"https://x\"}"},
			{"type":"function_call_output","call_id":"1","output":"x"},{"type":"custom_tool_call_output","call_id":"2","output":[{"type":"input_text","text":"x"}]}`),
		{name: "a stored answer", in: item(``, `,"previous_response_id":"r"`), says: "asks for previous_response_id"},
		{name: "no stored answer", in: item(``, `,"previous_response_id":null,"background":false`), out: item(``, store), removed: []string{"request.previous_response_id", "request.background"}},
		{name: "background", in: item(``, `,"background":true`), says: "asks for background"},
		{name: "a stored conversation", in: item(``, `,"conversation":"c"`), says: "asks for conversation"},
		{name: "a stored prompt", in: item(``, `,"prompt":{"id":"p"}`), says: "asks for prompt"},
		{name: "a reference", in: item(`{"type":"item_reference","id":"i"}`, ""), says: `holds "item_reference"`},
		{name: "a reference without its type", in: item(`{"type":null,"id":"i"}`, ""), out: item(`{"type":null}`, store), removed: []string{"input.id"}},
		{name: "a stored picture", in: item(`{"role":"user","content":[{"type":"input_image","file_id":"f"}]}`, ""), says: "asks for file_id"},
		{name: "a picture from elsewhere", in: item(`{"role":"user","content":[{"type":"input_image","image_url":"https://x"}]}`, ""), says: "not a data: URL"},
		{name: "a picture from elsewhere in a result", in: item(`{"type":"function_call_output","call_id":"1","output":[{"type":"input_image","image_url":"https://x"}]}`, ""), says: "not a data: URL"},
		{name: "a screen from elsewhere", in: item(`{"type":"computer_call_output","call_id":"1","output":{"type":"computer_screenshot","image_url":"https://x"}}`, ""), says: "not a data: URL"},
		{name: "a file from elsewhere", in: item(`{"role":"user","content":[{"type":"input_file","file_url":"https://x"}]}`, ""), says: "asks for file_url"},
		{name: "an item that starts work", in: item(`{"type":"mcp_approval_response","approve":true}`, ""), says: `holds "mcp_approval_response"`},
		{name: "what is stored by itself", in: item(``, `,"store":true`), out: item(``, store), removed: []string{"request.store"}},
		{name: "settings", in: item(``, `,"text":{"verbosity":"low","format":{"type":"json_schema","name":"n","schema":{"any":{"type":"x"}},"strict":true}},"reasoning":{"effort":"high","summary":"auto"},"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"x"}}],"tool_choice":{"type":"custom","name":"c"}`),
			out: item(``, `,"text":{"verbosity":"low","format":{"type":"json_schema","name":"n","schema":{"any":{"type":"x"}},"strict":true}},"reasoning":{"effort":"high","summary":"auto"},"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"x"}}],"tool_choice":{"type":"custom","name":"c"}`+store)},
		{name: "more in a setting", in: item(``, `,"text":{"verbosity":"low","x":1,"format":{"type":"text","y":1}},"reasoning":{"effort":"high","z":1},"tools":[{"type":"custom","name":"c","format":{"type":"grammar","u":1}}],"tool_choice":{"type":"custom","name":"c","v":1}`),
			out:     item(``, `,"text":{"verbosity":"low","format":{"type":"text"}},"reasoning":{"effort":"high"},"tools":[{"type":"custom","name":"c","format":{"type":"grammar"}}],"tool_choice":{"type":"custom","name":"c"}`+store),
			removed: []string{"grammar.u", "text.x", "text.y", "reasoning.z", "custom.v"}},
		{name: "server tools", in: item(``, `,"tool_choice":"auto","tools":[{"type":"function","name":"f","parameters":{}},{"type":"web_search","external_web_access":true},{"type":"file_search"},{"type":"code_interpreter","container":{"type":"auto"}},{"type":"mcp","server_url":"https://x"},{"type":"image_generation"},{"type":"shell","environment":{"type":"container_auto"}}]`),
			out: item(``, `,"tool_choice":"auto","tools":[{"type":"function","name":"f","parameters":{}}]`+store), removed: []string{"tools.web_search", "tools.file_search", "tools.code_interpreter", "tools.mcp", "tools.image_generation", "tools.shell"}},
		{name: "server tools in a namespace", in: item(``, `,"tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp","server_url":"https://x"},{"type":"function","name":"f"}]}]`),
			out: item(``, `,"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]`+store), removed: []string{"tools.mcp"}},
		{name: "server tools in the history", in: item(`{"type":"additional_tools","role":"developer","tools":[{"type":"mcp"},{"type":"custom","name":"c"}]}`, ""),
			out: item(`{"type":"additional_tools","role":"developer","tools":[{"type":"custom","name":"c"}]}`, store), removed: []string{"tools.mcp"}},
		{name: "a search among tools", in: item(``, `,"tools":[{"type":"tool_search","execution":"client"},{"type":"tool_search"},{"type":"tool_search","more":1,"execution":"server"}]`),
			out: item(``, `,"tools":[{"type":"tool_search","execution":"client"}]`+store), removed: []string{"tools.tool_search"}},
		{name: "the choice of a server tool", in: item(``, `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"},{"type":"function","name":"f"}]},"tools":[{"type":"function","name":"f"},{"type":"web_search"}]`),
			out: item(``, `,"tools":[{"type":"function","name":"f"}]`+store), removed: []string{"tools.web_search", "request.tool_choice"}},
		{name: "a tool that the grant names", in: item(``, `,"tools":[{"type":"web_search","external_web_access":true}]`), out: item(``, `,"tools":[{"type":"web_search","external_web_access":true}]`+store), permit: Permit{Tools: []string{"web_search"}}},
	})
}

func TestAddedFields(t *testing.T) {
	more := `
version: 1
anthropic:
  kinds:
    request: [speed]
    ephemeral: [ttl]
    sketch: [strokes, source/]
  betas: [new-2027-01-01]
`
	f, err := WithFile(FieldsFileName, []byte(more))
	if err != nil {
		t.Fatal(err)
	}
	const text = `{"model":"m","max_tokens":1,"speed":"fast","messages":[{"role":"user","content":[{"type":"sketch","strokes":[],"source":{"type":"base64","data":""},"cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}`
	check(t, f.anthropic, messagesForm, []reading{
		{name: "what was added", in: text, out: strings.Replace(text, `,"cache_control":{"type":"ephemeral","ttl":"1h"}`, "", 1), removed: []string{"sketch.cache_control"}},
	})
	if !f.anthropic.betas["new-2027-01-01"] || !f.anthropic.betas["effort-2025-11-24"] {
		t.Error(f.anthropic.betas)
	}
	if _, known := BuiltIn().anthropic.kinds["sketch"]; known {
		t.Error("a file changed what is built in")
	}
	for text, says := range map[string]string{
		"version: 1\ngemini: {}\n":                                     "unknown key",
		"version: 1\nanthropic: {kinds: {request: [\"a b\"]}}\n":       "is not a key",
		"version: 1\nanthropic: {kinds: {request: [\"a=\"]}}\n":        "is not a key",
		"version: 1\nanthropic: {refused: [\"\"]}\n":                   "is not a name",
		"version: 1\nopenai-chat: {media: {image_url: 0}}\n":           "not a number of tokens",
		"version: 1\nopenai-responses: {kinds: {request: [\"!x\"]}}\n": "is not a key",
	} {
		if _, err := WithFile(FieldsFileName, []byte(text)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What a request can be in tokens does not depend on how small a picture is packed.
func TestMediaCountByWhatTheyCanBe(t *testing.T) {
	d := BuiltIn().anthropic
	input := func(content string) int64 {
		q, err := read([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[`+content+`]}]}`), d, messagesForm, Permit{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q.input - overhead
	}
	image := func(bytes int) string {
		return `{"type":"image","source":{"type":"base64","data":"` + strings.Repeat("A", bytes) + `"}}`
	}
	empty := input("")
	if got := input(image(1)) - empty; got != 20_000 {
		t.Errorf("a small picture adds %d", got)
	}
	if got := input(image(1<<20)) - empty; got != 20_000 {
		t.Errorf("a large picture adds %d", got)
	}
	if got := input(`{"type":"tool_result","tool_use_id":"1","content":[`+image(9)+`]}`) - empty; got < 20_000 || got > 20_100 {
		t.Errorf("a picture in a result adds %d", got)
	}
	if got := input(`{"type":"document","source":{"type":"content","content":[`+image(9)+`]}}`) - empty; got < 1_000_000 {
		t.Errorf("a document adds %d", got)
	}
	chat, err := read([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}]}`), BuiltIn().chat, chatForm, Permit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := chat.input - overhead - int64(len(`{"model":"m","messages":[{"role":"user","content":[]}],"store":false}`)); got != 20_000 {
		t.Errorf("a picture of a part within a part adds %d", got)
	}
}

func TestTheLargestBoundCounts(t *testing.T) {
	for body, want := range map[string]int64{
		`{"model":"m","messages":[],"max_tokens":7,"max_completion_tokens":5}`:    7,
		`{"model":"m","messages":[],"max_completion_tokens":5,"max_tokens":7}`:    7,
		`{"model":"m","messages":[],"max_completion_tokens":9,"max_tokens":null}`: 9,
		`{"model":"m","messages":[],"max_completion_tokens":9,"max_tokens":7}`:    9,
		`{"model":"m","messages":[]}`:                                             0,
	} {
		q, err := read([]byte(body), BuiltIn().chat, chatForm, Permit{}, nil)
		if err != nil || q.output != want {
			t.Errorf("%s: %+v, %v; want %d", body, q, err, want)
		}
	}
}

func TestTheRecordOfWhatIsRemovedIsBounded(t *testing.T) {
	var more strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&more, `,"%s%d\n":1`, strings.Repeat("long", 50), i)
		fmt.Fprintf(&more, `,"\u202e%d":1`, i)
	}
	q, err := read([]byte(`{"model":"m","max_tokens":1,"messages":[]`+more.String()+`}`), BuiltIn().anthropic, messagesForm, Permit{}, nil)
	if err != nil || len(q.removed) != mostRemoved {
		t.Fatalf("%d names, %v", len(q.removed), err)
	}
	for _, name := range q.removed {
		if len(name) > 96 || strings.Trim(name, "?") == "" || !isKey(strings.ReplaceAll(name[:min(len(name), 64)], "?", "")) {
			t.Errorf("%q", name)
		}
	}
}

func TestAReportIsTakenWholeOrNotAtAll(t *testing.T) {
	for _, absurd := range []budget.Usage{{Input: -1}, {Output: -1}, {CacheRead: -1}, {CacheWrite: -1}, {Input: mostCounted + 1}} {
		var m meter
		m.report(budget.Usage{Input: 1})
		m.report(absurd)
		if m.reported {
			t.Errorf("%+v is relied on, after %+v", m.usage, absurd)
		}
	}
}
