package sprout

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestRefusalsOfTheServer(t *testing.T) {
	attempts := maxBusy + 1
	for name, test := range map[string]struct {
		answer   reply
		want     error // nil: neither stuck nor spent
		requests int
	}{
		"insufficient quota":     {reply{status: 429, kind: "insufficient_quota", code: "insufficient_quota"}, ErrSpent, 1},
		"quota by code alone":    {reply{status: 429, kind: "requests", code: "insufficient_quota"}, ErrSpent, 1},
		"billing error":          {reply{status: 400, kind: "billing_error"}, ErrSpent, 1},
		"payment required":       {reply{status: 402}, ErrSpent, 1},
		"a bad request":          {reply{status: 400, kind: "invalid_request_error"}, nil, 1},
		"no permission":          {reply{status: 403, kind: "permission_error"}, nil, 1},
		"a redirect":             {reply{status: 307}, nil, 1},
		"the rate, for ever":     {reply{status: 429, kind: "rate_limit_error"}, nil, attempts},
		"errors, for ever":       {reply{status: 500, kind: "api_error"}, nil, attempts},
		"cut streams, for ever":  {reply{text: "I go", breaks: true}, nil, attempts},
		"nothing, for ever":      {reply{raw: ": nothing\n\n"}, nil, attempts},
		"asked to come tomorrow": {reply{status: 429, kind: "rate_limit_error", retryAfter: "86400"}, nil, 1},
		"too long, for ever":     {reply{status: 413, kind: "request_too_large"}, nil, attempts},
	} {
		t.Run(name, func(t *testing.T) {
			eachRoute(t, func(t *testing.T, route string) {
				s := serve(t, route, test.answer)
				e := grow(t, s, repository(t))
				if e.err == nil || len(s.seen()) != test.requests {
					t.Fatalf("after %d requests: %v", len(s.seen()), e.err)
				}
				for _, known := range []error{ErrSpent, ErrStuck, ErrUsage} {
					if errors.Is(e.err, known) != (known == test.want) {
						t.Errorf("it ended with %v", e.err)
					}
				}
			})
		})
	}
}

// TestErrorsInTheMiddleOfAStream: a budget that ends a running stream says so there, or
// to the next request.
func TestErrorsInTheMiddleOfAStream(t *testing.T) {
	problem := func(route, kind string) reply {
		text := fmt.Sprintf(`{"error":{"type":%q,"message":"no more"}}`, kind)
		if route == RouteAnthropic {
			text = fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":"no more"}}`, kind)
		}
		return reply{raw: "event: error\ndata: " + text + "\n\n"}
	}
	eachRoute(t, func(t *testing.T, route string) {
		e := grow(t, serve(t, route, problem(route, "billing_error")), repository(t))
		if !errors.Is(e.err, ErrSpent) {
			t.Errorf("a budget that is used up: %v", e.err)
		}
		s := serve(t, route, problem(route, "overloaded_error"), shell("true"), words("done"))
		if e := grow(t, s, repository(t)); e.err != nil || len(e.pauses) != 1 {
			t.Errorf("an overload: %v after the pauses %v", e.err, e.pauses)
		}
		e = grow(t, serve(t, route, problem(route, "invalid_request_error")), repository(t))
		if e.err == nil || len(e.pauses) > 0 {
			t.Errorf("a bad request: %v after the pauses %v", e.err, e.pauses)
		}
	})
}

func TestSilenceEndsAStream(t *testing.T) {
	silent := make(chan struct{})
	s := serve(t, RouteOpenAI)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-silent
	})
	defer close(silent)
	at, err := newEndpoint(s.URL, "/", http.Header{})
	if err != nil {
		t.Fatal(err)
	}
	at.silence = 20 * time.Millisecond
	err = at.stream(t.Context(), struct{}{}, func(event) (bool, error) { return false, nil })
	var f *failure
	if !errors.As(err, &f) || f.kind != busy || !strings.Contains(err.Error(), "said nothing") {
		t.Errorf("it ended with %v", err)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0": 0, "-1": 0, "1.5": 0, "soon": 0, "99999999999999999999": 0,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second,
		"Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("retryAfter(%q) = %s, want %s", value, got, want)
		}
	}
}
