package model_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"tendril/budget"
	"tendril/egress/model"
	"tendril/fault"
)

const priceList = `
version: 1
prices:
  - {route: anthropic, model: m, input: 3000000, output: 15000000, cache_read: 300000, cache_write: 3750000, max_output: 64000}
  - {route: openai, model: m, input: 1000000, output: 2000000, cache_read: 100000, cache_write: 1000000, max_output: 1000}
`

func prices(t testing.TB) budget.Prices {
	t.Helper()
	p, err := budget.ParsePrices(budget.FileName, []byte(priceList))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// accounts are those of one run, in memory; package state's are tested there, and with a
// route in TestRacingRequests.
type accounts struct {
	mu       sync.Mutex
	calls    []model.Call
	settled  map[int64]model.Outcome
	kept     map[int64]model.Outcome
	refusing chan<- struct{} // told of each refusal
	refused  []string        // call and detail of each request that a route refused
	lost     error           // why a refusal is not recorded
	settling error
}

func (a *accounts) used() budget.Amount {
	var sum budget.Amount
	for i, c := range a.calls {
		if o, ok := a.settled[int64(i)]; ok {
			sum = sum.Add(o.Came)
		} else {
			sum = sum.Add(c.Bound)
		}
	}
	return sum
}

func (a *accounts) Reserve(_ context.Context, c model.Call) (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := c.Limits.Check(a.used(), budget.Amount{}, c.Bound); err != nil {
		if a.refusing != nil {
			a.refusing <- struct{}{}
		}
		return 0, err
	}
	a.calls = append(a.calls, c)
	return int64(len(a.calls)) - 1, nil
}

func (a *accounts) Settle(_ context.Context, id int64, o model.Outcome) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.kept[id]; ok {
		panic("settled after it was kept")
	}
	if a.settled == nil {
		a.settled = map[int64]model.Outcome{}
	}
	a.settled[id] = o
	return a.settling
}

func (a *accounts) Keep(_ context.Context, id int64, o model.Outcome) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.settled[id]; ok {
		panic("kept after it was settled")
	}
	if a.kept == nil {
		a.kept = map[int64]model.Outcome{}
	}
	a.kept[id] = o
	return nil
}

func (a *accounts) Refused(_ context.Context, c model.Call, why *fault.Error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = append(a.refused, fmt.Sprintf("%s %s %s: %s", c.Route, c.Endpoint, c.Model, why.Detail))
	return a.lost
}

// world is a route between a client and a scripted provider.
type world struct {
	*testing.T
	accounts *accounts
	inside   *httptest.Server // what the client speaks to

	mu       sync.Mutex
	requests []sent
	exceeded []budget.Unit
}

// sent is what the provider received.
type sent struct {
	target string
	header http.Header
	body   string
}

// newWorld makes a route to a provider that answers each request as script says.
func newWorld(t *testing.T, route budget.Route, limits budget.Limits, script http.HandlerFunc, change ...func(*model.Config)) *world {
	t.Helper()
	w := &world{T: t, accounts: &accounts{}}
	provider := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.requests = append(w.requests, sent{r.Method + " " + r.URL.String(), r.Header.Clone(), string(body)})
		w.mu.Unlock()
		script(out, r)
	}))
	t.Cleanup(provider.Close)
	base, err := url.Parse(provider.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	config := model.Config{
		Route: route, Base: base, Upstream: transport, Accounts: w.accounts, Prices: prices(t), Fields: model.BuiltIn(), Terms: fixed(model.Terms{Limits: limits}),
		Exceeded: func(unit budget.Unit) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.exceeded = append(w.exceeded, unit)
		},
	}
	for _, one := range change {
		one(&config)
	}
	r, err := model.New(config)
	if err != nil {
		t.Fatal(err)
	}
	w.inside = httptest.NewUnstartedServer(nil)
	w.inside.Config = r.Server()
	w.inside.Start()
	t.Cleanup(w.inside.Close)
	return w
}

// fixed are terms that nobody changes.
func fixed(terms model.Terms) func() (model.Terms, error) {
	return func() (model.Terms, error) { return terms, nil }
}

// answer is what the client received.
type answer struct {
	status int
	header http.Header
	body   string
	cut    bool // it did not end as HTTP ends
}

func (w *world) post(path, body string, header ...string) answer {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.inside.URL+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer placeholder")
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return w.do(r)
}

func (w *world) do(r *http.Request) answer {
	w.Helper()
	response, err := w.inside.Client().Do(r)
	if err != nil {
		w.Error(err)
		return answer{}
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(data), err != nil}
}

func (w *world) received() []sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

func (w *world) limitsReached() []budget.Unit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.exceeded)
}

// wantSettled fails unless the only call was settled with the usage.
func (w *world) wantSettled(want budget.Usage) {
	w.Helper()
	w.accounts.mu.Lock()
	defer w.accounts.mu.Unlock()
	if got, ok := w.accounts.settled[0]; !ok || got.Usage != want || len(w.accounts.calls) != 1 {
		w.Errorf("settled %+v, kept %+v; want %+v", w.accounts.settled, w.accounts.kept, want)
	}
}

// wantKept fails unless the reservation of the only call was kept.
func (w *world) wantKept() {
	w.Helper()
	w.accounts.mu.Lock()
	defer w.accounts.mu.Unlock()
	if o, ok := w.accounts.kept[0]; !ok || len(w.accounts.settled) != 0 || len(w.accounts.calls) != 1 || o.Usage != (budget.Usage{}) {
		w.Errorf("settled %+v, kept %+v", w.accounts.settled, w.accounts.kept)
	}
}

// stream writes events as providers do, each flushed.
func stream(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, event := range events {
		io.WriteString(w, event)
		w.(http.Flusher).Flush()
	}
}

func jsonAnswer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func event(name, data string) string {
	if name == "" {
		return "data: " + data + "\n\n"
	}
	return "event: " + name + "\ndata: " + data + "\n\n"
}

func count(n int64) *int64 { return &n }

// roundTrip is a provider that is no server.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var errNetwork = errors.New("10.1.2.3: connection refused")

func contains(data string, parts ...string) bool {
	for _, part := range parts {
		if !bytes.Contains([]byte(data), []byte(part)) {
			return false
		}
	}
	return true
}
