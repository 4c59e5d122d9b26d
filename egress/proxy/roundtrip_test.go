package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"tendril/destination"
	"tendril/fault"
)

// An error says that nothing has left where that is certain, and only there.
func TestWhatIsSaidToBeUnsent(t *testing.T) {
	hang, release := make(chan struct{}), make(chan struct{})
	answers := http.NewServeMux()
	answers.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	answers.HandleFunc("/leak", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Leak", "secret") })
	answers.HandleFunc("/cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	answers.HandleFunc("/hang", func(http.ResponseWriter, *http.Request) { close(hang); <-release })
	for name, c := range map[string]struct {
		url    string
		denied bool
		unsent bool
		change func(v *Verdict)
		before func(s *site)
	}{
		"refused":              {url: "https://other.example/ok", denied: true, unsent: true},
		"an address forbidden": {url: "https://api.example:444/ok", denied: true, unsent: true},
		"no URL":               {url: "https://user@api.example/ok", unsent: true},
		"no credential": {url: "https://api.example/ok", unsent: true, change: func(v *Verdict) {
			v.Attach = func(context.Context, *http.Request) error { return errors.New("no key") }
		}},
		"the run is over":    {url: "https://api.example/ok", unsent: true, before: func(s *site) { s.proxy.Close() }},
		"not dialled":        {url: "https://unknown.example/ok", unsent: true},
		"nobody there":       {url: "https://closed.example/ok", unsent: true},
		"answered and cut":   {url: "https://api.example/cut"},
		"over HTTP/1":        {url: "http://api.example/cut"},
		"answered, and leak": {url: "https://api.example/leak", denied: true},
		"given up":           {url: "https://api.example/hang"},
	} {
		t.Run(name, func(t *testing.T) {
			s := closed(t)
			for _, host := range []string{"unknown.example", "closed.example"} {
				s.gate.rules = append(s.gate.rules, rule(t, host, "POST"))
			}
			alternative := rule(t, "api.example", "POST")
			alternative.Port = 444
			s.gate.rules = append(s.gate.rules, alternative)
			s.serve(answers, "api.example")
			s.know("api.example:444", "")
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s.know("closed.example:443", listener.Addr().String())
			listener.Close()
			s.gate.change = func(_ destination.URL, v *Verdict) {
				if c.change != nil {
					c.change(v)
				}
				v.Response = func(r *http.Response) error {
					if r.Header.Get("X-Leak") != "" {
						return fault.New(fault.Denied, "the answer holds the credential")
					}
					return nil
				}
			}
			if c.before != nil {
				c.before(s)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if strings.HasSuffix(c.url, "/hang") {
				go func() { <-hang; cancel() }()
				defer close(release)
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := s.proxy.RoundTripper(s.gate).RoundTrip(r)
			if err == nil {
				response.Body.Close()
				t.Fatal(response.Status)
			}
			var told interface {
				error
				Unsent() bool
			}
			if unsent := errors.As(err, &told) && told.Unsent(); unsent != c.unsent || fault.Is(err, fault.Denied) != c.denied {
				t.Errorf("unsent: %t, %v", unsent, err)
			}
		})
	}
}
