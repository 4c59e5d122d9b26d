package model_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/budget"
	"tendril/egress/model"
	"tendril/fault"
	"tendril/run"
	"tendril/state"
)

// At a limit, the next request gets the provider's own error, in a form that its clients
// do not try again, and the run is told.
func TestAtALimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		route  budget.Route
		path   string
		ask    string
		limits budget.Limits
		unit   budget.Unit
		status int
		word   string
	}{
		{"anthropic, tokens", budget.Anthropic, messages, ask, budget.Limits{Run: budget.Limit{Tokens: count(500)}}, budget.Tokens, 402, `"type":"billing_error"`},
		{"anthropic, spend", budget.Anthropic, messages, ask, budget.Limits{Run: budget.Limit{Spend: count(500)}}, budget.Spend, 402, `"type":"billing_error"`},
		{"chat", budget.OpenAI, chat, askChat, budget.Limits{Run: budget.Limit{Tokens: count(500)}}, budget.Tokens, 400, `"code":"insufficient_quota"`},
		{"responses", budget.OpenAI, responses, askOpenAI, budget.Limits{Run: budget.Limit{Spend: count(500)}}, budget.Spend, 400, `"code":"insufficient_quota"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.route, c.limits, jsonAnswer(200, wholeHi))
			got := w.post(c.path, c.ask)
			if got.status != c.status || !contains(got.body, c.word, "the budget for "+string(c.unit)+" of this run is used up") || strings.ContainsAny(got.body, "0123456789") || got.header.Get("X-Should-Retry") != "false" {
				t.Errorf("%+v", got)
			}
			if reached := w.limitsReached(); len(reached) != 1 || reached[0] != c.unit {
				t.Errorf("%v", reached)
			}
			if len(w.received()) != 0 {
				t.Error("it was sent")
			}
		})
	}
}

func TestWhatHasNoPriceOrBound(t *testing.T) {
	spend := budget.Limits{Day: budget.Limit{Spend: count(1 << 40)}}
	w := newWorld(t, budget.Anthropic, spend, jsonAnswer(200, wholeHi))
	if got := w.post(messages, strings.Replace(ask, `"m"`, `"new"`, 1)); got.status != 400 || !contains(got.body, "has no price", budget.FileName) {
		t.Errorf("%+v", got)
	}
	w = newWorld(t, budget.OpenAI, budget.Limits{Run: budget.Limit{Tokens: count(1 << 40)}}, jsonAnswer(200, openaiHi))
	if got := w.post(responses, `{"model":"new","input":"hi"}`); got.status != 400 || !contains(got.body, "nothing bounds what") {
		t.Errorf("%+v", got)
	}
	if len(w.received()) != 0 || len(w.limitsReached()) != 0 {
		t.Error("it was sent, or the run was told of a limit")
	}
	w = newWorld(t, budget.OpenAI, budget.Limits{}, jsonAnswer(200, openaiHi))
	if got := w.post(responses, `{"model":"new","input":"hi"}`); got.status != 200 {
		t.Errorf("without limits: %+v", got)
	}
	w.wantSettled(budget.Usage{Input: 6, Output: 7, CacheRead: 20, CacheWrite: 4})
}

// An answer that cannot fit any more into what is reserved for it is ended.
func TestAnAnswerBeyondItsBound(t *testing.T) {
	text := strings.Repeat("x", 100*128)
	for _, c := range []struct {
		name  string
		route budget.Route
		path  string
		ask   string
		delta string // gives the whole of the bound, once
		word  string
	}{
		{"anthropic", budget.Anthropic, messages, askStream, event("content_block_delta", `{"type":"content_block_delta","delta":{"type":"text_delta","text":"`+text+`"}}`), `"type":"billing_error"`},
		{"anthropic, a tool's input", budget.Anthropic, messages, askStream, event("content_block_delta", `{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"`+text+`"}}`), `"type":"billing_error"`},
		{"chat", budget.OpenAI, chat, askChat, event("", `{"choices":[{"delta":{"content":"`+text+`"}}]}`), `"code":"insufficient_quota"`},
		{"chat, a tool's input", budget.OpenAI, chat, askChat, event("", `{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"`+text+`"}}]}}]}`), `"code":"insufficient_quota"`},
		{"responses", budget.OpenAI, responses, strings.Replace(askOpenAI, "{", `{"stream":true,`, 1), event("response.output_text.delta", `{"type":"response.output_text.delta","delta":"`+text+`"}`), `"code":"insufficient_quota"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ended := make(chan struct{})
			w := newWorld(t, c.route, limited, func(out http.ResponseWriter, r *http.Request) {
				defer close(ended)
				stream(out, c.delta)
				for r.Context().Err() == nil { // for ever
					stream(out, strings.Replace(c.delta, text, strings.Repeat("y", 128), 1))
				}
			})
			got := w.post(c.path, c.ask)
			<-ended
			if got.cut || !strings.HasPrefix(got.body, c.delta) || len(got.body) > len(c.delta)+2000 || !contains(got.body, c.word, "the budget for tokens of this run is used up") {
				t.Errorf("%d bytes, cut: %v, %s", len(got.body), got.cut, got.body[min(len(got.body), len(c.delta)):])
			}
			if reached := w.limitsReached(); len(reached) != 1 || reached[0] != budget.Tokens {
				t.Errorf("%v", reached)
			}
			w.wantKept()
		})
	}
}

