package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"tendril/corpora"
	"tendril/destination"
	"tendril/egress"
	"tendril/fault"
)

// internet is a resolver and a network, with the real dialer between them. Public
// addresses lead to servers of the test, all others nowhere; that they were tried is a
// failure.
type internet struct {
	mu      sync.Mutex
	answers map[string][]string // of a name, one for each lookup; the last one stays
	servers map[string]string   // authority of an address → address of a listener
	reached []string            // address and port
}

func (n *internet) Lookup(_ context.Context, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answers := n.answers[host]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		n.answers[host] = answers[1:]
	}
	var addresses []netip.Addr
	for text := range strings.FieldsSeq(answers[0]) {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	return addresses, nil
}

func (n *internet) Connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	n.reached = append(n.reached, to.String())
	address, ok := n.servers[to.String()]
	n.mu.Unlock()
	if !ok {
		return nil, errors.New("nobody is there")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return elsewhere{conn, net.TCPAddrFromAddrPort(to)}, nil
}

type elsewhere struct {
	net.Conn
	remote net.Addr
}

func (e elsewhere) RemoteAddr() net.Addr { return e.remote }

const (
	public  = "93.184.216.34"
	another = "93.184.216.35"
)

// world is a site whose servers are reached through the real dialer.
func world(t *testing.T, h2 bool, handler http.Handler) (*site, *internet) {
	t.Helper()
	n := &internet{
		answers: map[string][]string{
			"example.com":        {public},
			"x.example.org":      {another},
			"api.github.com":     {another},
			"evil.com":           {another},
			"rebind.example.org": {public, "127.0.0.1"},
			"loop.example.org":   {"::1"},
		},
		servers: map[string]string{},
	}
	s := open(t, func(c *Config) { c.Dialer = &egress.Dialer{Resolver: n, Connect: n.Connect} })
	secure := s.serveTLS(handler, h2)
	plainly := httptest.NewServer(handler)
	t.Cleanup(plainly.Close)
	for _, address := range []string{public, another} {
		n.servers[address+":443"] = secure.Listener.Addr().String()
		n.servers[address+":80"] = plainly.Listener.Addr().String()
	}
	s.gate.rules = nil
	for _, host := range []string{"example.com", "*.example.org", "api.github.com"} {
		s.gate.rules = append(s.gate.rules, rule(t, host), plain(rule(t, host)))
	}
	return s, n
}

// onlyPublic fails if anything but the two public servers was dialled.
func (n *internet) onlyPublic(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, address := range n.reached {
		if _, ok := n.servers[address]; !ok {
			t.Errorf("%s was dialled", address)
		}
	}
}

// outside says which rows are about what this package does not see: whether there is a
// way around it.
var outside = []string{"P25", "P28"}

func TestForeignRequests(t *testing.T) {
	s, n := world(t, true, says("reached"))
	for _, row := range corpora.Rows(t, "proxy_cases.tsv") {
		if slices.Contains(outside, row["id"]) {
			continue
		}
		t.Run(row["id"], func(t *testing.T) {
			allowed := tryRequest(t, s, row["id"], row["request"])
			if allowed != (row["expected"] == "allow") {
				t.Errorf("%s: allowed %t, and should be: %s (%s)", row["request"], allowed, row["expected"], row["why"])
			}
		})
	}
	n.onlyPublic(t)
}

