package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	neturl "net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/destination"
	"tendril/egress/authority"
	"tendril/fault"
	"tendril/goroutines"
)

func TestMain(m *testing.M) { goroutines.Main(m, "tendril/egress/proxy") }

// gate decides by rules, and keeps what it decided and what came of it.
type gate struct {
	rules  []destination.Rule
	change func(url destination.URL, v *Verdict) // of requests; may be nil

	mu       sync.Mutex
	told     sync.Cond
	decided  []string
	outcomes []Outcome // of requests and tunnels
	misled   []string  // server, rule and reason of each that was refused undecided
	patience int       // how many of them there may be; 0: as many as there are
	open     int       // decisions whose outcome nobody has told yet
	pending  int       // of them, those that are no inspected CONNECT
}

func (g *gate) verdict(what string, d destination.Decision) Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.decided = append(g.decided, fmt.Sprintf("%s %t", what, d.Allowed))
	g.open++
	told, counts := false, !d.Inspect
	if counts {
		g.pending++
	}
	return Verdict{Allowed: d.Allowed, Inspect: d.Inspect, Rule: "egress", Reasons: d.Reasons, Hint: "ask the Botanist", Done: func(o Outcome) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if told {
			panic("an outcome was told twice")
		}
		told = true
		g.open--
		if counts {
			g.pending--
			g.outcomes = append(g.outcomes, o)
		}
		g.told.Broadcast()
	}}
}

func (g *gate) Connect(_ context.Context, to destination.Authority) (Verdict, error) {
	return g.verdict("CONNECT "+to.String(), destination.DecideAuthority(to, g.rules)), nil
}

func (g *gate) Request(_ context.Context, url destination.URL, method string) (Verdict, error) {
	v := g.verdict(method+" "+url.String(), destination.Decide(url, method, g.rules))
	if g.change != nil {
		g.change(url, &v)
	}
	return v, nil
}

func (g *gate) Misled(_ context.Context, to destination.Authority, rule, reason string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	server := ""
	if to != (destination.Authority{}) {
		server = to.String()
	}
	g.misled = append(g.misled, strings.TrimSpace(server+" "+rule+": "+reason))
	if g.patience > 0 && len(g.misled) > g.patience {
		return fault.New(fault.Denied, "too many")
	}
	return nil
}

func (g *gate) refusals() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.misled...)
}

func (g *gate) log() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.decided...)
}

// last waits until the outcome of every request and tunnel was told, and returns the
// last one.
func (g *gate) last(t testing.TB) Outcome {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.pending > 0 {
		g.told.Wait()
	}
	if len(g.outcomes) == 0 {
		t.Fatal("no outcome was told")
	}
	return g.outcomes[len(g.outcomes)-1]
}

// names is a dialer that knows a few hosts, which are all on this one.
type knownHosts struct {
	mu     sync.Mutex
	hosts  map[string]string // authority → address; "" is one that may not be dialled
	dialed []string
}

func (k *knownHosts) Dial(ctx context.Context, to destination.Authority, _ []netip.Prefix) (net.Conn, netip.AddrPort, error) {
	k.mu.Lock()
	address, known := k.hosts[to.String()]
	k.dialed = append(k.dialed, to.String())
	k.mu.Unlock()
	switch {
	case !known:
		return nil, netip.AddrPort{}, fault.New(fault.Unavailable, "the name %s has no address", to.Host)
	case address == "":
		return nil, netip.AddrPort{}, fault.New(fault.Denied, "the address of %s is not public", to.Host).WithRule("loopback")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, netip.AddrPort{}, fault.New(fault.Unavailable, "%s does not answer: %w", to, err)
	}
	return conn, netip.MustParseAddrPort(address), nil
}

func (k *knownHosts) log() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.dialed...)
}

// site is a proxy with clients on a real socket and servers on others.
type site struct {
	t         testing.TB
	gate      *gate
	hosts     *knownHosts
	authority *authority.Authority
	upstream  *authority.Authority // of the servers' certificates
	proxy     *Proxy
	address   string // of the socket in front of the proxy
}

// rule permits methods (GET and HEAD if none is named) on a host.
func rule(t testing.TB, host string, methods ...destination.Method) destination.Rule {
	t.Helper()
	pattern, err := destination.ParsePattern(host)
	if err != nil {
		t.Fatal(err)
	}
	r := destination.Rule{Host: pattern}
	if methods != nil {
		r.Methods = methods
	}
	return r
}

func plain(r destination.Rule) destination.Rule {
	r.Scheme = destination.HTTP
	return r
}

// open begins a site with a socket in front of it.
func open(t testing.TB, change ...func(*Config)) *site {
	t.Helper()
	s := closed(t, change...)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { s.proxy.Serve(context.Background(), conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		s.proxy.Close()
		tasks.Wait()
	})
	return s
}

