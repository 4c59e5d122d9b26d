package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"
)

// lines joins lines as HTTP does.
func lines(text ...string) string { return strings.Join(text, "\r\n") + "\r\n\r\n" }

const host = "Host: api.example"

// get and post are the first lines of requests that are permitted.
const (
	get  = "GET http://api.example/ HTTP/1.1"
	post = "POST http://api.example/ HTTP/1.1"
)

// malformedRequests are read in two ways by somebody, or by nobody.
var malformedRequests = map[string]string{
	"length and coding":               lines(post, host, "Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n",
	"coding and length":               lines(post, host, "Transfer-Encoding: chunked", "Content-Length: 5") + "0\r\n\r\n",
	"two lengths":                     lines(post, host, "Content-Length: 5", "Content-Length: 6") + "hello!",
	"two lengths that agree":          lines(post, host, "Content-Length: 5", "Content-Length: 5") + "hello",
	"a list of lengths":               lines(post, host, "Content-Length: 5, 5") + "hello",
	"a length with a sign":            lines(post, host, "Content-Length: +5") + "hello",
	"a negative length":               lines(post, host, "Content-Length: -1"),
	"an empty length":                 lines(post, host, "Content-Length: "),
	"a length beyond 63 bits":         lines(post, host, "Content-Length: 9223372036854775808"),
	"a hexadecimal length":            lines(post, host, "Content-Length: 0x5") + "hello",
	"a length with a space":           lines(post, host, "Content-Length: 1 5") + "hello",
	"identity":                        lines(post, host, "Transfer-Encoding: identity"),
	"gzip, chunked":                   lines(post, host, "Transfer-Encoding: gzip, chunked") + "0\r\n\r\n",
	"chunked twice":                   lines(post, host, "Transfer-Encoding: chunked, chunked") + "0\r\n\r\n",
	"two codings":                     lines(post, host, "Transfer-Encoding: chunked", "Transfer-Encoding: identity") + "0\r\n\r\n",
	"chunked with a vertical tab":     lines(post, host, "Transfer-Encoding: \vchunked") + "0\r\n\r\n",
	"chunked with a parameter":        lines(post, host, "Transfer-Encoding: chunked;q=1") + "0\r\n\r\n",
	"an empty coding":                 lines(post, host, "Transfer-Encoding: "),
	"a folded coding":                 lines(post, host, "Transfer-Encoding:", " chunked") + "0\r\n\r\n",
	"a folded field":                  lines(get, host, "X-A: a", " b"),
	"a fold with a tab":               lines(get, host, "X-A: a", "\tb"),
	"a fold first":                    lines(get, " X: y", host),
	"a space before the colon":        lines(post, host, "Content-Length : 5") + "hello",
	"a tab before the colon":          lines(post, host, "Transfer-Encoding\t: chunked") + "0\r\n\r\n",
	"a field without a colon":         lines(get, host, "X-A"),
	"a field without a name":          lines(get, host, ": a"),
	"a name beyond ASCII":             lines(get, host, "X-\xc3\xa4: a"),
	"a NUL in a value":                lines(get, host, "X-A: a\x00b"),
	"an escape in a value":            lines(get, host, "X-A: \x1b[2J"),
	"a bare CR in a value":            lines(get, host, "X-A: a\rX-B: b"),
	"bare LFs":                        "GET http://api.example/ HTTP/1.1\nHost: api.example\n\n",
	"one bare LF":                     "GET http://api.example/ HTTP/1.1\r\nHost: api.example\n\r\n",
	"a bare LF at the end":            "GET http://api.example/ HTTP/1.1\r\nHost: api.example\r\n\n",
	"CRCRLF":                          "GET http://api.example/ HTTP/1.1\r\r\nHost: api.example\r\n\r\n",
	"an empty line first":             "\r\n" + lines(get, host),
	"two hosts":                       lines(get, host, "Host: evil.example"),
	"two hosts that agree":            lines(get, host, host),
	"no host":                         lines(get),
	"a list of hosts":                 lines(get, "Host: api.example, evil.example"),
	"an empty host":                   lines(get, "Host:"),
	"another host":                    lines(get, "Host: evil.example"),
	"another port":                    lines(get, "Host: api.example:8080"),
	"a host with a user":              lines(get, "Host: user@api.example"),
	"a host with a path":              lines(get, "Host: api.example/"),
	"a host with a fragment":          lines(get, "Host: api.example#"),
	"HTTP/1.0":                        lines("GET http://api.example/ HTTP/1.0", host),
	"HTTP/0.9":                        "GET http://api.example/\r\n\r\n",
	"HTTP/1.2":                        lines("GET http://api.example/ HTTP/1.2", host),
	"HTTP/2.0":                        lines("GET http://api.example/ HTTP/2.0", host),
	"the preface of HTTP/2":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"http/1.1 in lower case":          lines("GET http://api.example/ http/1.1", host),
	"two spaces":                      lines("GET  http://api.example/ HTTP/1.1", host),
	"a tab for a space":               lines("GET\thttp://api.example/ HTTP/1.1", host),
	"a space at the end":              lines("GET http://api.example/ HTTP/1.1 ", host),
	"a space in the target":           lines("GET http://api.example/a b HTTP/1.1", host),
	"a control character in a target": lines("GET http://api.example/\x01 HTTP/1.1", host),
	"a target beyond ASCII":           lines("GET http://api.example/\xc3\xa4 HTTP/1.1", host),
	"no method":                       lines(" http://api.example/ HTTP/1.1", host),
	"a method with a slash":           lines("GE/T http://api.example/ HTTP/1.1", host),
	"a path":                          lines("GET / HTTP/1.1", host),
	"an asterisk":                     lines("OPTIONS * HTTP/1.1", host),
	"no authority":                    lines("GET http:///x HTTP/1.1", host),
	"a user":                          lines("GET http://user:pass@api.example/ HTTP/1.1", host),
	"ftp":                             lines("GET ftp://api.example/ HTTP/1.1", host),
	"a CONNECT with a body":           lines("CONNECT api.example:443 HTTP/1.1", "Host: api.example:443", "Content-Length: 5") + "hello",
	"a CONNECT without a port":        lines("CONNECT api.example HTTP/1.1", host),
	"a CONNECT with a path":           lines("CONNECT api.example:443/ HTTP/1.1", host),
	"a CONNECT with another host":     lines("CONNECT api.example:443 HTTP/1.1", "Host: evil.example:443"),
	"a large header":                  lines(get, host, "X-A: "+strings.Repeat("a", longestHead)),
	"many fields":                     lines(append([]string{get, host}, slicesRepeat("X-A: a", mostFields)...)...),
	"an escape that is none":          lines("GET http://api.example/%zz HTTP/1.1", host),
	"a host with an escape":           lines(get, "Host: api%zz.example"),
	"a host beyond ASCII":             lines(get, "Host: \xc3\xa4.example"),
	"a trailer that is a coding":      lines(post, host, "Transfer-Encoding: chunked", "Trailer: Transfer-Encoding") + "0\r\n\r\n",
	"a TLS record":                    "\x16\x03\x01\x00\x05hello\r\n\r\n",
}

func slicesRepeat(s string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = s
	}
	return list
}

