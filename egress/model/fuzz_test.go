package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"tendril/budget"
	"tendril/fault"
)

// dialects are all forms of requests, by a number.
func dialects() []struct {
	dialect
	form
} {
	f := BuiltIn()
	return []struct {
		dialect
		form
	}{{f.anthropic, messagesForm}, {f.chat, chatForm}, {f.responses, responsesForm}}
}

// FuzzRead: what is passed on is JSON for every reader, and there is nothing in it that a
// second look would take out.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral","ttl":"1h"}},{"type":"image","source":{"type":"url","url":"https://x"}}]}],"tools":[{"name":"b"},{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"tool","name":"web_search"}}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":false},"store":true,"n":2,"max_completion_tokens":5,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		`{"model":"m","input":[{"role":"user","content":"x"},{"type":"function_call_output","call_id":"1","output":[{"type":"input_image","image_url":"data:x"}]},{"type":null,"id":"i"}],"tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp"}]},{"type":"tool_search","execution":"client"}],"background":null}`,
		`{"mod\u0065l":"m","model":"m"}`, `{"model":"m","\ud800":1}`, `[`, `{"model":"m"} x`, strings.Repeat("[", 200), "\xff", `{"a":1e5,"b":-0.5E+3,"c":"\u00e9\n"}`, `{"model":"m","tools":{"type":"mcp"}}`,
	} {
		for i := range dialects() {
			f.Add(i, []byte(seed))
		}
	}
	all := dialects()
	f.Fuzz(func(t *testing.T, which int, body []byte) {
		d := all[uint(which)%uint(len(all))]
		q, err := read(body, d.dialect, d.form, Permit{}, nil)
		if err != nil {
			if !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Denied) {
				t.Fatalf("%v", err)
			}
			return
		}
		if !json.Valid(q.body) {
			t.Fatalf("%q became %q", body, q.body)
		}
		again, err := read(q.body, d.dialect, d.form, Permit{Strict: true}, nil)
		if err != nil || !bytes.Equal(again.body, q.body) && !same(t, string(again.body), string(q.body)) {
			t.Fatalf("%q became %q, and that %v", body, q.body, err)
		}
		if again.model != q.model || again.output != q.output || again.copies != q.copies || again.stream != q.stream || again.input != q.input {
			t.Fatalf("%+v, and then %+v", q, again)
		}
		if len(q.removed) > mostRemoved {
			t.Fatalf("%d names are recorded", len(q.removed))
		}
	})
}

// FuzzDocument: what is taken for JSON is JSON, and what is not taken is not, or says
// what one reader would hide from another.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{`{}`, ` [1, 2.5e-3, "a\u00e9\ud83d\ude00", null, true, {"a":{"a":1}}] `, `{"a":1,"a":2}`, `01`, `1.`, `-`, `"\x"`, `"` + "\n" + `"`, `nul`, `{"a"}`, `[1,]`, `{,}`, "\ufeff{}", `{"\ud800":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := document(data)
		if err == nil != json.Valid(data) {
			if err == nil {
				t.Fatalf("%q is taken", data)
			}
			for _, reason := range []string{"comes twice", "nest deeper", "more than 10000 members", "more than 250000 values", "not UTF-8", "a key is not text"} {
				if strings.Contains(err.Error(), reason) {
					return
				}
			}
			t.Fatalf("%q: %v", data, err)
		}
	})
}

var readers = []struct{ body, event func(*meter, []byte) }{{anthropicBody, anthropicEvent}, {chatBody, chatEvent}, {responsesBody, responsesEvent}}

