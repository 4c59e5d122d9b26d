package attach

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tendril/credential"
	"tendril/fault"
)

const honey = "h0neytoken/with+signs = \"and more\"&x"

// table is a source of secrets by name.
type table map[credential.Name]string

func (s table) Read(_ context.Context, c credential.Named) (credential.Secret, error) {
	text, ok := s[c.Name]
	if !ok {
		return credential.Secret{}, fault.New(fault.Unavailable, "nothing is there")
	}
	return credential.NewSecret([]byte(text))
}

// named are the credentials of a file with these attachments, bound to all of a host.
func named(t testing.TB, host, binding string, attachments ...string) []credential.Named {
	t.Helper()
	text := "version: 1\ncredentials:\n"
	var names []string
	for i, attach := range attachments {
		names = append(names, fmt.Sprintf("c%d", i))
		text += fmt.Sprintf("  c%d: {source: {env: X}, bind: {host: %s, %s}, attach: %s}\n", i, host, binding, attach)
	}
	file, err := credential.Parse(credential.FileName, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var all []credential.Named
	for _, name := range names {
		found, err := file.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found)
	}
	return all
}

func request(t testing.TB, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestServerReceivesIt sends requests to a server, with what a Sprout would put there to get its own
// in beside.
func TestServerReceivesIt(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	bound := func(attach string) []credential.Named {
		return named(t, at.Hostname(), "scheme: http, port: "+at.Port()+", methods: [POST], paths: [/v1/*]", attach)
	}
	send := func(attach, target string, header http.Header) *http.Request {
		t.Helper()
		r := request(t, "POST", server.URL+target)
		r.Header = header
		before := r.URL
		e := New(bound(attach), table{"c0": honey}, func(string) { t.Error("nothing came back") })
		defer e.Close()
		if err := e.Attach(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(before.String(), "h0ney") {
			t.Error("the URL that others hold was changed")
		}
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Response(response); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Error(err)
		}
		response.Body.Close()
		return got
	}

	r := send(`{header: x-api-key}`, "/v1/a", http.Header{"X-Api-Key": {"placeholder", "two"}, "x-api-key": {"three"}, "X-Other": {"kept"}})
	if diff := cmp.Diff([]string{honey}, r.Header["X-Api-Key"]); diff != "" || r.Header.Get("X-Other") != "kept" {
		t.Error(diff, r.Header)
	}
	r = send(`{header: Authorization, template: "Bearer {secret}"}`, "/v1/a", http.Header{"authorization": {"Bearer placeholder"}, "Range": {"bytes=0-3"}, "If-Range": {"x"}, "Accept-Encoding": {"br, gzip"}})
	if diff := cmp.Diff([]string{"Bearer " + honey}, r.Header["Authorization"]); diff != "" {
		t.Error(diff)
	}
	if r.Header.Get("Accept-Encoding") != "identity" || r.Header["Range"] != nil || r.Header["If-Range"] != nil {
		t.Errorf("the response could not be looked through: %v", r.Header)
	}
	r = send(`{basic: ann}`, "/v1/a", http.Header{"Authorization": {"Bearer placeholder"}, "authorization": {"Bearer another"}})
	if user, password, ok := r.BasicAuth(); !ok || user != "ann" || password != honey || len(r.Header["Authorization"]) != 1 {
		t.Errorf("%q %q %v", user, password, r.Header)
	}
	for target, rest := range map[string]string{
		"/v1/a": "", "/v1/a?": "", "/v1/a?b=1&key=placeholder&b=2": "b=1&b=2&", "/v1/a?key": "", "/v1/a?%6bey=x&Key=y": "",
		"/v1/a?KEY=mine&Key=2&%4bey=3&%4B%45%59&k%65y=5": "", "/v1/a?keys=1&ke=2&KEY=3&%2565y=4&ke%79s": "keys=1&ke=2&%2565y=4&ke%79s&",
		"/v1/a?a=%2f;b&key=": "a=%2f;b&", "/v1/a?xkey=1&key=a&&key=b": "xkey=1&",
	} {
		r = send(`{query: key}`, target, http.Header{})
		if want := rest + "key=h0neytoken%2Fwith%2Bsigns%20%3D%20%22and%20more%22%26x"; r.URL.RawQuery != want {
			t.Errorf("%s: got %s, want %s", target, r.URL.RawQuery, want)
		}
	}
}

func TestSeveralCredentials(t *testing.T) {
	e := New(named(t, "api.example.com", "paths: [/*]", "{header: X-Id}", "{header: X-Key}", "{query: k}"),
		table{"c0": "identifier", "c1": "secret-of-it", "c2": "third-one"}, nil)
	r := request(t, "GET", "https://api.example.com/")
	if err := e.Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if r.Header.Get("X-Id") != "identifier" || r.Header.Get("X-Key") != "secret-of-it" || r.URL.RawQuery != "k=third-one" {
		t.Errorf("%v %s", r.Header, r.URL)
	}
}

// TestNotAttached: nothing of the request changes.
func TestNotAttached(t *testing.T) {
	for _, test := range []struct {
		name, method, url, host string
		kind                    fault.Kind
		want                    string
	}{
		{"another host", "GET", "https://evil.example.com/v1/a", "", fault.Denied, "the credential c0 is not for this request: it is bound to GET, HEAD https://api.example.com/v1/*"},
		{"a host below", "GET", "https://x.api.example.com/v1/a", "", fault.Denied, "not for this request"},
		{"plain text", "GET", "http://api.example.com/v1/a", "", fault.Denied, "not for this request"},
		{"plain text at the port of TLS", "GET", "http://api.example.com:443/v1/a", "", fault.Denied, "not for this request"},
		{"another port", "GET", "https://api.example.com:8443/v1/a", "", fault.Denied, "not for this request"},
		{"another path", "GET", "https://api.example.com/v2/a", "", fault.Denied, "not for this request"},
		{"a path that climbs", "GET", "https://api.example.com/v1/..%2fadmin", "", fault.Denied, "one form"},
		{"a path that is another one", "GET", "https://api.example.com/v1/../admin", "", fault.Denied, "one form"},
		{"another method", "POST", "https://api.example.com/v1/a", "", fault.Denied, "not for this request"},
		{"a method in another case", "get", "https://api.example.com/v1/a", "", fault.Denied, "not for this request"},
		{"CONNECT", "CONNECT", "https://api.example.com/v1/a", "", fault.Denied, "not for this request"},
		{"another Host", "GET", "https://api.example.com/v1/a", "evil.example.com", fault.Denied, "goes to another"},
		{"a Host with a path", "GET", "https://api.example.com/v1/a", "api.example.com/v1", fault.Denied, "goes to another"},
		{"a Host that is none", "GET", "https://api.example.com/v1/a", "a b", fault.Invalid, "space"},
		{"a user", "GET", "https://ann@api.example.com/v1/a", "", fault.Invalid, "user"},
	} {
		r := request(t, test.method, test.url)
		if test.host != "" {
			r.Host = test.host
		}
		r.Header.Set("Authorization", "placeholder")
		before := fmt.Sprint(r.URL, r.Header)
		e := New(named(t, "api.example.com", "paths: [/v1/*]", "{header: Authorization}"), table{"c0": honey}, nil)
		err := e.Attach(t.Context(), r)
		if !fault.Is(err, test.kind) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
		if after := fmt.Sprint(r.URL, r.Header); before != after {
			t.Errorf("%s: %s", test.name, after)
		}
	}
	for _, query := range []string{"a=1;k=2", "a=1;%4b=2"} {
		r := request(t, "GET", "https://api.example.com/?"+query)
		if err := New(named(t, "api.example.com", "paths: [/*]", "{query: k}"), table{"c0": honey}, nil).Attach(t.Context(), r); !fault.Is(err, fault.Denied) {
			t.Errorf("a semicolon: %v, %s", err, r.URL)
		}
	}
	r := request(t, "GET", "https://api.example.com/")
	e := New(named(t, "api.example.com", "paths: [/*]", "{header: A}", "{header: B}"), table{"c0": honey}, nil)
	if err := e.Attach(t.Context(), r); !fault.Is(err, fault.Unavailable) || r.Header["A"] != nil {
		t.Errorf("one of two: %v, %v", err, r.Header)
	}
	if _, err := io.ReadAll(e.Scan(io.NopCloser(strings.NewReader("x")))); !fault.Is(err, fault.Internal) {
		t.Errorf("nothing was attached, and what comes back is passed on: %v", err)
	}
}

// Property: a request has the secret afterwards if and only if the binding covers it.
func TestAttachFollowsTheBinding(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		hosts := rapid.SampledFrom([]string{"a.example.com", "b.a.example.com", "example.com", "127.0.0.1"})
		pattern := rapid.SampledFrom([]string{"a.example.com", `"*.example.com"`, `"*.a.example.com"`, "127.0.0.1"}).Draw(rt, "pattern")
		binding := rapid.SampledFrom([]string{"paths: [/v1/*]", "methods: [POST]", "scheme: http", "port: 8443", "paths: [/v1/a, /v2/*], methods: [GET, POST]"}).Draw(rt, "binding")
		target := rapid.SampledFrom([]string{"https", "http"}).Draw(rt, "scheme") + "://" + hosts.Draw(rt, "host") +
			rapid.SampledFrom([]string{"", ":8443", ":80", ":443"}).Draw(rt, "port") + rapid.SampledFrom([]string{"/", "/v1/a", "/v1/b?x=1", "/v2/a", "/v1/%2e%2e/a", "/v1"}).Draw(rt, "path")
		method := rapid.SampledFrom([]string{"GET", "POST", "HEAD", "PUT"}).Draw(rt, "method")
		attach := rapid.SampledFrom([]string{"{header: X-Key}", "{basic: ann}", "{query: key}"}).Draw(rt, "attach")
		bound := named(t, pattern, binding, attach)
		r := request(t, method, target)
		to, err := targetOf(r)
		covered := err == nil && bound[0].Bind.Covers(to, method)
		err = New(bound, table{"c0": "secret-of-c0"}, nil).Attach(rt.Context(), r)
		said := fmt.Sprint(r.URL, r.Header)
		has := strings.Contains(said, "secret-of-c0") || strings.Contains(said, base64.StdEncoding.EncodeToString([]byte("ann:secret-of-c0")))
		if (err == nil) != covered || has != covered {
			rt.Fatalf("%s %s by %s: covered %v, %v, %s", method, target, bound[0].Bind, covered, err, said)
		}
	})
}