func TestMalformedRequestsAreRefusedBeforeTheyAreDecided(t *testing.T) {
	s := open(t)
	s.serve(says("a hole"), "api.example", "evil.example")
	for name, request := range malformedRequests {
		t.Run(name, func(t *testing.T) {
			told := len(s.gate.refusals())
			// What follows is a request for itself, to whoever misreads the first one.
			response, body := s.ask(request + lines(get, host))
			if response.StatusCode != 400 && response.StatusCode != 421 && response.StatusCode != 431 {
				t.Errorf("%d %s", response.StatusCode, body)
			}
			if name == "no host" && response.StatusCode != 400 { // RFC 9112, section 3.2
				t.Errorf("%d %s", response.StatusCode, body)
			}
			if response.Header.Get("Tendril-Denied") == "" {
				t.Error("it was not the proxy that refused it, but net/http")
			}
			if list := s.gate.refusals()[told:]; len(list) != 1 {
				t.Errorf("told: %q", list)
			}
		})
	}
	if log := s.gate.log(); len(log) != 0 {
		t.Errorf("decided: %v", log)
	}
	if dialed := s.hosts.log(); len(dialed) != 0 {
		t.Errorf("dialled: %v", dialed)
	}
}

// The same inside of TLS, where the target is a path.
func TestMalformedRequestsInTLS(t *testing.T) {
	s := open(t)
	s.serve(says("a hole"), "api.example", "evil.example")
	within := map[string]string{
		"another host":          lines("GET / HTTP/1.1", "Host: evil.example"),
		"another server":        lines("GET https://evil.example/ HTTP/1.1", "Host: evil.example"),
		"plain text":            lines("GET http://api.example/ HTTP/1.1", host),
		"a CONNECT":             lines("CONNECT api.example:443 HTTP/1.1", "Host: api.example:443"),
		"a target with another": lines("GET https://evil.example/ HTTP/1.1", host),
		"a port":                lines("GET / HTTP/1.1", "Host: api.example:80"),
		"a target at a user":    lines("GET @evil.example/ HTTP/1.1", host),
	}
	for name, request := range malformedRequests {
		request = strings.ReplaceAll(request, "http://api.example/", "/")
		if request != malformedRequests[name] && name != "HTTP/1.0" {
			within[name] = request
		}
	}
	for name, request := range within {
		t.Run(name, func(t *testing.T) {
			told := len(s.gate.refusals())
			secure := s.through("api.example", "http/1.1")
			_, _ = io.WriteString(secure, request+lines("GET / HTTP/1.1", host))
			response, body, err := read(bufio.NewReader(secure), "GET")
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != 400 && response.StatusCode != 421 && response.StatusCode != 431 {
				t.Errorf("%d %s", response.StatusCode, body)
			}
			if list := s.gate.refusals()[told:]; len(list) != 1 || !strings.HasPrefix(list[0], "api.example:443 ") {
				t.Errorf("told: %q", list)
			}
		})
	}
	for _, decided := range s.gate.log() {
		if !strings.HasPrefix(decided, "CONNECT") {
			t.Errorf("decided: %s", decided)
		}
	}
}