// FuzzUsage: whatever a provider sends, it comes out as it was, in whatever pieces it
// arrives, and a report that is relied on has counts that are counts.
func FuzzUsage(f *testing.F) {
	for _, seed := range []string{
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":11,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7,\"iterations\":[{\"input_tokens\":1,\"output_tokens\":1}]}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":7,\"total_tokens\":37,\"prompt_tokens_details\":{\"cached_tokens\":20}}}\r\n\r\ndata: [DONE]\n\n",
		"data:{\"type\":\"response.completed\",\ndata:\"response\":{\"usage\":{\"input_tokens\":9223372036854775807,\"output_tokens\":-1}}}\n\n",
		": ping\n\n\n\ndata\n\n", "data: {\"usage\":{}}", `{"usage":{"input_tokens":1,"output_tokens":2}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, r := range readers {
			var first meter
			for pass, source := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data))} {
				m := meter{usage: budget.Usage{Input: -1}}
				var out []byte
				if err := events(source, func(raw, data []byte) error {
					out = append(out, raw...)
					r.event(&m, data)
					return nil
				}); err != nil || !bytes.Equal(out, data) {
					t.Fatalf("%q came out as %q, %v", data, out, err)
				}
				if m.reported && !countable(m.usage) || m.written < 0 {
					t.Fatalf("%q reports %+v", data, m)
				}
				if pass == 0 {
					first = m
				} else if m != first {
					t.Fatalf("%q reports %+v, and in pieces %+v", data, first, m)
				}
			}
			var m meter
			r.body(&m, data)
			if m.reported && !countable(m.usage) {
				t.Fatalf("%q reports %+v", data, m.usage)
			}
		}
	})
}

// planted is what a request must not carry out: it stands wherever a provider would
// fetch, store or run something.
const planted = "PLANTED"

// TestNothingPlantedPasses builds requests out of what the tables know and what they do
// not, and plants in each place that is not theirs.
func TestNothingPlantedPasses(t *testing.T) {
	for _, d := range dialects() {
		var kinds []string
		for name := range d.kinds {
			if name != "request" {
				kinds = append(kinds, name)
			}
		}
		slices.Sort(kinds)
		foreign := rapid.SampledFrom([]string{"url", "file", "item_reference", "container_upload", "mcp", "web_search_20990101", "file_search", "code_interpreter", "image_generation", "shell", "x", "request"})
		keys := rapid.SampledFrom([]string{"url", "file_id", "file_url", "server_url", "connector_id", "container", "mcp_servers", "background", "previous_response_id", "conversation", "prompt", "thread", "Content", "source_url", "store_"})
		rapid.Check(t, func(rt *rapid.T) {
			var object func(depth int) map[string]any
			object = func(depth int) map[string]any {
				name := rapid.SampledFrom(kinds).Draw(rt, "kind")
				o := map[string]any{"type": name}
				if rapid.IntRange(0, 7).Draw(rt, "foreign") == 0 {
					o["type"] = foreign.Draw(rt, "type")
					o["value"] = planted
					return o
				}
				for key, r := range d.kinds[name].rules {
					switch {
					case r.only != "" && !r.into:
						o[key] = r.only
					case r.into && depth > 0 && rapid.Bool().Draw(rt, "list"):
						o[key] = []any{object(depth - 1), "text"}
					case r.into && depth > 0 && r.only == "":
						o[key] = object(depth - 1)
					}
				}
				if rapid.IntRange(0, 3).Draw(rt, "plant") == 0 {
					if key := keys.Draw(rt, "key"); d.kinds[name].rules[key] == (rule{}) && !hasRule(d.kinds[name], key) {
						o[key] = planted
					}
				}
				return o
			}
			request := map[string]any{"model": "m"}
			for key, r := range d.kinds["request"].rules {
				if r.into && rapid.Bool().Draw(rt, key) {
					request[key] = []any{object(3), object(2)}
				}
			}
			if rapid.Bool().Draw(rt, "top") {
				request[keys.Draw(rt, "key")] = planted
			}
			text, err := json.Marshal(request)
			if err != nil {
				rt.Fatal(err)
			}
			q, err := read(text, d.dialect, d.form, Permit{}, nil)
			if err == nil && bytes.Contains(q.body, []byte(planted)) {
				rt.Fatalf("%s\nbecame %s", text, q.body)
			}
			if _, err := read(text, d.dialect, d.form, Permit{Strict: true}, nil); err == nil && strings.Contains(string(text), planted) {
				rt.Fatalf("%s\nis passed on strictly", text)
			}
		})
	}
}

func hasRule(k kind, key string) bool {
	_, ok := k.rules[key]
	return ok
}

// endless is a stream of so many bytes.
type endless struct {
	event string
	left  int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := 0
	for n+len(e.event) <= len(p) {
		n += copy(p[n:], e.event)
	}
	e.left -= n
	return n, nil
}

// A stream costs the memory of an event, however long it is.
func TestAStreamCostsOneEvent(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	count := 0
	if err := events(&endless{"data: " + strings.Repeat("x", 1000) + "\n\n", 256 << 20}, func(_, data []byte) error {
		count++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("%d events cost %d bytes", count, used)
	}
}

func TestAnEventIsBounded(t *testing.T) {
	for name, stream := range map[string]string{"a line": strings.Repeat("x", 64), "lines": "data: " + strings.Repeat("x", 58) + "\n"} {
		source := &endless{stream, 1 << 30}
		err := events(source, func(raw, _ []byte) error { return nil })
		if !errors.Is(err, errTooLong) || 1<<30-source.left > 2*largestEvent {
			t.Errorf("%s: %v after %d bytes", name, err, 1<<30-source.left)
		}
	}
}

// Objects within objects are not read again and again without end.
func TestNestingIsBounded(t *testing.T) {
	content := `"x"`
	for range deepestKinds {
		content = `[{"type":"tool_result","content":` + content + `}]`
	}
	body := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":` + content + `}]}`
	if _, err := read([]byte(body), BuiltIn().anthropic, messagesForm, Permit{}, nil); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "nests deeper") {
		t.Error(err)
	}
}
