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

// chat is a server of something like WebSocket, that says everything back.
func chat(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n", r.Header.Get("Sec-WebSocket-Key"))
	_, _ = io.Copy(conn, buffered)
}

func TestWebSocket(t *testing.T) {
	for _, permitted := range []bool{true, false} {
		s := open(t)
		s.serveTLS(http.HandlerFunc(chat), true, "example.com") // for a WebSocket, HTTP/1.1 is used
		s.gate.change = func(_ destination.URL, v *Verdict) { v.WebSocket = permitted }
		secure := s.through("example.com", "http/1.1")
		fmt.Fprint(secure, lines("GET /chat HTTP/1.1", "Host: example.com", "Connection: keep-alive, Upgrade", "Upgrade: WebSocket", "Sec-WebSocket-Key: key"))
		from := bufio.NewReader(secure)
		response, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !permitted {
			if response.StatusCode != 403 || response.Header.Get("Tendril-Denied") != "websocket" {
				t.Errorf("%d %v", response.StatusCode, response.Header)
			}
			if dialed := s.hosts.log(); len(dialed) != 0 {
				t.Errorf("%v was dialled", dialed)
			}
			continue
		}
		if response.StatusCode != 101 || response.Header.Get("Sec-WebSocket-Accept") != "key" {
			t.Fatalf("%d %v", response.StatusCode, response.Header)
		}
		for _, message := range []string{"GET / HTTP/1.1\r\n\r\n", "\x00\xff", strings.Repeat("x", 100_000)} {
			go func() { _, _ = io.WriteString(secure, message) }()
			back := make([]byte, len(message))
			if _, err := io.ReadFull(from, back); err != nil || string(back) != message {
				t.Fatalf("%.20q, %v", back, err)
			}
		}
		_ = secure.Close()
		if o := s.gate.last(t); o.Status != 101 || o.Sent < 100_000 || o.Received < 100_000 {
			t.Errorf("%+v", o)
		}
	}
}

// What no WebSocket was asked for does not become one, and what is asked for too early
// or with a body neither.
func TestUpgradesThatAreNone(t *testing.T) {
	s := open(t)
	s.serve(http.HandlerFunc(chat), "api.example")
	s.gate.change = func(_ destination.URL, v *Verdict) { v.WebSocket = true }
	for request, want := range map[string]int{
		lines(get, host, "Connection: Upgrade", "Upgrade: h2c"):                                          502,
		lines(get, host, "Upgrade: websocket"):                                                           502,
		lines(post, host, "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 1") + "x":        400,
		lines(get, host, "Connection: Upgrade", "Upgrade: websocket") + "GET ":                           0,
		lines(get, host, "Connection: Upgrade", "Upgrade: websocket") + lines(get, "Host: evil.example"): 0,
	} {
		conn := s.raw()
		_, _ = io.WriteString(conn, request)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if want == 0 {
			// Whether the early bytes are seen before the answer is a matter of time; never
			// are they taken for a request.
			continue
		}
		if err != nil || response.StatusCode != want {
			t.Errorf("%q: %v %v", request, response, err)
		}
	}
	for _, decided := range s.gate.log() {
		if strings.Contains(decided, "evil") {
			t.Error(decided)
		}
	}
}