// malformedChunks are bodies.
var malformedChunks = map[string]string{
	"a size that is none":         "x\r\nhello\r\n0\r\n\r\n",
	"an empty size":               "\r\nhello\r\n0\r\n\r\n",
	"a size with a sign":          "+5\r\nhello\r\n0\r\n\r\n",
	"a size with 0x":              "0x5\r\nhello\r\n0\r\n\r\n",
	"a size with an underscore":   "0_5\r\nhello\r\n0\r\n\r\n",
	"a size with a space first":   " 5\r\nhello\r\n0\r\n\r\n",
	"a size beyond 64 bits":       "10000000000000005\r\nhello\r\n0\r\n\r\n",
	"a negative size":             "-1\r\nhello\r\n0\r\n\r\n",
	"a chunk beyond its size":     "5\r\nhello!\r\n0\r\n\r\n",
	"a chunk below its size":      "6\r\nhello\r\n0\r\n\r\n",
	"a bare LF after a size":      "5\nhello\r\n0\r\n\r\n",
	"a bare LF after a chunk":     "5\r\nhello\n0\r\n\r\n",
	"a CR in an extension":        "5;a\rb\nhello\r\n0\r\n\r\n",
	"an endless extension":        "5;" + strings.Repeat("a", 1000) + "\r\nhello\r\n0\r\n\r\n",
	"a trailer that says a host":  "0\r\nHost: evil.example\r\n\r\n",
	"a trailer that says a size":  "0\r\nContent-Length: 5\r\n\r\n",
	"a trailer with a credential": "0\r\nAuthorization: mine\r\n\r\n",
	"a folded trailer":            "0\r\nX-A: a\r\n b\r\n\r\n",
	"an endless trailer":          "0\r\nX-A: " + strings.Repeat("a", longestHead) + "\r\n\r\n",
}

func TestMalformedChunks(t *testing.T) {
	s := open(t)
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "a hole: %v", err)
	}), "api.example")
	for name, body := range malformedChunks {
		t.Run(name, func(t *testing.T) {
			decided := len(s.gate.log())
			response, text := s.ask(lines(post, host, "Transfer-Encoding: chunked") + body + lines(get, host))
			if response.StatusCode != 400 && response.StatusCode != 431 || !response.Close {
				t.Errorf("%d %v %s", response.StatusCode, response.Header, text)
			}
			if got := len(s.gate.log()) - decided; got > 1 {
				t.Errorf("%d requests were decided", got)
			}
		})
	}
}

