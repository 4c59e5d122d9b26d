package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"tendril/destination"
	"tendril/fault"
)

// An answer that leads two ways, or away, arrives nowhere: not at a client, a Fetch or a
// program of the Stem's, by neither version of HTTP.
func TestMisleadingAnswers(t *testing.T) {
	scenes := map[string]struct {
		status   int
		location []string
		passes   bool
	}{
		"two places":         {302, []string{"https://example.com/b", "http://127.0.0.1/"}, false},
		"the same twice":     {302, []string{"https://example.com/b", "https://example.com/b"}, false},
		"two of what is new": {201, []string{"/b", "/c"}, false},
		"a proxy":            {305, []string{"http://10.0.0.1:3128"}, false},
		"a password":         {302, []string{"https://user:pass@example.com/b"}, false},
		"a user's name":      {307, []string{"//user@example.com/b"}, false},
		"one place":          {302, []string{"/b?to=user@example.com"}, true},
		"no place":           {302, nil, true},
	}
	for _, h2 := range []bool{false, true} {
		for name, c := range scenes {
			t.Run(fmt.Sprintf("%s, h2 %t", name, h2), func(t *testing.T) {
				s, _ := world(t, h2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/a" {
						return
					}
					w.Header()["Location"] = c.location
					w.WriteHeader(c.status)
				}))
				told := func() {
					t.Helper()
					if o := s.gate.last(t); (o.Failure == Refused) == c.passes || o.Status != c.status && o.Status != 200 {
						t.Errorf("told %+v", o)
					}
				}
				response, err := s.client(h2).Get("https://example.com/a")
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(response.Body)
				response.Body.Close()
				if want := map[bool]int{true: c.status, false: 502}[c.passes]; response.StatusCode != want || !c.passes && (response.Header["Location"] != nil || response.Header.Get("Tendril-Denied") != ruleHTTP) {
					t.Errorf("%d %v %s", response.StatusCode, response.Header, body)
				}
				told()

				url, _ := destination.Parse("https://example.com/a")
				if _, err := s.proxy.Fetch(t.Context(), s.gate, url, io.Discard, 1000); fault.Is(err, fault.Denied) == c.passes {
					t.Errorf("a Fetch: %v", err)
				}
				told()

				request, _ := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/a", nil)
				response, err = s.proxy.RoundTripper(s.gate).RoundTrip(request)
				if fault.Is(err, fault.Denied) == c.passes {
					t.Errorf("a RoundTripper: %v", err)
				}
				if err == nil {
					response.Body.Close()
				}
				told()
			})
		}
	}
}

// Over HTTP/1.1, net/http has compared them before; over HTTP/2 they frame nothing, until
// they are passed on to a client of HTTP/1.1.
func TestTwoLengthsAreMisleading(t *testing.T) {
	for _, lengths := range []string{"5", "5 6", "5 5"} {
		response := &http.Response{StatusCode: 200, Header: http.Header{"Content-Length": strings.Fields(lengths)}}
		if d := misleading(response); (d == nil) != (lengths == "5") {
			t.Errorf("%s: %v", lengths, d)
		}
	}
}