var targetOf = target // a name that no variable of the tests hides

func compressed(text string, with func(io.Writer) io.WriteCloser) []byte {
	var out bytes.Buffer
	w := with(&out)
	io.WriteString(w, text)
	w.Close()
	return out.Bytes()
}

func gzipped(text string) []byte {
	return compressed(text, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
}

func deflated(text string) []byte {
	return compressed(text, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
}

// TestResponses are looked through, from a server, in every part of them.
func TestResponses(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		want   string // the body, as far as it comes
		err    string // of the header or the body
		leaks  bool
	}{
		{"nothing", func(w http.ResponseWriter) {}, "", "", false},
		{"text", func(w http.ResponseWriter) { io.WriteString(w, "fine") }, "fine", "", false},
		{"the secret", func(w http.ResponseWriter) { io.WriteString(w, "you sent "+honey+" to me") }, "you sent ", "the response holds the secret of the credential c0", true},
		{"in two flushes", func(w http.ResponseWriter) {
			io.WriteString(w, "("+honey[:9])
			w.(http.Flusher).Flush()
			io.WriteString(w, honey[9:])
		}, "(", "the response holds", true},
		{"a header", func(w http.ResponseWriter) { w.Header().Set("X-Echo", "a "+honey) }, "", "the header of the response holds", true},
		{"a name of a header", func(w http.ResponseWriter) { w.Header()["X-Second-Of-All"] = []string{""} }, "", "the header of the response holds the secret of the credential c1", true},
		{"a name of a header in another case", func(w http.ResponseWriter) { w.Header()["x-SECOND-of-all"] = []string{"1"} }, "", "the header of the response holds the secret of the credential c1", true},
		{"a name of a header in hexadecimal", func(w http.ResponseWriter) {
			w.Header()[hex.EncodeToString([]byte("second-of-ALL"))] = []string{"1"}
		}, "", "the header of the response holds", true},
		{"a name of a header in base64", func(w http.ResponseWriter) {
			w.Header()[base64.RawURLEncoding.EncodeToString([]byte("second-of-ALL"))] = []string{"1"}
		}, "", "the header of the response holds", true},
		{"a name of a trailer", func(w http.ResponseWriter) {
			io.WriteString(w, "fine")
			w.(http.Flusher).Flush()
			w.Header()[http.TrailerPrefix+"second-of-ALL"] = []string{"1"}
		}, "fine", "the trailer of the response holds", true},
		{"a name of a trailer that does not come", func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "second-OF-all")
			io.WriteString(w, "fine")
		}, "", "the header of the response holds the secret of the credential c1", true},
		{"a redirect", func(w http.ResponseWriter) {
			w.Header().Set("Location", "/?k="+url.QueryEscape(honey))
			w.WriteHeader(302)
		}, "", "the header of the response holds", true},
		{"a trailer", func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Echo")
			io.WriteString(w, "fine")
			w.Header().Set("X-Echo", honey)
		}, "fine", "the trailer of the response holds", true},
		{"gzip", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(gzipped("fine, all of it"))
		}, "fine, all of it", "", false},
		{"gzip with the secret", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "x-GZIP")
			w.Write(gzipped("b " + honey))
		}, "b ", "the response holds", true},
		{"gzip, cut", func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "gzip"); w.Write(gzipped("fine")[:20]) }, "fine", "unexpected EOF", false},
		{"gzip that is none", func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "gzip"); io.WriteString(w, honey) }, "", "gzip: invalid header", false},
		{"no gzip at all", func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "gzip"); w.(http.Flusher).Flush() }, "", "unexpected EOF", false},
		{"deflate", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "deflate")
			w.Write(deflated("b " + honey))
		}, "b ", "the response holds", true},
		{"deflate as some servers do", func(w http.ResponseWriter) {
			raw := deflated("b " + honey)
			w.Header().Set("Content-Encoding", "deflate")
			w.Write(raw[2 : len(raw)-4])
		}, "b ", "the response holds", true},
		{"brotli", func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "br"); io.WriteString(w, "x") }, "", "encoded in a way that is not looked into", false},
		{"two codings", func(w http.ResponseWriter) {
			w.Header()["Content-Encoding"] = []string{"gzip", "gzip"}
			w.Write(gzipped("x"))
		}, "", "encoded in a way that is not looked into", false},
		{"a part of an encoding", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(206)
			w.Write(gzipped("x"))
		}, "", "a part of something encoded", false},
		{"nothing, encoded", func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "br"); w.WriteHeader(204) }, "", "", false},
		{"a bomb", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(gzipped(strings.Repeat("a", 8<<20)))
		}, "-", "grows to more than 200 times", false},
		{"another protocol", func(w http.ResponseWriter) {
			w.Header().Set("Upgrade", "x")
			w.Header().Set("Connection", "Upgrade")
			w.WriteHeader(101)
		}, "", "another protocol", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { test.answer(w) }))
			t.Cleanup(server.Close)
			at, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			var leaks []string
			e := New(named(t, at.Hostname(), "scheme: http, port: "+at.Port(), "{header: X-Key}", "{header: X-Other}"),
				table{"c0": honey, "c1": "second-of-ALL"}, func(name string) { leaks = append(leaks, name) })
			defer e.Close()
			r := request(t, "GET", server.URL+"/")
			if err := e.Attach(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { response.Body.Close() })
			var body []byte
			if err = e.Response(response); err == nil {
				if encoded := response.Header.Get("Content-Encoding"); encoded != "" && response.StatusCode != 204 {
					t.Errorf("the body is said to be encoded: %s", encoded)
				}
				body, err = io.ReadAll(response.Body)
			}
			if test.want == "-" {
				if len(body) > 2<<20 {
					t.Errorf("%d bytes came through", len(body))
				}
			} else if string(body) != test.want {
				t.Errorf("got %q, want %q", body, test.want)
			}
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got %v, want %s", err, test.err)
			}
			if test.leaks != (len(leaks) == 1) || !test.leaks && len(leaks) > 0 {
				t.Errorf("told %q", leaks)
			}
			shown(t, err)
		})
	}
}

