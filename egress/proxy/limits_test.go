package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tendril/destination"
	"tendril/fault"
)

// patient is a dialer to servers that take everything and say nothing.
type patient struct{}

func (patient) Dial(context.Context, destination.Authority, []netip.Prefix) (net.Conn, netip.AddrPort, error) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, theirs) }() // ends with ours
	return ours, netip.MustParseAddrPort("192.0.2.1:80"), nil
}

// Slow clients are cut off in time, wherever they are slow. The clock is not a real
// one, so the times are exact.
func TestSlowClientsAreCutOff(t *testing.T) {
	begin := lines("CONNECT example.com:443 HTTP/1.1", "Host: example.com:443")
	hello := record(helloMessage(serverName("example.com")), 1<<14)
	for _, test := range []struct {
		name string
		send []string // each a second after the other
		then string   // what is sent once a second after that
		want time.Duration
	}{
		{"silence", nil, "", 5 * time.Minute},
		{"a head that drips", []string{"G"}, "E", 10 * time.Second},
		{"a head that stops", []string{"GET / HTTP/1.1\r\n"}, "", 10 * time.Second},
		{"fields that drip", []string{"GET / HTTP/1.1\r\n"}, "A: b\r\n", 10 * time.Second},
		{"silence after a CONNECT", []string{begin}, "", 10 * time.Second},
		{"a hello that drips", []string{begin + string(hello[:5])}, "\x01", 10 * time.Second},
		{"TLS that stops", []string{begin + string(hello)}, "", 10 * time.Second},
		{"a body that stops", []string{lines(post, host, "Content-Length: 5") + "h"}, "", 5 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := closed(t, func(c *Config) { c.Dialer = patient{} })
				client, server := net.Pipe()
				start := time.Now()
				served := make(chan time.Duration, 1)
				go func() {
					s.proxy.Serve(t.Context(), server)
					served <- time.Since(start)
				}()
				go func() { _, _ = io.Copy(io.Discard, client) }()
				for _, text := range test.send {
					_, _ = io.WriteString(client, text)
				}
				for test.then != "" {
					time.Sleep(time.Second)
					if _, err := io.WriteString(client, test.then); err != nil {
						break
					}
				}
				if took := <-served; took != test.want {
					t.Errorf("it took %s, want %s", took, test.want)
				}
				_ = client.Close()
			})
		})
	}
}

func TestTooManyConnections(t *testing.T) {
	s := open(t, func(c *Config) { c.Limits.Connections = 2 })
	s.serve(says("hello"), "example.com")
	ask := lines("GET http://example.com/ HTTP/1.1", "Host: example.com")
	kept := []net.Conn{s.raw(), s.raw()}
	for _, conn := range kept {
		_, _ = io.WriteString(conn, ask)
		if response, _, err := read(bufio.NewReader(conn), "GET"); err != nil || response.StatusCode != 200 {
			t.Fatalf("%v %v", response, err)
		}
	}
	if response, body := s.ask(ask); response.StatusCode != 503 || response.Header.Get("Tendril-Denied") != "limits.egress" {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	_ = kept[0].Close()
	for s.proxy.Stats().Connections == 2 { // the proxy sees it in a moment
		runtime.Gosched()
	}
	if response, body := s.ask(ask); response.StatusCode != 200 {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

func TestBytesAreLimited(t *testing.T) {
	const limit = 1 << 20
	both(t, func(t *testing.T, h2 bool) {
		for _, host := range []string{"example.com", "tunnel.example"} {
			s := open(t, func(c *Config) { c.Limits.Bytes = limit })
			s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, zeros{})
			}), h2, host)
			client := s.client(h2)
			response, err := client.Get("https://" + host + "/")
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if err == nil || n > limit {
				t.Errorf("%s: %d bytes of an endless answer came, %v", host, n, err)
			}
			<-s.proxy.Exhausted()
			if o := s.gate.last(t); o.Failure != Exhausted {
				t.Errorf("%s: %+v", host, o)
			}
			if stats := s.proxy.Stats(); stats.Sent+stats.Received > limit+100<<10 || stats.Received < n {
				t.Errorf("%s: %+v", host, stats)
			}
			decided := len(s.gate.log())
			if response, _ := s.ask(lines("CONNECT example.com:443 HTTP/1.1", "Host: example.com:443")); response.StatusCode != 403 {
				t.Errorf("afterwards: %d", response.StatusCode)
			}
			if response, _ := s.ask(lines("GET http://example.com/ HTTP/1.1", "Host: example.com")); response.StatusCode != 403 || response.Header.Get("Tendril-Denied") != "limits.egress" {
				t.Errorf("afterwards: %d", response.StatusCode)
			}
			url, _ := destination.Parse("https://example.com/")
			if _, err := s.proxy.Fetch(t.Context(), s.gate, url, io.Discard, 1); !fault.Is(err, fault.Denied) {
				t.Errorf("afterwards, fetch: %v", err)
			}
			if log := s.gate.log()[decided:]; len(log) != 0 {
				t.Errorf("afterwards, decided: %v", log)
			}
		}
	})
}