// tryRequest reports whether what a row of proxy_cases.tsv asks for arrived.
func tryRequest(t *testing.T, s *site, id, request string) bool {
	t.Helper()
	begins := func(text string) bool { return strings.HasPrefix(request, text) }
	const to = "GET http://example.com/ HTTP/1.1"
	var raw string
	switch {
	case strings.Contains(request, "ECH"):
		conn := s.raw()
		fmt.Fprintf(conn, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
		_, _ = io.ReadFull(conn, make([]byte, len(established)))
		_, _ = conn.Write(record(helloMessage(serverName("example.com"), extension{extensionECH, []byte{1}}), 1<<14))
		answer, _ := io.ReadAll(conn)
		return len(answer) > len(alert)
	case begins("CONNECT "):
		target := strings.Fields(request)[1]
		raw = lines("CONNECT "+target+" HTTP/1.1", "Host: "+target)
	case strings.Contains(request, "with Host: "):
		words := strings.Fields(request)
		raw = lines("GET "+words[1]+" HTTP/1.1", "Host: "+words[len(words)-1])
	case begins("two Host headers"):
		raw = lines(to, "Host: example.com", "Host: evil.com")
	case begins("Content-Length and Transfer-Encoding"):
		raw = lines("POST http://example.com/ HTTP/1.1", "Host: example.com", "Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n"
	case begins("Transfer-Encoding: chunked with bad"):
		raw = lines("GET http://example.com/ HTTP/1.1", "Host: example.com", "Transfer-Encoding: chunked") + "x\r\n\r\n0\r\n\r\n"
	case begins("Upgrade: websocket"):
		raw = lines(to, "Host: example.com", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
	default:
		t.Fatalf("nothing is known about the row %s: %s", id, request)
	}
	conn := s.raw()
	_, _ = io.WriteString(conn, raw)
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: strings.Fields(raw)[0]})
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode == 200 || response.StatusCode == 101
}

// scenes are what the servers of redirects.tsv answer with, where the row does not say
// it in the form "302 LOCATION".
var scenes = map[string]func(w http.ResponseWriter, r *http.Request){
	"R01": func(w http.ResponseWriter, r *http.Request) { step(w, r, "/a", "https://example.com/b") },
	"R30": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			redirect(w, 303, "https://example.com/b")
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %d", r.Method, len(body))
	},
	"R35": func(w http.ResponseWriter, r *http.Request) {
		var i int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &i)
		if i < 11 {
			redirect(w, 302, fmt.Sprintf("https://example.com/%d", i+1))
		}
	},
	"R37": func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "example.com" {
			redirect(w, 302, "https://x.example.org/b")
		} else {
			redirect(w, 302, "https://example.com/a")
		}
	},
	"R38": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(302) },
	"R40": func(w http.ResponseWriter, r *http.Request) { redirect(w, 300, "http://127.0.0.1/") },
	"R41": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Refresh", "0;url=http://169.254.169.254/")
	},
	"R42": func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "<meta http-equiv=refresh url=http://127.0.0.1/>")
	},
	"R43": func(w http.ResponseWriter, r *http.Request) { redirect(w, 201, "http://127.0.0.1/") },
	"R44": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			w.Header()["Location"] = []string{"https://example.com/b", "http://127.0.0.1/"}
			w.WriteHeader(302)
		}
	},
	"R45": func(w http.ResponseWriter, r *http.Request) {
		// The raw variant with a bare CR: with CRLF, it is another field, and nobody can
		// tell that it was not meant. The encoded one has a test of its own.
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			fmt.Fprint(conn, "HTTP/1.1 302 Found\r\nLocation: https://example.com/\rSet-Cookie: x\r\nContent-Length: 0\r\n\r\n")
			_ = conn.Close()
		}
	},
	"R48": func(w http.ResponseWriter, r *http.Request) { step(w, r, "/a", "https://rebind.example.org/") },
	"R49": func(w http.ResponseWriter, r *http.Request) { step(w, r, "/a", "https://loop.example.org/") },
	"R50": func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/a" {
			redirect(w, 307, "https://example.com/b")
		}
	},
	"R52": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "<http://127.0.0.1/>; rel=preload")
		w.WriteHeader(103)
	},
	"R53": func(w http.ResponseWriter, r *http.Request) { redirect(w, 305, "http://10.0.0.1:3128") },
	"R54": func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Alt-Svc", `h3="10.0.0.5:443"`) },
}

func step(w http.ResponseWriter, r *http.Request, from, to string) {
	if r.URL.Path == from {
		redirect(w, 302, to)
	}
}

func redirect(w http.ResponseWriter, status int, to string) {
	w.Header()["Location"] = []string{to}
	w.WriteHeader(status)
}

// scene is what the servers of a row do.
func scene(t *testing.T, row map[string]string) http.HandlerFunc {
	t.Helper()
	if known := scenes[row["id"]]; known != nil {
		return known
	}
	_, location, ok := strings.Cut(row["chain"], "-> 302 ")
	if !ok || strings.HasPrefix(location, "(") {
		t.Fatalf("nothing is known about the row %s: %s", row["id"], row["chain"])
	}
	location = strings.Fields(location)[0]
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "example.com" && r.URL.Path != "/b" {
			redirect(w, 302, location)
		}
	}
}

func firstURL(row map[string]string) string {
	for word := range strings.FieldsSeq(row["chain"]) {
		if strings.HasPrefix(word, "https://") {
			return word
		}
	}
	return ""
}