// What another call has reserved may be free in a moment: nobody is stopped for it.
func TestARequestWaitsForWhatIsReserved(t *testing.T) {
	limits := budget.Limits{Run: budget.Limit{Tokens: count(8000)}} // room for one bound at a time
	answering, asked, free := make(chan struct{}), make(chan struct{}, 64), make(chan struct{})
	w := newWorld(t, budget.Anthropic, limits, func(out http.ResponseWriter, r *http.Request) {
		select {
		case answering <- struct{}{}: // the first one
			<-free
		case <-free:
		}
		jsonAnswer(200, wholeHi)(out, r)
	})
	w.accounts.refusing = asked
	var wg sync.WaitGroup
	ok := func() {
		if got := w.post(messages, ask); got.status != 200 {
			t.Errorf("%+v", got)
		}
	}
	wg.Go(ok)
	<-answering
	wg.Go(ok)
	<-asked // there was no room for the second one
	close(free)
	wg.Wait()
	if len(w.limitsReached()) != 0 || len(w.received()) != 2 {
		t.Errorf("%v, %d sent", w.limitsReached(), len(w.received()))
	}
}

// ledgered are the accounts that a Stem keeps: those of package state.
type ledgered struct {
	store *state.Store
	run   run.Run
}

func (l ledgered) Reserve(ctx context.Context, c model.Call) (int64, error) {
	return l.store.Reserve(ctx, state.Reservation{Run: l.run.ID, Pollen: l.run.Pollen, At: time.Now(), Bound: c.Bound, Limits: c.Limits})
}

func (l ledgered) Settle(ctx context.Context, id int64, o model.Outcome) error {
	return l.store.Settle(ctx, id, o.Came)
}

func (l ledgered) Keep(ctx context.Context, id int64, _ model.Outcome) error {
	return l.store.Keep(ctx, id)
}

func (ledgered) Refused(context.Context, model.Call, *fault.Error) error { return nil }

// 64 requests race for a budget that has room for ten, and nobody reports what they came
// to: ten reach the provider.
func TestRacingRequests(t *testing.T) {
	store, err := state.Open(t.Context(), filepath.Join(t.TempDir(), "state", "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	r := run.Run{ID: run.NewID(), State: run.Queued, Pollen: "agent", Substrate: run.Substrate{Name: "handbook"}}
	if err := store.CreateRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	probe := newWorld(t, budget.Anthropic, limited, jsonAnswer(200, wholeHi))
	probe.post(messages, ask)
	each := probe.accounts.calls[0].Bound.Tokens
	const room = 10
	limits := budget.Limits{Run: budget.Limit{Tokens: count(room*each + each - 1)}}
	w := newWorld(t, budget.Anthropic, limits, jsonAnswer(200, `{}`), func(c *model.Config) { c.Accounts = ledgered{store, r} })
	statuses := map[int]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			got := w.post(messages, ask)
			mu.Lock()
			defer mu.Unlock()
			statuses[got.status]++
		})
	}
	wg.Wait()
	if statuses[200] != room || statuses[402] != 64-room || len(w.received()) != room {
		t.Errorf("%v, %d sent", statuses, len(w.received()))
	}
	if sum, err := store.Spent(t.Context(), r.ID); err != nil || sum.Total().Tokens != room*each {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestReservingFails(t *testing.T) {
	w := newWorld(t, budget.Anthropic, limited, jsonAnswer(200, wholeHi), func(c *model.Config) { c.Accounts = broken{} })
	if got := w.post(messages, ask); got.status != 502 || !contains(got.body, "could not be recorded") || contains(got.body, "/var/lib") || len(w.received()) != 0 {
		t.Errorf("%+v", got)
	}
}

type broken struct{ model.Accounts }

func (broken) Reserve(context.Context, model.Call) (int64, error) {
	return 0, fault.New(fault.Unavailable, "the disk of /var/lib is full")
}

func TestBodiesAreBounded(t *testing.T) {
	w := newWorld(t, budget.Anthropic, budget.Limits{}, jsonAnswer(200, wholeHi))
	long := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + strings.Repeat("x", model.MostBody) + `"}]}`
	if got := w.post(messages, long); got.status != 413 || !contains(got.body, "request_too_large") {
		t.Errorf("%d %.200s", got.status, got.body)
	}
	// Without a length that says so beforehand.
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.inside.URL+messages, io.MultiReader(strings.NewReader(long)))
	r.Header.Set("Content-Type", "application/json")
	if got := w.do(r); got.status != 413 {
		t.Errorf("%d %.200s", got.status, got.body)
	}
	// With a length that no room is made for.
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.inside.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", messages, int64(1)<<50)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != 413 {
		t.Errorf("%+v, %v", response, err)
	}
	if len(w.received()) != 0 {
		t.Error("it was sent")
	}
}
