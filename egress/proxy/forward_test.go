package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/quick"
	"time"

	"tendril/destination"
	"tendril/egress/authority"
	"tendril/fault"
)

// echo answers with the header that arrived.
func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s\n", r.Method, r.Host)
	_ = r.Header.Write(w)
}

func TestFieldsThatAreNotPassedOn(t *testing.T) {
	s := open(t)
	s.serveTLS(http.HandlerFunc(echo), false, "example.com")
	secure := s.through("example.com", "http/1.1")
	fmt.Fprint(secure, lines("GET / HTTP/1.1", "Host: EXAMPLE.com:443", "Connection: close, X-Hop, Authorization", "X-Hop: a", "Authorization: mine", "Keep-Alive: 5",
		"Proxy-Authorization: Basic eA==", "Proxy-Connection: keep-alive", "X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 a",
		"X-Real-IP: 192.0.2.1", "Te: gzip, trailers", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", "Alt-Used: evil.example",
		"Accept-Encoding: br", "Cookie: a=b", "X-Kept: 1", "x-kept: 2"))
	_, body, err := read(bufio.NewReader(secure), "GET")
	want := "GET example.com\nAccept-Encoding: br\r\nCookie: a=b\r\nTe: trailers\r\nX-Kept: 1\r\nX-Kept: 2\r\n"
	if err != nil || body != want {
		t.Errorf("%q, %v, want %q", body, err, want)
	}
}

func TestAnswerFieldsThatAreNotPassedOn(t *testing.T) {
	s := open(t)
	s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Alt-Svc", "Via", "Proxy-Authenticate", "Keep-Alive", "X-Hop", "Tendril-Denied", "Set-Cookie"} {
			w.Header().Set(name, "x")
		}
		w.Header().Add("Connection", "X-Hop")
		w.Header()["Content-Type"] = nil
		fmt.Fprint(w, "<html>")
	}), false, "example.com")
	both(t, func(t *testing.T, h2 bool) {
		response, err := s.client(h2).Get("https://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		var got []string
		for name := range response.Header {
			got = append(got, name)
		}
		if slices.Sort(got); !slices.Equal(got, []string{"Content-Length", "Date", "Set-Cookie"}) {
			t.Errorf("%v", response.Header)
		}
	})
}

// Nothing is asked for compressed, or decompressed, on the way.
func TestContentIsLeftAsItIs(t *testing.T) {
	s := open(t)
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		fmt.Fprintf(w, "%q", r.Header["Accept-Encoding"])
	}), "example.com")
	both(t, func(t *testing.T, h2 bool) {
		response, err := s.client(h2).Get("https://example.com/")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || string(body) != "[]" || response.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%q %v %v", body, response.Header, err)
		}
	})
}

func TestACredentialOverPlainText(t *testing.T) {
	s := open(t)
	s.serve(http.HandlerFunc(echo), "example.com")
	attached := false
	s.gate.change = func(_ destination.URL, v *Verdict) {
		if attached {
			v.Attach = func(_ context.Context, r *http.Request) error {
				r.Header.Set("X-Key", "secret")
				return nil
			}
		}
	}
	for _, scheme := range []string{"http", "https"} {
		for _, attached = range []bool{false, true} {
			request, _ := http.NewRequest("GET", scheme+"://example.com/", nil)
			request.Header.Set("Authorization", "mine")
			request.Header.Set("Cookie", "a=b")
			response, err := s.client(false).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			own := strings.Contains(string(body), "Authorization: mine") && strings.Contains(string(body), "Cookie: a=b")
			if want := scheme == "https" || !attached; own != want {
				t.Errorf("%s, attached %t: %s", scheme, attached, body)
			}
		}
	}
}

