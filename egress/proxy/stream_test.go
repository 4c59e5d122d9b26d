package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tendril/destination"
	"tendril/fault"
)

// both runs a test with clients and servers of HTTP/1.1 and of HTTP/2.
func both(t *testing.T, test func(t *testing.T, h2 bool)) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) { test(t, h2) })
	}
}

func TestEventsAreNotHeldBack(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		next := make(chan struct{})
		s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			for i := range 3 {
				<-next
				fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
			}
		}), h2, "example.com")
		response, err := s.client(h2).Get("https://example.com/")
		if err != nil {
			t.Fatal(err) // the header came before the first event
		}
		defer response.Body.Close()
		for i := range 3 {
			next <- struct{}{}
			event := make([]byte, len("data: 0\n\n"))
			if _, err := io.ReadFull(response.Body, event); err != nil || string(event) != fmt.Sprintf("data: %d\n\n", i) {
				t.Fatalf("%q, %v", event, err)
			}
		}
		if rest, err := io.ReadAll(response.Body); err != nil || len(rest) != 0 {
			t.Errorf("%q %v", rest, err)
		}
	})
}

// A stream in both directions at once.
func TestFullDuplex(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			_ = control.EnableFullDuplex()
			_ = control.Flush()
			buffer := make([]byte, 1)
			for {
				if _, err := r.Body.Read(buffer); err != nil {
					return
				}
				_, _ = w.Write(buffer)
				_ = control.Flush()
			}
		}), h2, "api.example")
		body, write := io.Pipe()
		request, _ := http.NewRequest("POST", "https://api.example/", body)
		response, err := s.client(h2).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		for _, c := range "hello" {
			_, _ = write.Write([]byte{byte(c)})
			echo := make([]byte, 1)
			if _, err := io.ReadFull(response.Body, echo); err != nil || rune(echo[0]) != c {
				t.Fatalf("%q, %v", echo, err)
			}
		}
		_ = write.Close()
		if _, err := io.ReadAll(response.Body); err != nil {
			t.Error(err)
		}
	})
}

// cuts are ways in which an upstream ends in the middle.
var cuts = map[string]func(w http.ResponseWriter){
	"with a length":    func(w http.ResponseWriter) { w.Header().Set("Content-Length", "1000"); fmt.Fprint(w, "part") },
	"in chunks":        func(w http.ResponseWriter) { fmt.Fprint(w, "part") },
	"after the header": func(w http.ResponseWriter) {},
}

func TestACutStreamDoesNotLookWhole(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		for name, part := range cuts {
			t.Run(name, func(t *testing.T) {
				s := open(t)
				s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					part(w)
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}), h2, "example.com")
				response, err := s.client(h2).Get("https://example.com/")
				if err != nil {
					return // it has not even begun
				}
				defer response.Body.Close()
				if body, err := io.ReadAll(response.Body); err == nil {
					t.Errorf("%q looks whole", body)
				}
				if o := s.gate.last(t); o.Failure != Cut {
					t.Errorf("the outcome is %+v", o)
				}
			})
		}
	})
}

// An answer that ends with its connection, and whose connection is reset or ends without
// TLS saying so.
func TestACutEndOfAConnection(t *testing.T) {
	for name, end := range map[string]func(conn net.Conn){
		"reset":               func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0); _ = conn.Close() },
		"no terminator":       func(conn net.Conn) { _ = conn.Close() },
		"a chunk that is cut": func(conn net.Conn) { fmt.Fprint(conn, "10\r\nabc"); _ = conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			s.know("example.com:80", listener.Addr().String())
			received := make(chan struct{})
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n")
				<-received
				end(conn)
			}()
			conn := s.raw()
			fmt.Fprint(conn, lines("GET http://example.com/ HTTP/1.1", "Host: example.com"))
			from := bufio.NewReader(conn)
			response, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Fatal(err)
			}
			part := make([]byte, 4)
			if _, err := io.ReadFull(response.Body, part); err != nil {
				t.Fatal(err)
			}
			close(received)
			rest, err := io.ReadAll(from) // as it is on the wire
			if strings.Contains(string(rest), "0\r\n\r\n") {
				t.Errorf("an end was made up: %q, %v", rest, err)
			}
		})
	}
}

// A cut reaches a client that is still sending, and does not wait for it.
func TestACutWhileTheClientSends(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			_ = control.EnableFullDuplex()
			fmt.Fprint(w, "part")
			_ = control.Flush()
			_ = control.SetReadDeadline(time.Unix(1, 0))
			panic(http.ErrAbortHandler)
		}), h2, "api.example")
		body, write := io.Pipe() // which stays silent
		defer write.Close()
		request, _ := http.NewRequest("POST", "https://api.example/", body)
		response, err := s.client(h2).Do(request)
		if err != nil {
			return
		}
		defer response.Body.Close()
		if whole, err := io.ReadAll(response.Body); err == nil {
			t.Errorf("%q looks whole", whole)
		}
	})
}

// A client that is gone ends what was begun for it.
func TestAClientThatIsGone(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		begun, ended := make(chan struct{}), make(chan struct{})
		s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
			close(ended)
			panic(http.ErrAbortHandler) // an answer now may still be read, before the connection is closed
		}), h2, "example.com")
		ctx, cancel := context.WithCancel(t.Context())
		request, _ := http.NewRequestWithContext(ctx, "GET", "https://example.com/", nil)
		go func() {
			<-begun
			cancel()
		}()
		if response, err := s.client(h2).Do(request); err == nil { // as above
			response.Body.Close()
			if response.StatusCode != http.StatusBadGateway {
				t.Errorf("it was answered with %d", response.StatusCode)
			}
		}
		<-ended
		if o := s.gate.last(t); o.Failure != Gone {
			t.Errorf("the outcome is %+v", o)
		}
	})
}