func TestChunksThatAreWell(t *testing.T) {
	s := open(t)
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s|%v", body, r.Trailer)
	}), "api.example")
	for body, want := range map[string]string{
		"0\r\n\r\n":               "|map[]",
		"5\r\nhello\r\n0\r\n\r\n": "hello|map[]",
		"005\r\nhello\r\n1;a=b;c=\"d\"\r\n!\r\n0\r\n\r\n": "hello!|map[]",
		"A \r\nhellohello\r\n00\r\nX-Sum: 1\r\n\r\n":      "hellohello|map[X-Sum:[1]]",
		"5\r\nhello\r\n0\r\nX-Other: 1\r\n\r\n":           "hello|map[X-Sum:[]]",
	} {
		trailer := "Trailer: X-Sum"
		if !strings.Contains(body, "X-") {
			trailer = "X-No: trailer"
		}
		response, text := s.ask(lines(post, host, "Transfer-Encoding: chunked", trailer) + body)
		if response.StatusCode != 200 || text != want {
			t.Errorf("%q: %d %q, want %q", body, response.StatusCode, text, want)
		}
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	s := open(t)
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) }), "api.example")
	conn := s.raw()
	var requests strings.Builder
	for i := range 20 {
		requests.WriteString(lines(fmt.Sprintf("POST http://api.example/%d HTTP/1.1", i), host, "Content-Length: 2") + "ab")
	}
	requests.WriteString(lines(get, host, host)) // is refused in its turn
	requests.WriteString(lines(get, host))
	_, _ = io.WriteString(conn, requests.String())
	from := bufio.NewReader(conn)
	for i := range 20 {
		response, body, err := read(from, "POST")
		if err != nil || response.StatusCode != 200 || body != fmt.Sprintf("/%d", i) {
			t.Fatalf("%d: %v %q %v", i, response, body, err)
		}
	}
	response, body, err := read(from, "GET")
	if err != nil || response.StatusCode != 400 || !strings.Contains(body, "two fields host") {
		t.Errorf("%v %s %v", response, body, err)
	}
	if rest, _ := io.ReadAll(from); len(rest) != 0 {
		t.Errorf("after a refusal: %q", rest)
	}
}

// accepted reads bytes as a server behind the reader does, and returns what it read.
func accepted(from io.Reader) (requests []string, err error) {
	buffered := bufio.NewReader(from)
	for {
		r, err := http.ReadRequest(buffered)
		if err != nil {
			return requests, err
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return requests, err
		}
		requests = append(requests, fmt.Sprintf("%s %s %s %s %v %q %v", r.Method, r.RequestURI, r.Host, r.Proto, r.Header, body, r.Trailer))
	}
}

const noRequest = "GET http://refused.invalid/ "

// sameAsNetHTTP checks that what is passed on of an input, net/http reads from the
// input itself to the same requests.
func sameAsNetHTTP(t interface {
	Helper()
	Fatalf(string, ...any)
}, input []byte) (passedOn int) {
	t.Helper()
	reader := newRequestReader(bytes.NewReader(input), time.Hour, func() {})
	through, _ := accepted(iotest.OneByteReader(reader))
	reader.late.stop()
	if reader.refusedAt.Load() != 0 && len(through) > 0 && strings.HasPrefix(through[len(through)-1], noRequest) {
		through = through[:len(through)-1]
	}
	direct, _ := accepted(bytes.NewReader(input))
	if len(through) > len(direct) {
		t.Fatalf("%q: %d requests became %d: %q %q", input, len(direct), len(through), through, direct)
	}
	for i := range through {
		if through[i] != direct[i] {
			t.Fatalf("%q: net/http reads %q, behind the reader %q", input, direct[i], through[i])
		}
	}
	return len(through)
}

func FuzzRequestReader(f *testing.F) {
	for _, request := range malformedRequests {
		if len(request) < 1000 {
			f.Add([]byte(request + lines(get, host)))
		}
	}
	for _, body := range malformedChunks {
		if len(body) < 1000 {
			f.Add([]byte(lines(post, host, "Transfer-Encoding: chunked") + body + lines(get, host)))
		}
	}
	f.Add([]byte(lines(get, host) + lines(post, host, "Content-Length: 3") + "abc" + lines(get, host)))
	f.Add([]byte(lines("CONNECT api.example:443 HTTP/1.1", "Host: api.example:443") + "\x16\x03\x01"))
	f.Fuzz(func(t *testing.T, input []byte) { sameAsNetHTTP(t, input) })
}

