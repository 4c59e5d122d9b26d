package proxy

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// What is refused undecided is told once each, in words of the proxy.
func TestRefusalsThatNobodyDecided(t *testing.T) {
	long := strings.Repeat("a", 300)
	for _, test := range []struct{ request, told string }{
		{lines(get, "Host: evil.example"), `authority: the Host of the request is not the server that it is for: "evil.example"`},
		{lines(get, "Host: "+long), `authority: the Host of the request is not the server that it is for: "` + long[:64] + `..."`},
		{lines(get, host, host), "http: malformed request: it has two fields host"},
		{lines("CONNECT api.example:443 HTTP/1.1", "Host: evil.example:443"), `authority: the Host of the request is not the server that it is for: "evil.example:443"`},
		{lines("CONNECT api.example HTTP/1.1", host), "http: the authority has no port"},
		{lines("GET ftp://api.example/secret HTTP/1.1", host), "http: the URL's scheme is neither https nor http"},
	} {
		s := open(t)
		s.ask(test.request)
		if told := s.gate.refusals(); !slices.Equal(told, []string{test.told}) {
			t.Errorf("%.40q: %q, want %q", test.request, told, test.told)
		}
	}
	for name, request := range malformedRequests {
		s := open(t)
		s.ask(request)
		for _, told := range s.gate.refusals() {
			if len(told) > longestReason+50 || strings.ContainsAny(told, "\x00\x1b\r\n") {
				t.Errorf("%s: %q", name, told)
			}
		}
	}
}

// What is decided, or answered well, is not told as what it is not.
func TestWhatIsNotMisled(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		s.serve(says("well"), "example.com")
		for _, url := range []string{"https://example.com/", "http://example.com/", "http://evil.example/"} {
			text(t, s.client(h2), url)
		}
		if told := s.gate.refusals(); len(told) != 0 {
			t.Errorf("told: %q", told)
		}
	})
}

// On one connection, each counts, and too many end it.
func TestTooManyRefusals(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		s.serve(says("a hole"), "api.example", "evil.example")
		s.gate.patience = 20
		client := s.client(h2)
		var err error
		asked := 0
		for ; err == nil && asked < 100; asked++ {
			request, _ := http.NewRequest("GET", "https://api.example/", nil)
			request.Host = "evil.example"
			var response *http.Response
			if response, err = client.Do(request); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if response.StatusCode != 421 {
					t.Fatalf("%d", response.StatusCode)
				}
			}
		}
		// A client that lost its connection may try once more on another one.
		if told := s.gate.refusals(); asked != 21 || len(told) < 21 || len(told) > 30 || !strings.HasPrefix(told[0], "api.example:443 authority: ") {
			t.Errorf("%d were asked, told: %q", asked, told)
		}
		connections := 0
		for _, decided := range s.gate.log() {
			if strings.HasPrefix(decided, "CONNECT ") {
				connections++
			}
		}
		if h2 && connections > 10 {
			t.Errorf("it took %d connections", connections)
		}
	})
}

func TestTooManyRefusalsOfCONNECT(t *testing.T) {
	for _, request := range []string{lines("CONNECT api.example HTTP/1.1", host), lines(get, "Host: evil.example")} {
		s := open(t)
		s.gate.patience = 1
		s.ask(request)
		conn := s.raw()
		_, _ = io.WriteString(conn, request)
		if response, body, err := read(bufio.NewReader(conn), "GET"); err == nil {
			t.Errorf("%v %s", response, body)
		}
	}
}
