package model_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tendril/budget"
	"tendril/egress/model"
)

// slow gives its parts one after the other, each after a while, and then nothing until
// nobody waits any more.
type slow struct {
	ctx   context.Context
	parts []string
	after time.Duration
}

func (s *slow) Read(p []byte) (int, error) {
	var next <-chan time.Time
	if len(s.parts) > 0 {
		next = time.After(s.after)
	}
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-next:
	}
	n := copy(p, s.parts[0])
	s.parts = s.parts[1:]
	return n, nil
}

func (*slow) Close() error { return nil }

// serve calls a route without a network, and reports how long it took, in the bubble's
// time, and whether it broke the answer off.
func serve(t *testing.T, ctx context.Context, a *accounts, answer func(context.Context) (*http.Response, error)) (got *httptest.ResponseRecorder, took time.Duration, cut bool) {
	t.Helper()
	r, err := model.New(model.Config{Route: budget.Anthropic, Accounts: a, Prices: prices(t), Fields: model.BuiltIn(), Terms: fixed(model.Terms{Limits: limited}),
		Upstream: roundTrip(func(r *http.Request) (*http.Response, error) { return answer(r.Context()) })})
	if err != nil {
		t.Fatal(err)
	}
	got = httptest.NewRecorder()
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, messages, strings.NewReader(askStream))
	request.Header.Set("Content-Type", "application/json")
	began := time.Now()
	defer func() { took = time.Since(began) }()
	defer func() { cut = recover() == http.ErrAbortHandler }()
	r.ServeHTTP(got, request)
	return got, 0, false
}

func streaming(body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}
}

// A provider may be slow, but not silent.
func TestSilence(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(context.Context) (*http.Response, error)
		took   time.Duration
		cut    bool
		body   string
		kept   bool
	}{
		"no answer": {func(ctx context.Context) (*http.Response, error) { <-ctx.Done(); return nil, ctx.Err() }, 10 * time.Minute, false, "could not be reached", true},
		"slow": {func(ctx context.Context) (*http.Response, error) {
			return streaming(&slow{ctx, []string{startEvent, deltaEvent, stopEvent}, 9 * time.Minute}), nil
		}, 27*time.Minute + time.Second, false, stopEvent, false},
		"more after the end": {func(ctx context.Context) (*http.Response, error) {
			return streaming(&slow{ctx, append([]string{startEvent, deltaEvent, stopEvent}, slices.Repeat([]string{deltaEvent}, 1000)...), time.Second / 2}), nil
		}, 5 * time.Second / 2, false, stopEvent, false},
		"silent in the middle": {func(ctx context.Context) (*http.Response, error) {
			return streaming(&slow{ctx, []string{startEvent}, time.Minute}), nil
		}, 11 * time.Minute, true, startEvent, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &accounts{}
				got, took, cut := serve(t, t.Context(), a, c.answer)
				if took != c.took || cut != c.cut || !contains(got.Body.String(), c.body) || (len(a.kept) == 1) != c.kept || len(a.kept)+len(a.settled) != 1 {
					t.Errorf("after %v, cut: %v, %s; settled %v, kept %v", took, cut, got.Body, a.settled, a.kept)
				}
			})
		})
	}
}

// Who leaves does not keep a provider at work.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a := &accounts{}
		_, took, _ := serve(t, ctx, a, func(ctx context.Context) (*http.Response, error) {
			return streaming(&slow{ctx, []string{startEvent}, time.Second}), nil
		})
		if took != time.Minute+time.Second || len(a.kept) != 1 {
			t.Errorf("after %v, kept %v", took, a.kept)
		}
	})
}