// The target that is sent is the one that was judged, whatever it looks like.
func TestTheTargetIsTheOneThatWasJudged(t *testing.T) {
	check := func(path, query string) bool {
		url, err := destination.Parse("https://example.com/" + path + "?" + query)
		if err != nil {
			return true
		}
		r, d := newRequest(t.Context(), "GET", url)
		return d == nil && r.URL.RequestURI() == url.Target() && r.URL.Host == "example.com" && r.Host == "example.com"
	}
	for _, path := range []string{"", "/", "//evil.com/x", "a/../b", "%2e%2e/x", "a%2Fb", "a;b", "[x]", "a:b@c", "%", "ä", "*", "a b", "!$&'()*+,=:@"} {
		if !check(path, "") || !check(path, path) {
			t.Errorf("%q", path)
		}
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

// A server that ends the connection when it has read a request.
func TestABodyIsSentOnce(t *testing.T) {
	s := open(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.know("api.example:80", listener.Addr().String())
	var mu sync.Mutex
	var bodies []string
	var server sync.WaitGroup
	server.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			from := bufio.NewReader(conn)
			for i := 0; ; i++ {
				r, err := http.ReadRequest(from)
				if err != nil {
					break
				}
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				bodies = append(bodies, string(body))
				mu.Unlock()
				if i == 1 { // the second on a connection has no answer
					break
				}
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			_ = conn.Close()
		}
	})
	client := s.client(false)
	var statuses []int
	for _, body := range []string{"first", "second"} {
		request, _ := http.NewRequest("PUT", "http://api.example/", strings.NewReader(body))
		request.Header.Set("Idempotency-Key", "1")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		statuses = append(statuses, response.StatusCode)
	}
	_ = listener.Close()
	s.proxy.Close()
	server.Wait()
	if !slices.Equal(bodies, []string{"first", "second"}) || !slices.Equal(statuses, []int{200, 502}) {
		t.Errorf("%q arrived, %v", bodies, statuses)
	}
}

func TestUpstreamsThatCannotBeTrusted(t *testing.T) {
	s := open(t)
	other, err := authority.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	serve := func(host string, config *tls.Config) {
		listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: says("a hole"), ErrorLog: quiet}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		s.know(host+":443", listener.Addr().String())
	}
	leaf := func(a *authority.Authority, name string) *tls.Config {
		host, err := destination.ParseHost(name)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := a.Leaf(host)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{*certificate}}
	}
	serve("other.example.org", leaf(s.upstream, "evil.example"))
	serve("untrusted.example.org", leaf(other, "untrusted.example.org"))
	serve("own.example.org", leaf(s.authority, "own.example.org")) // the run's own is for the inside alone
	old := leaf(s.upstream, "old.example.org")
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	serve("old.example.org", old)
	s.know("refused.example.org:443", "")
	s.know("silent.example.org:443", "127.0.0.1:1")
	for host, want := range map[string]struct {
		status  int
		rule    string
		failure Failure
	}{
		"other.example.org":     {502, "upstream", Untrusted},
		"untrusted.example.org": {502, "upstream", Untrusted},
		"own.example.org":       {502, "upstream", Untrusted},
		"old.example.org":       {502, "upstream", Cut},
		"refused.example.org":   {403, "loopback", Refused},
		"silent.example.org":    {502, "upstream", Unreachable},
		"unknown.example.org":   {502, "upstream", Unreachable},
	} {
		response, err := s.client(true).Get("https://" + host + "/")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want.status || response.Header.Get("Tendril-Denied") != want.rule {
			t.Errorf("%s: %d %v", host, response.StatusCode, response.Header)
		}
		if o := s.gate.last(t); o.Failure != want.failure {
			t.Errorf("%s: %+v", host, o)
		}
	}
}

