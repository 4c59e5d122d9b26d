package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"strings"
	"sync"
	"testing"

	"tendril/stoma"
)

// pipe makes a net.Conn of a stream from inside.
type pipe struct {
	*stoma.Stream
	net.Conn
}

func (p pipe) Read(b []byte) (int, error)  { return p.Stream.Read(b) }
func (p pipe) Write(b []byte) (int, error) { return p.Stream.Write(b) }
func (p pipe) Close() error                { return p.Stream.Close() }

// The same over what it is made for: streams of a Stoma.
func TestOverAStoma(t *testing.T) {
	s := closed(t)
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }), "api.example", "tunnel.example")
	outer, inner := net.Pipe()
	var streams sync.WaitGroup
	outside := stoma.NewSession(outer, stoma.Host, "test", func(st *stoma.Stream, _ *stoma.Fields) {
		streams.Go(func() { s.proxy.Serve(context.Background(), st) })
	})
	inside := stoma.NewSession(inner, stoma.Guest, "test", nil)
	for _, session := range []*stoma.Session{outside, inside} {
		if _, err := session.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	client := s.client(true)
	transport := client.Transport.(*http.Transport)
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		st, err := inside.Open(stoma.ConnHeader("proxy"))
		return pipe{st, &tape{}}, err
	}
	transport.Proxy = http.ProxyURL(&neturl.URL{Scheme: "http", Host: "127.0.0.1:3128"})
	for _, origin := range []string{"https://api.example", "http://api.example", "https://tunnel.example"} {
		sent := strings.Repeat("x", 1<<20)
		response, err := client.Post(origin, "text/plain", strings.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		if string(got) != sent || err != nil {
			t.Errorf("%s: %d bytes, %v", origin, len(got), err)
		}
	}
	transport.CloseIdleConnections()
	s.proxy.Close()
	_ = inside.Close()
	_ = outside.Close()
	streams.Wait()
}