// shown fails if anything of an error has the beginning of a secret.
func shown(t *testing.T, err error) {
	t.Helper()
	for ; err != nil; err = errors.Unwrap(err) {
		text := fmt.Sprintf("%v %+v %#v %s", err, err, err, err)
		var f *fault.Error
		if errors.As(err, &f) {
			text += f.Detail + f.Hint + f.Rule
		}
		if strings.Contains(text, "h0ney") || strings.Contains(strings.ToLower(text), "second-of") {
			t.Errorf("an error shows a secret: %s", text)
		}
	}
}

// TestHide: what a client says of a request that failed has its URL in it.
func TestHide(t *testing.T) {
	e := New(named(t, "127.0.0.1", "scheme: http, port: 1", "{query: key}"), table{"c0": honey}, nil)
	unknown := errors.New("x")
	if e.Hide(unknown) != unknown || e.Hide(nil) != nil {
		t.Error("an error is another one before anything was attached")
	}
	r := request(t, "GET", "http://127.0.0.1:1/")
	if err := e.Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	_, err := http.DefaultClient.Do(r)
	if err == nil || !strings.Contains(err.Error(), url.QueryEscape("h0neytoken/with+signs")) {
		t.Fatalf("this tests nothing: %v", err)
	}
	hidden := e.Hide(err)
	shown(t, hidden)
	if !fault.Is(hidden, fault.Unavailable) || e.Hide(unknown) != unknown {
		t.Errorf("%v", hidden)
	}
}

// TestScan is what a proxy calls that looks through a response part by part.
func TestScan(t *testing.T) {
	var leaks []string
	e := New(named(t, "api.example.com", "paths: [/*]", "{basic: ann}"), table{"c0": honey}, func(name string) { leaks = append(leaks, name) })
	if err := e.Attach(t.Context(), request(t, "GET", "https://api.example.com/")); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"X-A: b\r\n", "fine", base64.StdEncoding.EncodeToString([]byte("ann:" + honey))} {
		out, err := io.ReadAll(e.Scan(io.NopCloser(strings.NewReader(part))))
		if leak := len(part) > 20; leak != fault.Is(err, fault.Denied) || !leak && string(out) != part || leak != (len(leaks) == 1) {
			t.Errorf("%q: %q, %v, %q", part, out, err, leaks)
		}
	}
	e.Close()
	if _, err := io.ReadAll(e.Scan(io.NopCloser(strings.NewReader("fine")))); err == nil {
		t.Error("nobody looks any more, and it passes")
	}
}
