package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"tendril/destination"
)

// What leaves in a target, a field or a trailer counts, and so does what comes back.
func TestHeadsCount(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Trailer", "X-After")
			w.Header().Set("X-Back", strings.Repeat("b", 7000))
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-After", strings.Repeat("c", 3000))
		}), "api.example")
		for _, scheme := range []string{"https", "http"} {
			request, _ := http.NewRequest("POST", scheme+"://api.example/?"+strings.Repeat("q", 4000), io.MultiReader(strings.NewReader("x")))
			request.Header.Set("X-Long", strings.Repeat("h", 20_000))
			request.Trailer = http.Header{"X-Sum": {strings.Repeat("t", 2000)}}
			response, err := s.client(h2).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			o := s.gate.last(t)
			if o.Sent < 26_001 || o.Sent > 26_500 || o.Received < 10_004 || o.Received > 10_500 {
				t.Errorf("%s: %+v", scheme, o)
			}
		}
		if _, err := s.proxy.Fetch(t.Context(), s.gate, parse(t, "https://api.example/?"+strings.Repeat("q", 4000)), io.Discard, 100); err != nil {
			t.Fatal(err)
		}
		if o := s.gate.last(t); o.Sent < 4000 || o.Sent > 4300 || o.Received < 10_004 || o.Received > 10_500 {
			t.Errorf("a fetch: %+v", o)
		}
		s.know("gone.example.org:443", "127.0.0.1:1")
		text(t, s.client(h2), "https://gone.example.org/?"+strings.Repeat("q", 4000))
		if o := s.gate.last(t); o.Sent != 0 || o.Received != 0 || o.Failure != Unreachable {
			t.Errorf("nothing was sent: %+v", o)
		}
	})
}

// The head of a WebSocket counts beside what is said in it.
func TestTheHeadOfAWebSocketCounts(t *testing.T) {
	s := open(t)
	s.serve(http.HandlerFunc(chat), "api.example")
	s.gate.change = func(_ destination.URL, v *Verdict) { v.WebSocket = true }
	conn := s.raw()
	fmt.Fprint(conn, lines("GET http://api.example/?"+strings.Repeat("q", 4000)+" HTTP/1.1", host,
		"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: "+strings.Repeat("k", 1000)))
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil)
	if err != nil || response.StatusCode != 101 {
		t.Fatal(response, err)
	}
	_, _ = io.WriteString(conn, "hello")
	if _, err := io.ReadFull(from, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if o := s.gate.last(t); o.Sent < 5005 || o.Sent > 5300 || o.Received < 1005 || o.Received > 1300 {
		t.Errorf("%+v", o)
	}
}