// Requests that are put together of parts, of which few are well.
func TestReaderAgreesWithNetHTTP(t *testing.T) {
	whole := 0
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]string{"\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r"})
		var input strings.Builder
		for range rapid.IntRange(1, 3).Draw(t, "requests") {
			if rapid.Bool().Draw(t, "well") {
				input.WriteString(rapid.SampledFrom([]string{
					lines(get, host), lines(post, host, "Content-Length: 5") + "hello",
					lines(post, host, "Transfer-Encoding: Chunked", "X-A: b") + "5;x\r\nhello\r\n0\r\nX-B: c\r\n\r\n",
				}).Draw(t, "request"))
				continue
			}
			input.WriteString(rapid.SampledFrom([]string{get, post, post, "GET / HTTP/1.1", "PUT http://api.example/x?y HTTP/1.1"}).Draw(t, "line") + end.Draw(t, "end"))
			for range rapid.IntRange(0, 4).Draw(t, "fields") {
				input.WriteString(rapid.SampledFrom([]string{
					host, host, "Content-Length: 5", "Content-Length: 0", "Content-Length:5", "Transfer-Encoding: chunked",
					"transfer-encoding:chunked ", "X-A:  b\t", "X-A: \xff", "Trailer: X-B", "X : y", " fold", "Connection: close", "",
				}).Draw(t, "field") + end.Draw(t, "end"))
			}
			input.WriteString("\r\n")
			input.WriteString(rapid.SampledFrom([]string{
				"", "hello", "hello", "5\r\nhello\r\n0\r\n\r\n", "5;x\r\nhello\r\n0\r\nX-B: c\r\n\r\n", "0\r\n\r\n", "5\nhello\n0\n\n",
			}).Draw(t, "body"))
		}
		whole += sameAsNetHTTP(t, []byte(input.String()))
	})
	if whole == 0 {
		t.Error("not one request was passed on")
	}
}

// slow returns a deadline's error before each byte.
type slow struct {
	text string
	turn bool
}

func (s *slow) Read(p []byte) (int, error) {
	if s.turn = !s.turn; s.turn {
		return 0, os.ErrDeadlineExceeded
	}
	if s.text == "" {
		return 0, io.EOF
	}
	p[0] = s.text[0]
	s.text = s.text[1:]
	return 1, nil
}

func TestAReadThatWasGivenUpCanBeRepeated(t *testing.T) {
	text := lines(post, host, "Transfer-Encoding: chunked") + "5\r\nhello\r\n0\r\nX-A: b\r\n\r\n" + lines(get, host)
	reader := newRequestReader(&slow{text: text}, time.Hour, func() {})
	var out strings.Builder
	for {
		buffer := make([]byte, 100)
		n, err := reader.Read(buffer)
		out.Write(buffer[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			break
		}
	}
	if out.String() != text {
		t.Errorf("%q, want %q", out.String(), text)
	}
}

// After a body that is none, nothing that follows is taken for a request.
func TestNothingFollowsABodyThatIsNone(t *testing.T) {
	for name, body := range malformedChunks {
		reader := newRequestReader(strings.NewReader(lines(post, host, "Transfer-Encoding: chunked")+body+lines(get, host)), time.Hour, func() {})
		var out strings.Builder
		failures := 0
		for failures < 3 {
			buffer := make([]byte, 4096)
			n, err := reader.Read(buffer)
			out.Write(buffer[:n])
			if err != nil {
				failures++
			}
		}
		if strings.Contains(out.String(), get) {
			t.Errorf("%s: %q was passed on", name, out.String())
		}
	}
}

// What follows a request can be had as it is, as long as nobody has looked at it.
func TestRest(t *testing.T) {
	for _, looked := range []bool{false, true} {
		reader := newRequestReader(strings.NewReader(lines(get, host)+"GET "), time.Hour, func() {})
		buffer := make([]byte, 4096)
		if n, err := reader.Read(buffer); err != nil || string(buffer[:n]) != lines(get, host) {
			t.Fatalf("%q, %v", buffer[:n], err)
		}
		if looked {
			_, _ = reader.Read(buffer)
		}
		rest, ok := reader.rest()
		if ok == looked {
			t.Errorf("looked at %t, to be had %t", looked, ok)
		}
		if text, _ := io.ReadAll(rest); ok && string(text) != "GET " {
			t.Errorf("%q", text)
		}
		reader.late.stop()
	}
}
