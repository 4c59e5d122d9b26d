package proxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"tendril/destination"
	"tendril/fault"
)

func parse(t testing.TB, text string) destination.URL {
	t.Helper()
	url, err := destination.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

func TestFetch(t *testing.T) {
	s := open(t)
	content := strings.Repeat("content ", 10_000)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a":
			redirect(w, 301, "b/c?d#e")
		case "/b/c":
			redirect(w, 308, "//x.example.org/f")
		case "/f":
			w.Header().Set("Content-Encoding", "gzip") // and it is not decoded
			_, _ = io.WriteString(w, content)
		case "/part":
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/206":
			w.WriteHeader(206)
		case "/empty":
			w.WriteHeader(204)
		case "/down":
			redirect(w, 302, "http://example.com/f")
		case "/secret":
			_, _ = io.WriteString(w, "the s3cret")
		default:
			w.WriteHeader(404)
		}
	})
	s.serve(handler, "example.com", "x.example.org", "api.example")
	var out strings.Builder
	got, err := s.proxy.Fetch(t.Context(), s.gate, parse(t, "https://example.com/a"), &out, int64(len(content)))
	want := Fetched{sha256.Sum256([]byte(content)), int64(len(content)), parse(t, "https://x.example.org/f"), 3}
	if err != nil || got != want || out.String() != content {
		t.Errorf("%+v, %v, %d bytes; want %+v", got, err, out.Len(), want)
	}
	if got, err := s.proxy.Fetch(t.Context(), s.gate, parse(t, "https://example.com/empty"), io.Discard, 0); err != nil || got.Digest != sha256.Sum256(nil) {
		t.Errorf("%+v, %v", got, err)
	}
	for path, want := range map[string]struct {
		kind    fault.Kind
		says    string
		failure Failure
	}{
		"/f":          {fault.Denied, "more than the 79999 bytes", Refused},
		"/part":       {fault.Unavailable, "the answer of example.com:443 was cut after 4 bytes", Cut},
		"/206":        {fault.Unavailable, "status 206", ""},
		"/none":       {fault.Unavailable, "status 404", ""},
		"/forbidden/": {fault.Unavailable, "status 404", ""},
	} {
		var out strings.Builder
		got, err := s.proxy.Fetch(t.Context(), s.gate, parse(t, "https://example.com"+path), &out, int64(len(content))-1)
		if !fault.Is(err, want.kind) || !strings.Contains(fmt.Sprint(err), want.says) || got != (Fetched{}) {
			t.Errorf("%s: %+v %v", path, got, err)
		}
		if out.Len() >= len(content) {
			t.Errorf("%s: %d bytes were written", path, out.Len())
		}
		if o := s.gate.last(t); o.Failure != want.failure {
			t.Errorf("%s: %+v", path, o)
		}
	}
	if _, err := s.proxy.Fetch(t.Context(), s.gate, parse(t, "https://evil.example/"), io.Discard, 1); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "no rule names the host") {
		t.Errorf("%v", err)
	}
	if _, err := s.proxy.Fetch(t.Context(), s.gate, parse(t, "https://example.com/f"), failingWriter{}, 1<<20); err == nil || !strings.Contains(err.Error(), "disk") {
		t.Errorf("%v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// A credential stays with the origin that was asked for, and what holds it is not
// written.
func TestFetchWithACredential(t *testing.T) {
	s := open(t)
	var asked []string
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, fmt.Sprintf("%t %s%s %s", r.TLS != nil, r.Host, r.URL.Path, r.Header.Get("X-Key")))
		switch r.URL.Path {
		case "/plain":
			redirect(w, 302, "http://example.com/back")
		case "/there":
			redirect(w, 302, "https://x.example.org/on")
		case "/on":
			redirect(w, 302, "https://x.example.org/back")
		case "/back":
			redirect(w, 302, "https://example.com/end")
		case "/echo":
			_, _ = io.WriteString(w, r.Header.Get("X-Key"))
		}
	}), "example.com", "x.example.org")
	s.gate.change = func(_ destination.URL, v *Verdict) {
		attached := false
		v.Attach = func(_ context.Context, r *http.Request) error {
			attached = true
			r.Header.Set("X-Key", "s3cret")
			return nil
		}
		v.Response = func(r *http.Response) error {
			if !attached {
				return errors.New("there is nothing to look for")
			}
			r.Body = looked{r.Body}
			return nil
		}
	}
	for path, want := range map[string]string{
		"/plain": "[true example.com/plain s3cret false example.com/back  true example.com/end ]",
		"/there": "[true example.com/there s3cret true x.example.org/on  true x.example.org/back  true example.com/end ]",
	} {
		asked = nil
		if _, err := s.proxy.Fetch(t.Context(), s.gate, parse(t, "https://example.com"+path), io.Discard, 100); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(asked); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	var out strings.Builder
	if _, err := s.proxy.Fetch(t.Context(), s.gate, parse(t, "https://example.com/echo"), &out, 100); !fault.Is(err, fault.Denied) || out.Len() != 0 {
		t.Errorf("%q was written, %v", out.String(), err)
	}
	if o := s.gate.last(t); o.Failure != Leak {
		t.Errorf("%+v", o)
	}
}

func TestResolve(t *testing.T) {
	at := parse(t, "https://example.com:8443/a/b?c")
	for location, want := range map[string]string{
		"https://x.example.org/":  "https://x.example.org/",
		"HTTP://example.com":      "http://example.com/",
		"//x.example.org/d":       "https://x.example.org/d",
		"//x.example.org":         "https://x.example.org/",
		"/d":                      "https://example.com:8443/d",
		"d":                       "https://example.com:8443/a/d",
		"./d:e":                   "https://example.com:8443/a/d:e",
		"../d":                    "https://example.com:8443/d",
		"../../../d":              "https://example.com:8443/d",
		"?d":                      "https://example.com:8443/a/b?d",
		"#d":                      "https://example.com:8443/a/b?c",
		"":                        "https://example.com:8443/a/b?c",
		"d?e:f":                   "https://example.com:8443/a/d?e:f",
		"/%2e%2e/d":               "https://example.com:8443/d",
		`\\evil.com\x`:            "",
		`/\evil.com`:              "",
		"https:/evil.com":         "",
		"https:evil.com":          "",
		"///evil.com":             "",
		"//user@evil.com":         "",
		"file:///etc/passwd":      "",
		"data:text/html,hi":       "",
		"javascript:alert(1)":     "",
		"d:e":                     "",
		"https://a b/":            "",
		"/\r\nSet-Cookie: x":      "",
		"\thttps://evil.com":      "",
		"http://2852039166/":      "",
		"http://[::ffff:1.2.3.4]": "",
	} {
		got, err := resolve(at, location)
		switch {
		case want == "" && !fault.Is(err, fault.Denied):
			t.Errorf("%q: %s, %v", location, got, err)
		case want != "" && (err != nil || got.String() != want):
			t.Errorf("%q: %s, %v, want %s", location, got, err, want)
		}
	}
}