// An upstream that speaks something else, or too much.
func TestUpstreamsThatMakeNoSense(t *testing.T) {
	for name, says := range map[string]string{
		"not HTTP":             "SSH-2.0-OpenSSH_9.2p1\r\n",
		"an endless header":    "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 2*longestAnswerHeader) + "\r\n\r\n",
		"two lengths":          "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"another protocol":     "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"secrets in its error": "HTTP/1.1 abc <script>\r\n\r\n",
		"a length of nonsense": "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"a coding of nonsense": "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"a folded field":       "HTTP/1.1 200 OK\r\n folded\r\n\r\n",
		"nothing":              "",
		"endless continuation": strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("a", 1000)+"\r\n\r\n", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, says)
				_ = conn.Close()
			}()
			s.know("example.com:80", listener.Addr().String())
			status, body := text(t, s.client(false), "http://example.com/")
			if status != 502 || strings.Contains(body, "script") {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

// A gate that fails refuses, and says no more than it may.
func TestAGateThatFails(t *testing.T) {
	for _, test := range []struct {
		err    error
		status int
		says   string
	}{
		{fault.New(fault.Denied, "the grant has expired").WithRule("expires"), 403, "the grant has expired"},
		{fault.New(fault.NeedsApproval, "a person has to say yes"), 403, "a person"},
		{fault.New(fault.Invalid, "no such thing"), 400, "no such thing"},
		{fault.New(fault.Unavailable, "open /secret/path"), 503, "no decision"},
		{fmt.Errorf("open /secret/path"), 500, "no decision"},
	} {
		s := closed(t, func(c *Config) { c.Gate = failingGate{test.err} })
		for _, request := range []string{lines(get, host), lines("CONNECT api.example:443 HTTP/1.1", "Host: api.example:443")} {
			client, server := net.Pipe()
			go s.proxy.Serve(t.Context(), server)
			_, _ = io.WriteString(client, request)
			response, body, err := read(bufio.NewReader(client), "GET")
			if err != nil || response.StatusCode != test.status || !strings.Contains(body, test.says) || strings.Contains(body, "secret") {
				t.Errorf("%v: %v %s %v", test.err, response, body, err)
			}
			_ = client.Close()
		}
	}
}

type failingGate struct{ err error }

func (g failingGate) Connect(context.Context, destination.Authority) (Verdict, error) {
	return Verdict{Allowed: true}, g.err
}

func (g failingGate) Misled(context.Context, destination.Authority, string, string) error {
	return g.err
}

func (g failingGate) Request(context.Context, destination.URL, string) (Verdict, error) {
	return Verdict{Allowed: true}, g.err
}

// What a refusal repeats of a rule or a URL stays text.
func TestDenialsAreText(t *testing.T) {
	v := Verdict{Rule: "a\r\nX-Evil: 1\x1b[2J", Reasons: []string{"b\x1b[2J\n", "<c>"}, Hint: "d\r\nd\u202e"}
	for _, accept := range []string{"", "application/json"} {
		header, body := deniedBy(v).of("GET\x00", "https://example.com/\x1b").render(accept)
		for name, values := range header {
			if strings.ContainsAny(values[0], "\r\n\x1b") {
				t.Errorf("%s: %q", name, values)
			}
		}
		if strings.ContainsAny(string(body), "\x1b\x00\r\u202e") {
			t.Errorf("%q", body)
		}
	}
}

// recording is a dialer that keeps which networks were permitted.
type recording struct {
	Dialer
	mu       sync.Mutex
	networks []string
}

func (r *recording) Dial(ctx context.Context, to destination.Authority, networks []netip.Prefix) (net.Conn, netip.AddrPort, error) {
	r.mu.Lock()
	r.networks = append(r.networks, fmt.Sprint(networks))
	r.mu.Unlock()
	return r.Dialer.Dial(ctx, to, networks)
}

// A connection that one rule permits is not used for what another one permits.
func TestConnectionsAreSharedAmongTheSameNetworks(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		var dialer *recording
		s := open(t, func(c *Config) {
			dialer = &recording{Dialer: c.Dialer}
			c.Dialer = dialer
		})
		s.serveTLS(says("hello"), h2, "example.com")
		s.gate.change = func(url destination.URL, v *Verdict) {
			if url.Path() == "/inside" {
				v.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
			}
		}
		client := s.client(h2)
		for range 3 {
			for _, path := range []string{"/", "/inside"} {
				if status, body := text(t, client, "https://example.com"+path); status != 200 {
					t.Errorf("%d %s", status, body)
				}
			}
		}
		s.proxy.Close()
		if want := []string{"[]", "[10.0.0.0/8]"}; !slices.Equal(dialer.networks, want) {
			t.Errorf("dialled for %v, want %v", dialer.networks, want)
		}
	})
}
