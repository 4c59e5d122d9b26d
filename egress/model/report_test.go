package model_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"tendril/budget"
	"tendril/egress/model"
	"tendril/fault"
)

// reportsOf are answers that report so many tokens of output, in each form.
var reportsOf = map[string]struct {
	route     budget.Route
	path, ask string
	answer    func(output int64) http.HandlerFunc
}{
	"anthropic": {budget.Anthropic, messages, ask, func(n int64) http.HandlerFunc {
		return jsonAnswer(200, fmt.Sprintf(`{"usage":{"input_tokens":11,"output_tokens":%d}}`, n))
	}},
	"anthropic, a stream": {budget.Anthropic, messages, askStream, func(n int64) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			stream(w, event("message_start", `{"type":"message_start","message":{"usage":{"input_tokens":11,"output_tokens":1}}}`),
				event("message_delta", fmt.Sprintf(`{"type":"message_delta","usage":{"output_tokens":%d}}`, n)), stopEvent)
		}
	}},
	"chat, a stream": {budget.OpenAI, chat, askChat, func(n int64) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			stream(w, event("", fmt.Sprintf(`{"choices":[{}],"usage":{"prompt_tokens":11,"completion_tokens":%d}}`, n)), event("", "[DONE]"))
		}
	}},
	"responses, a stream": {budget.OpenAI, responses, strings.Replace(askOpenAI, "{", `{"stream":true,`, 1), func(n int64) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			stream(w, event("response.completed", fmt.Sprintf(`{"type":"response.completed","response":{"usage":{"input_tokens":11,"output_tokens":%d}}}`, n)))
		}
	}},
}

// What is reported counts in full, also where it is more than was reserved. It stops a run
// only where it really is more than a limit: the next request finds that.
func TestAReportOfMoreThanWasReserved(t *testing.T) {
	for name, c := range reportsOf {
		for _, output := range []int64{101, 25_000} {
			t.Run(fmt.Sprint(name, " ", output), func(t *testing.T) {
				w := newWorld(t, c.route, limited, c.answer(output))
				got := w.post(c.path, c.ask)
				w.wantSettled(budget.Usage{Input: 11, Output: output})
				if got.status != 200 || got.cut || contains(got.body, "used up") || len(w.limitsReached()) != 0 {
					t.Errorf("%+v, limits %v", got, w.limitsReached())
				}

				small := budget.Limits{Run: budget.Limit{Tokens: count(output + 4000)}} // a bound is more than that
				if output < 25_000 {
					return
				}
				w = newWorld(t, c.route, small, c.answer(output))
				w.post(c.path, c.ask)
				again := w.post(c.path, c.ask)
				if reached := w.limitsReached(); again.status/100 != 4 || len(reached) != 1 || reached[0] != budget.Tokens || len(w.received()) != 1 {
					t.Errorf("the next one: %+v, limits %v, %d were sent", again, reached, len(w.received()))
				}
			})
		}
	}
}

// A stream that breaks off came to no less than it said before.
func TestABrokenStreamThatReportedMore(t *testing.T) {
	for output, settled := range map[string]bool{"7": false, "25000": true} {
		w := newWorld(t, budget.Anthropic, limited, func(out http.ResponseWriter, _ *http.Request) {
			stream(out, startEvent, event("message_delta", `{"type":"message_delta","usage":{"output_tokens":`+output+`}}`))
			panic(http.ErrAbortHandler)
		})
		if got := w.post(messages, askStream); !got.cut {
			t.Errorf("%+v", got)
		}
		if settled {
			w.wantSettled(budget.Usage{Input: 11, Output: 25_000, CacheRead: 5})
			if w.accounts.settled[0].Ended {
				t.Error("it ended")
			}
		} else {
			w.wantKept()
		}
	}
}

// A report of what no request can come to uses up no budget, and is told.
func TestAnAbsurdReport(t *testing.T) {
	for name, c := range reportsOf {
		for _, output := range []int64{900_000_000_000, 9_000_000_000_000_000_000} {
			w := newWorld(t, c.route, limited, c.answer(output))
			if got := w.post(c.path, c.ask); got.status != 200 || got.cut || len(w.limitsReached()) != 0 {
				t.Errorf("%s: %+v", name, got)
			}
			w.wantKept()
			if !w.accounts.kept[0].Absurd {
				t.Errorf("%s, %d: nobody is told", name, output)
			}
		}
	}
	w := newWorld(t, budget.Anthropic, limited, jsonAnswer(200, `{}`))
	w.post(messages, ask)
	w.wantKept()
	if w.accounts.kept[0].Absurd {
		t.Error("no report is an absurd one")
	}
}

// What the model, or a tool of the provider's, can come to is not absurd.
func TestWhatIsNotAbsurd(t *testing.T) {
	large := strings.Replace(priceList, "max_output: 64000", "max_input: 200000, max_output: 64000", 1)
	known, err := budget.ParsePrices(budget.FileName, []byte(large))
	if err != nil {
		t.Fatal(err)
	}
	report := reportsOf["anthropic"].answer
	for name, c := range map[string]struct {
		output  int64
		change  func(*model.Config)
		settled bool
	}{
		"16 times the bound":             {16 * 4000, func(*model.Config) {}, true},
		"more than that":                 {17 * 4300, func(*model.Config) {}, false},
		"what the model takes and gives": {264_000 - 11, func(c *model.Config) { c.Prices = known }, true},
		"more than it takes and gives":   {264_000 - 10, func(c *model.Config) { c.Prices = known }, false},
		"what a tool finds": {1_000_000, func(c *model.Config) {
			c.Terms = fixed(model.Terms{Limits: limited, Permit: model.Permit{Tools: []string{"web_search_20250305"}}})
		}, true},
		"without a price and any limit": {1_000_000, func(c *model.Config) { c.Prices, c.Terms = budget.Prices{}, fixed(model.Terms{}) }, false},
		"and more than a tool could find": {900_000_000, func(c *model.Config) {
			c.Terms = fixed(model.Terms{Limits: limited, Permit: model.Permit{Tools: []string{"web_search_20250305"}}})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, budget.Anthropic, limited, report(c.output), c.change)
			w.post(messages, ask)
			if c.settled {
				w.wantSettled(budget.Usage{Input: 11, Output: c.output})
			} else {
				w.wantKept()
			}
		})
	}
	w := newWorld(t, budget.OpenAI, budget.Limits{}, jsonAnswer(200, `{"usage":{"input_tokens":11,"output_tokens":120000}}`))
	w.post(responses, `{"model":"new","input":"hi"}`) // nothing bounds it
	w.wantSettled(budget.Usage{Input: 11, Output: 120_000})
}

// What is refused after it was answered has been paid for outside, so it counts here.
func TestAnAnswerThatIsRefused(t *testing.T) {
	for name, script := range map[string]http.HandlerFunc{
		"by its encoding": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, wholeHi)
		},
		"by its status": func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		},
		"by whoever looks through it": jsonAnswer(200, wholeHi),
	} {
		w := newWorld(t, budget.Anthropic, limited, script, func(c *model.Config) {
			transport := c.Upstream
			c.Upstream = roundTrip(func(r *http.Request) (*http.Response, error) {
				response, err := transport.RoundTrip(r)
				if err != nil || name != "by whoever looks through it" {
					return response, err
				}
				response.Body.Close()
				return nil, fault.New(fault.Denied, "the answer holds the credential")
			})
		})
		if got := w.post(messages, ask); got.status < 400 || len(w.received()) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
		w.wantKept()
	}
}