// Also what is sent counts, and streams on which nothing moves end with the others.
func TestExhaustionEndsEverything(t *testing.T) {
	const limit = 1 << 20
	s := open(t, func(c *Config) { c.Limits.Bytes = limit })
	s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}), false, "api.example")
	silent, err := s.client(false).Get("https://api.example/")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Body.Close()
	response, err := s.client(false).Post("https://api.example/", "", zeros{})
	if err == nil {
		response.Body.Close()
		if response.StatusCode != 403 {
			t.Errorf("an endless body: %d", response.StatusCode)
		}
	}
	if stats := s.proxy.Stats(); stats.Sent > limit+64<<10 {
		t.Errorf("%+v", stats)
	}
	if _, err := io.ReadAll(silent.Body); err == nil {
		t.Error("the other stream looks whole")
	}
}

// Of bytes that are too many, none leaves.
func TestBytesThatAreTooManyStay(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	conn := &upstreamConn{Conn: ours, of: &upstreams{bytes: newMeter(10)}}
	arrived := make(chan string)
	go func() {
		text, _ := io.ReadAll(theirs)
		arrived <- string(text)
	}()
	if _, err := conn.Write([]byte("ten bytes!")); err != nil {
		t.Error(err)
	}
	if _, err := conn.Write([]byte("!")); err == nil {
		t.Error("there is no limit")
	}
	_ = ours.Close()
	if text := <-arrived; text != "ten bytes!" {
		t.Errorf("%q arrived", text)
	}
}

func TestManyClientsAtOnce(t *testing.T) {
	s := open(t, func(c *Config) { c.Limits.Connections = 3 * 64 })
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.URL.Path, body)
	}), "api.example", "tunnel.example")
	var clients sync.WaitGroup
	for i := range 64 {
		client := s.client(i%2 == 0)
		clients.Go(func() {
			for j, origin := range []string{"https://api.example", "http://api.example", "https://tunnel.example", "https://api.example"} {
				path, body := fmt.Sprintf("/%d/%d", i, j), strings.Repeat("x", 1000*i)
				response, err := client.Post(origin+path, "text/plain", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(response.Body)
				response.Body.Close()
				if string(got) != path+" "+body || err != nil {
					t.Errorf("%s: %d bytes, %v", path, len(got), err)
				}
			}
		})
	}
	clients.Wait()
	if got := s.proxy.Stats().Requests; got < 64*3 {
		t.Errorf("%d requests were counted", got)
	}
}

// Close ends what is under way, in whatever state, and waits for it.
func TestCloseEndsEverything(t *testing.T) {
	s := open(t)
	arrived := make(chan struct{}, 10)
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		arrived <- struct{}{}
		<-r.Context().Done()
	}), "example.com", "tunnel.example")
	var clients sync.WaitGroup
	for i, url := range []string{"https://example.com/", "https://example.com/", "http://example.com/", "https://tunnel.example/"} {
		client := s.client(i%2 == 0)
		clients.Go(func() {
			response, err := client.Get(url)
			if err != nil {
				return
			}
			defer response.Body.Close()
			if _, err := io.ReadAll(response.Body); err == nil {
				t.Errorf("%s looks whole", url)
			}
		})
	}
	clients.Go(func() {
		url, _ := destination.Parse("https://example.com/")
		if _, err := s.proxy.Fetch(context.Background(), s.gate, url, io.Discard, 1000); err == nil {
			t.Error("a fetch looks whole")
		}
	})
	_ = s.raw()
	half := s.raw()
	_, _ = io.WriteString(half, "GET http")
	for range 5 {
		<-arrived
	}
	s.proxy.Close()
	if got := s.gate.last(t); got.Failure != Gone && got.Failure != Cut { // of a tunnel, whichever side was first
		t.Errorf("%+v", got)
	}
	clients.Wait()
	s.proxy.Serve(t.Context(), half) // is closed at once
}

// The end of a Serve's context ends its connection and no other.
func TestServeEndsWithItsContext(t *testing.T) {
	s := closed(t)
	ctx, cancel := context.WithCancel(t.Context())
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		s.proxy.Serve(ctx, server)
		close(done)
	}()
	_, _ = io.WriteString(client, "GET ")
	cancel()
	<-done
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection is %v", err)
	}
}
