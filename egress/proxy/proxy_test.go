package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestRequestsAreDecidedAndPassedOn(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			s := open(t)
			s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.TLS != nil && r.ProtoMajor != 2 {
					t.Errorf("the server was asked with %s", r.Proto)
				}
				body, _ := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.RequestURI, body)
			}), "api.example")
			client := s.client(h2)
			for _, scheme := range []string{"https", "http"} {
				response, err := client.Post(scheme+"://api.example/a/../b%2f?q=%20x", "text/plain", strings.NewReader("hello"))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				response.Body.Close()
				if want := "POST api.example /b%2F?q=%20x hello"; err != nil || string(body) != want {
					t.Errorf("%s: %q, %v, want %q", scheme, body, err, want)
				}
				if proto := response.ProtoMajor; scheme == "https" && (proto == 2) != h2 {
					t.Errorf("the client was answered with HTTP/%d", proto)
				}
				if o := s.gate.last(t); o.Status != 200 || o.Sent < int64(len("POST /b%2F?q=%20x HTTP/1.1\r\nhello")) || o.Received <= int64(len(body)) || !o.Address.IsValid() || o.Failure != "" {
					t.Errorf("the outcome is %+v", o)
				}
			}
			if status, body := text(t, client, "https://api.example/x"); status != 200 {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

func TestRefusalsSayWhyAndHowToAsk(t *testing.T) {
	s := open(t)
	s.serve(says("no"), "example.com")
	for _, h2 := range []bool{false, true} {
		client := s.client(h2)
		request, _ := http.NewRequest("DELETE", "https://example.com/x", nil)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != 403 || response.Header.Get("Tendril-Denied") != "egress" {
			t.Errorf("%d %v", response.StatusCode, response.Header)
		}
		for _, part := range []string{"DELETE https://example.com/x", "the method is DELETE, not GET or HEAD", "rule: egress", "hint: ask the Botanist"} {
			if !strings.Contains(string(body), part) {
				t.Errorf("the body does not say %q: %s", part, body)
			}
		}
	}
	response, body := s.ask("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nAccept: application/json\r\n\r\n")
	if response.StatusCode != 403 || response.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"rule":"egress"`) {
		t.Errorf("%d %v %s", response.StatusCode, response.Header, body)
	}
	if dialed := s.hosts.log(); len(dialed) != 0 {
		t.Errorf("%v was dialled", dialed)
	}
}

func TestTunnel(t *testing.T) {
	s := open(t)
	s.serve(says("through"), "tunnel.example")
	for _, h2 := range []bool{false, true} {
		if status, body := text(t, s.client(h2), "https://tunnel.example/"); status != 200 || body != "through" {
			t.Errorf("%d %s", status, body)
		}
	}
	if log := s.gate.log(); len(log) != 2 || !strings.HasPrefix(log[0], "CONNECT tunnel.example:443") {
		t.Errorf("decided: %v", log)
	}
}