func TestTrailersBothWays(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.Copy(w, r.Body)
			w.Header().Set("X-Sum", r.Trailer.Get("X-Sum")+" back")
			w.Header().Set(http.TrailerPrefix+"X-Late", "late")
			w.Header().Set(http.TrailerPrefix+"Authorization", "no")
		}), h2, "api.example")
		request, _ := http.NewRequest("POST", "https://api.example/", io.MultiReader(strings.NewReader("hello")))
		request.Trailer = http.Header{"X-Sum": {"there and"}}
		request.Header.Set("Te", "trailers")
		response, err := s.client(h2).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || string(body) != "hello" {
			t.Errorf("%q, %v", body, err)
		}
		if got := response.Trailer; got.Get("X-Sum") != "there and back" || got.Get("X-Late") != "late" || got.Get("Authorization") != "" {
			t.Errorf("%v", got)
		}
	})
}

func TestContinue(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/no" {
				w.WriteHeader(417)
				return
			}
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s", r.Header.Get("Expect"), body)
		}), h2, "api.example")
		client := s.client(h2)
		client.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
		// The server of HTTP/2 in net/http keeps the Expect to itself, and says that the
		// client may continue once the body is wanted.
		want := map[string]string{"/yes": "100-continue hello", "/no": ""}
		if h2 {
			want["/yes"] = " hello"
		}
		for path, want := range want {
			continued := false
			trace := &httptrace.ClientTrace{Got1xxResponse: func(status int, _ textproto.MIMEHeader) error {
				continued = continued || status == 100
				return nil
			}}
			request, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", "https://api.example"+path, strings.NewReader("hello"))
			request.Header.Set("Expect", "100-continue")
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if string(body) != want || !h2 && continued != (path == "/yes") {
				t.Errorf("%s: %q, continued %t", path, body, continued)
			}
		}
	})
}

// stays is how much memory this process holds, after everything that nobody needs is
// gone.
func stays() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A gibibyte there and back, while memory stays bounded.
func TestAGibibyteTakesLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("a gibibyte takes a while")
	}
	size := int64(1 << 30)
	if underRace {
		size = 1 << 26
	}
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil || n != size {
				t.Errorf("%d bytes arrived, %v", n, err)
			}
			w.Header().Set("Content-Length", fmt.Sprint(size))
			_, _ = io.CopyN(w, zeros{}, size)
		}), h2, "api.example")
		before := stays()
		var most atomic.Uint64
		request, _ := http.NewRequest("POST", "https://api.example/", io.LimitReader(zeros{}, size))
		request.ContentLength = size
		response, err := s.client(h2).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		for range 64 {
			if _, err := io.CopyN(io.Discard, response.Body, size/64); err != nil {
				t.Fatal(err)
			}
			most.Store(max(most.Load(), stays()))
		}
		if n, err := io.Copy(io.Discard, response.Body); n != 0 || err != nil {
			t.Errorf("%d bytes too many, %v", n, err)
		}
		if grown := int64(most.Load()) - int64(before); grown > 16<<20 {
			t.Errorf("the heap grew by %d MiB", grown>>20)
		}
		if o := s.gate.last(t); o.Sent < size || o.Sent > size+1000 || o.Received < size || o.Received > size+1000 {
			t.Errorf("%+v", o)
		}
	})
}

// What an answer holds that must not come back is not passed on.
func TestAnswersThatAreNotPassedOn(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		s.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/header":
				w.Header().Set("X-Echo", r.Header.Get("X-Key"))
			case "/body":
				fmt.Fprint(w, strings.Repeat("x", 100_000), r.Header.Get("X-Key"))
			case "/fine":
				fmt.Fprint(w, "fine")
			}
		}), h2, "example.com")
		s.gate.change = func(url destination.URL, v *Verdict) {
			v.Attach = func(_ context.Context, r *http.Request) error {
				if url.Path() == "/gone" {
					return errors.New("cannot read s3cret")
				}
				if url.Path() == "/unbound" {
					return fault.New(fault.Denied, "it is bound elsewhere").WithRule("binding")
				}
				r.Header.Set("X-Key", "s3cret")
				return nil
			}
			v.Response = func(r *http.Response) error {
				if r.Header.Get("X-Echo") != "" {
					return fault.New(fault.Denied, "the header holds the secret").WithRule("leak")
				}
				r.Body = looked{r.Body}
				return nil
			}
		}
		client := s.client(h2)
		for path, want := range map[string]struct {
			status  int
			failure Failure
			body    string
		}{
			"/header":  {502, Leak, "the header holds the secret"},
			"/fine":    {200, "", "fine"},
			"/gone":    {503, NoCredential, "not available"},
			"/unbound": {403, NoCredential, "bound elsewhere"},
		} {
			status, body := text(t, client, "https://example.com"+path)
			if status != want.status || !strings.Contains(body, want.body) || strings.Contains(body, "s3cret") {
				t.Errorf("%s: %d %s", path, status, body)
			}
			if o := s.gate.last(t); o.Failure != want.failure {
				t.Errorf("%s: %+v", path, o)
			}
		}
		response, err := client.Get("https://example.com/body")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil || strings.Contains(string(body), "s3cret") {
			t.Errorf("%d bytes were passed on, %v", len(body), err)
		}
		if o := s.gate.last(t); o.Failure != Leak {
			t.Errorf("%+v", o)
		}
	})
}

// looked is a body that fails at a secret.
type looked struct{ io.ReadCloser }

func (l looked) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if i := strings.Index(string(p[:n]), "s3cret"); i >= 0 {
		return i, fault.New(fault.Denied, "the body holds the secret").WithRule("leak")
	}
	return n, err
}