// closed begins a site without a socket. Its rules permit GET and HEAD on example.com and below
// example.org over either scheme, everything on api.example, and a tunnel to
// tunnel.example.
func closed(t testing.TB, change ...func(*Config)) *site {
	t.Helper()
	s := &site{t: t, hosts: &knownHosts{hosts: map[string]string{}}}
	every := []destination.Method{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"}
	s.gate = &gate{rules: []destination.Rule{
		rule(t, "example.com"), plain(rule(t, "example.com")),
		rule(t, "*.example.org"), plain(rule(t, "*.example.org")),
		rule(t, "api.example", every...), plain(rule(t, "api.example", every...)),
		rule(t, "tunnel.example", destination.Any),
	}}
	s.gate.told.L = &s.gate.mu
	var err error
	if s.authority, err = authority.New(time.Now()); err != nil {
		t.Fatal(err)
	}
	if s.upstream, err = authority.New(time.Now()); err != nil {
		t.Fatal(err)
	}
	config := Config{Gate: s.gate, Dialer: s.hosts, Authority: s.authority, Roots: certificates(t, s.upstream)}
	for _, c := range change {
		c(&config)
	}
	if s.proxy, err = New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.proxy.Close()
		s.gate.mu.Lock()
		defer s.gate.mu.Unlock()
		if s.gate.open != 0 {
			t.Errorf("of %d decisions the outcome was not told", s.gate.open)
		}
		if stats := s.proxy.Stats(); stats.Connections != 0 {
			t.Errorf("%d connections are open after the end", stats.Connections)
		}
	})
	return s
}

func certificates(t testing.TB, a *authority.Authority) []*x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(a.CertificatePEM())
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{certificate}
}

// serve begins a server that is known as the hosts, over TLS and in plain text.
func (s *site) serve(handler http.Handler, hosts ...string) {
	s.t.Helper()
	s.serveTLS(handler, true, hosts...)
	server := httptest.NewServer(handler)
	s.t.Cleanup(server.Close)
	for _, host := range hosts {
		s.know(host+":80", server.Listener.Addr().String())
	}
}

func (s *site) know(authority, address string) {
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	s.hosts.hosts[authority] = address
}

// serveTLS begins a server with HTTP/2 or without.
func (s *site) serveTLS(handler http.Handler, h2 bool, hosts ...string) *httptest.Server {
	s.t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = quiet
	server.EnableHTTP2 = h2
	server.TLS = &tls.Config{GetCertificate: func(info *tls.ClientHelloInfo) (*tls.Certificate, error) {
		host, err := destination.ParseHost(info.ServerName)
		if err != nil {
			return nil, err
		}
		return s.upstream.Leaf(host)
	}}
	server.StartTLS()
	s.t.Cleanup(server.Close)
	for _, host := range hosts {
		s.know(host+":443", server.Listener.Addr().String())
	}
	return server
}

// trust is the TLS of a client inside.
func (s *site) trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.authority.CertificatePEM())
	pool.AppendCertsFromPEM(s.upstream.CertificatePEM()) // through a tunnel it sees the server itself
	return &tls.Config{RootCAs: pool}
}

// client is one that uses the proxy, over HTTP/2 or not.
func (s *site) client(h2 bool) *http.Client {
	transport := &http.Transport{
		Proxy:              http.ProxyURL(&neturl.URL{Scheme: "http", Host: s.address}),
		TLSClientConfig:    s.trust(),
		ForceAttemptHTTP2:  h2,
		DisableCompression: true,
	}
	if !h2 {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// raw opens a connection to the proxy.
func (s *site) raw() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// ask sends text and reads one answer.
func (s *site) ask(text string) (*http.Response, string) {
	s.t.Helper()
	conn := s.raw()
	if _, err := io.WriteString(conn, text); err != nil {
		s.t.Fatal(err)
	}
	response, body, err := read(bufio.NewReader(conn), "GET")
	if err != nil {
		s.t.Fatalf("%.80q: %v", text, err)
	}
	return response, body
}

func read(from *bufio.Reader, method string) (*http.Response, string, error) {
	response, err := http.ReadResponse(from, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// through opens a connection through the proxy and TLS in it.
func (s *site) through(host string, protocols ...string) *tls.Conn {
	s.t.Helper()
	conn := s.raw()
	fmt.Fprintf(conn, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", host, host)
	line, err := bufio.NewReaderSize(io.LimitReader(conn, int64(len(established))), 64).ReadString('\n')
	if err != nil || !strings.Contains(line, " 200 ") {
		s.t.Fatalf("CONNECT %s: %q, %v", host, line, err)
	}
	config := s.trust()
	config.ServerName = host
	config.NextProtos = protocols
	secure := tls.Client(conn, config)
	if err := secure.Handshake(); err != nil {
		s.t.Fatalf("TLS to %s: %v", host, err)
	}
	return secure
}

// text gets a URL and returns the status and the body.
func text(t testing.TB, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func says(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, what) }
}

var quiet = log.New(io.Discard, "", 0)