// A Fetch follows a chain as its row says. Where a row permits an answer that is no
// content, Fetch says so, and that it is no refusal.
func TestForeignRedirectsByFetch(t *testing.T) {
	for _, row := range corpora.Rows(t, "redirects.tsv") {
		if row["id"] == "R50" {
			continue // is about a body, and a Fetch has none
		}
		t.Run(row["id"], func(t *testing.T) {
			var mu sync.Mutex
			var seen []*http.Request
			handler := scene(t, row)
			s, n := world(t, row["id"] != "R45", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				seen = append(seen, r.Clone(context.Background()))
				mu.Unlock()
				handler(w, r)
			}))
			if row["id"] == "R48" { // so that the second lookup is the second hop's
				n.answers["rebind.example.org"] = []string{"127.0.0.1"}
			}
			s.gate.change = func(url destination.URL, v *Verdict) {
				v.Attach = func(_ context.Context, r *http.Request) error {
					r.Header.Set("X-Api-Key", "secret")
					return nil
				}
			}
			url, err := destination.Parse(firstURL(row))
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.proxy.Fetch(t.Context(), s.gate, url, io.Discard, 1<<20)
			answered := fault.Is(err, fault.Unavailable) && strings.Contains(err.Error(), "answers with status")
			if allowed := err == nil || answered && row["expected"] == "allow"; allowed != (row["expected"] == "allow") {
				t.Errorf("%s: %v, and should be: %s (%s)", row["chain"], err, row["expected"], row["invariant"])
			}
			n.onlyPublic(t)
			for _, r := range seen {
				if r.Host != "example.com" && r.Header.Get("X-Api-Key") != "" {
					t.Errorf("the credential went to %s", r.Host)
				}
				if r.Host == "example.com" && r.Header.Get("X-Api-Key") == "" && len(seen) < 3 {
					t.Error("the credential did not go where it belongs")
				}
				if r.Header.Get("Referer") != "" || r.Host == "evil.com" {
					t.Errorf("%s was asked with %v", r.Host, r.Header)
				}
			}
		})
	}
}

// A client that follows redirects itself asks for each hop, and gets no farther.
func TestForeignRedirectsByAClient(t *testing.T) {
	for _, row := range corpora.Rows(t, "redirects.tsv") {
		t.Run(row["id"], func(t *testing.T) {
			arrived := map[string]bool{}
			var mu sync.Mutex
			handler := scene(t, row)
			s, n := world(t, row["id"] != "R45", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				arrived[r.Method+" "+r.Host+r.URL.Path] = true
				mu.Unlock()
				handler(w, r)
			}))
			s.gate.rules = append(s.gate.rules, rule(t, "example.com", "POST"))
			client := s.client(true)
			client.CheckRedirect = nil
			request, _ := http.NewRequest("GET", firstURL(row), nil)
			switch row["id"] {
			case "R30":
				request, _ = http.NewRequest("POST", firstURL(row), strings.NewReader("body"))
			case "R50":
				request, _ = http.NewRequest("POST", firstURL(row), io.LimitReader(zeros{}, 16<<20)) // cannot be sent again
			case "R48":
				n.answers["rebind.example.org"] = []string{"127.0.0.1"}
			}
			response, err := client.Do(request)
			status, body := 0, []byte(nil)
			if err == nil {
				body, _ = io.ReadAll(response.Body)
				response.Body.Close()
				status = response.StatusCode
				if response.Header.Get("Alt-Svc") != "" {
					t.Error("another way to the server is offered")
				}
			}
			n.onlyPublic(t)
			refused := err != nil || response.Header.Get("Tendril-Denied") != "" || row["id"] == "R50" && status == 307 // which is where the client has to stop
			if row["expected"] == "allow" && refused {
				t.Errorf("%s: %d %v", row["chain"], status, err)
			}
			if row["id"] == "R30" && string(body) != "GET 0" {
				t.Errorf("after a 303: %q", body)
			}
			if row["id"] == "R50" && arrived["POST example.com/b"] {
				t.Error("a body was sent again")
			}
			if row["expected"] == "deny" && !refused {
				t.Errorf("%s: %d %s, and should be refused (%s)", row["chain"], status, body, row["invariant"])
			}
		})
	}
}

// What is encoded in a Location stays so.
func TestEncodedLineEndsStayEncoded(t *testing.T) {
	s, _ := world(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if step(w, r, "/a", "https://example.com/%0d%0aSet-Cookie:%20x"); r.URL.Path != "/a" {
			fmt.Fprintf(w, "%s %v", r.RequestURI, r.Header["Set-Cookie"])
		}
	}))
	url, _ := destination.Parse("https://example.com/a")
	var body strings.Builder
	if _, err := s.proxy.Fetch(t.Context(), s.gate, url, &body, 1000); err != nil || body.String() != "/%0D%0ASet-Cookie:%20x []" {
		t.Errorf("%q, %v", body.String(), err)
	}
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
