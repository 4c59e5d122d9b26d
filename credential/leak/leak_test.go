package leak

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"tendril/credential"
	"tendril/fault"
)

// honey is a secret with everything that encoders treat in their own way.
const honey = "sk-H0ney/t0k+n=~4&<b>\"q'\\ %41?z_END"

// tester is of a test, a property and a fuzz target.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Cleanup(func())
}

func scannerOf(t tester, secrets ...string) *Scanner {
	t.Helper()
	held := map[credential.Name]credential.Secret{}
	for i, text := range secrets {
		secret, err := credential.NewSecret([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(secret.Close)
		held[credential.Name(fmt.Sprintf("c%d", i))] = secret
	}
	s := NewScanner(held)
	t.Cleanup(s.Close)
	return s
}

// through reads text through the Scanner in chunks as next says.
func through(s *Scanner, text []byte, next func() int) (out []byte, told []string, err error) {
	body := s.Body(io.NopCloser(&chunked{text, next}), func(name string) { told = append(told, name) })
	out, err = io.ReadAll(body)
	return out, told, err
}

type chunked struct {
	rest []byte
	next func() int
}

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), max(1, c.next()))], c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func escaped(format string) func(string) string {
	return func(s string) string {
		var out strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&out, format, c)
		}
		return out.String()
	}
}

func inJSON(s string) string {
	text, _ := json.Marshal(s)
	return string(text[1 : len(text)-1])
}

func wrapped(s string, width int, by string) string {
	var out strings.Builder
	for i := 0; i < len(s); i += width {
		out.WriteString(s[i:min(i+width, len(s))] + by)
	}
	return out.String()
}

// references are characters and their names in HTML, with the semicolons that belong to
// them. Those of the hyphen are of characters that look like it.
var references = strings.Fields(`! excl; " quot; " quot # num; $ dollar; % percnt; & amp; & amp ' apos; ( lpar; ) rpar; * ast; * midast; + plus;
	, comma; - hyphen; - dash; - minus; . period; / sol; : colon; ; semi; < lt; < lt = equals; > gt; > gt ? quest; @ commat; [ lsqb; [ lbrack;
	\ bsol; ] rsqb; ] rbrack; ^ Hat; _ lowbar; _ UnderBar; { lcub; { lbrace; | verbar; | vert; | VerticalLine; } rcub; } rbrace; ` + "` grave; ` DiacriticalGrave;")

func referenceNames(c byte) (names []string) {
	for i := 0; i < len(references); i += 2 {
		if references[i] == string(rune(c)) {
			names = append(names, references[i+1])
		}
	}
	return names
}

func inNames(choose func([]string) string) func(string) string {
	return func(s string) string {
		var out strings.Builder
		for _, c := range []byte(s) {
			if names := referenceNames(c); names != nil {
				out.WriteString("&" + choose(names))
			} else {
				out.WriteByte(c)
			}
		}
		return out.String()
	}
}

func TestReferencesAreOfHTML(t *testing.T) {
	for i := 0; i < len(references); i += 2 {
		if got := html.UnescapeString("&" + references[i+1]); got != references[i] && references[i] != "-" {
			t.Errorf("&%s is %q", references[i+1], got)
		}
	}
	for c := range 256 {
		if n := len(folded()[c]); n > firstBreak {
			t.Errorf("%d has %d forms, which a state cannot tell apart", c, n)
		}
	}
}

// TestCaseOfHeaders: the names of fields come in the case of net/http or of HTTP/2.
func TestCaseOfHeaders(t *testing.T) {
	const secret = "sk-live-AbCdEf0123+xyZ"
	s := scannerOf(t, "another-secret", secret)
	for form, encode := range map[string]func(string) string{
		"verbatim": encodings["verbatim"], "hexadecimal": encodings["hexadecimal"], "base64": encodings["base64"], "base64 url": encodings["base64 behind two"], "escaped": escaped("%%%02x"),
	} {
		for _, text := range []string{http.CanonicalHeaderKey(encode(secret)), strings.ToLower(encode(secret)), strings.ToUpper(encode(secret))} {
			if name, found := s.Find("Date: x\n" + text + ": 1\n"); !found || name != "c1" {
				t.Errorf("%s: nothing is found in %q", form, text)
			}
		}
	}
	if name, found := s.Find("Sk-Live-Abcdef0123+Xy: 1\n"); found {
		t.Errorf("all but the end is %s", name)
	}
}

// encodings are written with other code than what is tested.
var encodings = map[string]func(string) string{
	"verbatim":                  func(s string) string { return s },
	"base64":                    func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64 raw":                func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
	"base64 url":                func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
	"base64 behind one byte":    func(s string) string { return base64.StdEncoding.EncodeToString([]byte("?" + s + ">")) },
	"base64 behind two":         func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("??" + s + ">>")) },
	"basic authentication":      func(s string) string { return base64.StdEncoding.EncodeToString([]byte("ann:" + s)) },
	"base64 of MIME":            func(s string) string { return wrapped(base64.StdEncoding.EncodeToString([]byte(s)), 19, "\r\n") },
	"base64 of PEM in JSON":     func(s string) string { return inJSON(wrapped(base64.StdEncoding.EncodeToString([]byte(s)), 16, "\n")) },
	"base64 in a query":         func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
	"hexadecimal":               func(s string) string { return hex.EncodeToString([]byte(s)) },
	"hexadecimal in upper case": func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"query":                     url.QueryEscape,
	"query in lower case": func(s string) string {
		return regexp.MustCompile(`%..`).ReplaceAllStringFunc(url.QueryEscape(s), strings.ToLower)
	},
	"path":                         url.PathEscape,
	"every byte escaped":           escaped("%%%02X"),
	"every byte in lower case":     escaped("%%%02x"),
	"JSON":                         inJSON,
	"JSON without HTML's escape":   func(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) },
	"JSON as PHP writes it":        func(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "/", `\/`).Replace(s) },
	"JSON escaped throughout":      escaped(`\u%04x`),
	"JSON in upper case":           escaped(`\u%04X`),
	"C":                            escaped(`\x%02x`),
	"HTML":                         html.EscapeString,
	"HTML in numbers":              escaped("&#%d;"),
	"HTML in hexadecimal":          escaped("&#x%x;"),
	"HTML in padded numbers":       escaped("&#%05d;"),
	"HTML in seven digits":         escaped("&#%07d;"),
	"HTML in seven of hexadecimal": escaped("&#x%07X;"),
	"HTML without semicolons":      escaped("&#%d"),
	"HTML in seven without them":   escaped("&#%07d"),
	"HTML in hexadecimal without":  escaped("&#x%02x"),
	"HTML in names":                inNames(func(names []string) string { return names[0] }),
	"HTML in other names":          inNames(func(names []string) string { return names[len(names)-1] }),
	"one like this, one like that": func(s string) string {
		var out strings.Builder
		for i, c := range []byte(s) {
			format := []string{"%%%02x", `\u%04X`, "&#%d;", "%%%02X", `\x%02x`}[i%5]
			if i%3 == 0 && c < 0x80 && strings.IndexByte(`%\&+ `, c) < 0 {
				format = "%c"
			}
			fmt.Fprintf(&out, format, c)
		}
		return out.String()
	},
}

func TestEncodingsAreFound(t *testing.T) {
	for name, encode := range encodings {
		for _, secret := range []string{honey, "12345678", "abcdefghi", "aaaaaaaaaa", strings.Repeat("0123456789abcdef", 4), "pässwörd-ß", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"} {
			if strings.Contains(name, "JSON ") && strings.ContainsRune(secret, 'ä') {
				continue // \u is for code points
			}
			s := scannerOf(t, "another-secret", secret)
			written := encode(secret)
			for _, around := range [][2]string{{"", ""}, {`{"error": "no `, `"}`}, {written[:len(written)/2], written}, {"\x00\xff", "\x00"}} {
				text := around[0] + written + around[1]
				for size := range 4 {
					out, told, err := through(s, []byte(text), func() int { return []int{1, 2, 7, 1 << 20}[size] })
					if !fault.Is(err, fault.Denied) || len(told) != 1 || told[0] != "c1" {
						t.Fatalf("%s of %q in %q, by %d: %v, %q", name, secret, text, size, err, told)
					}
					// Of base64, the first digit may be of what stands before the secret too.
					if start := strings.Index(text, written); len(out) > start+6 || !strings.HasPrefix(text, string(out)) {
						t.Errorf("%s of %q: %q came through", name, secret, out)
					}
				}
				if name, found := s.Find(text); !found || name != "c1" {
					t.Errorf("%q in a header: %q", text, name)
				}
			}
		}
	}
}

func TestWhatHoldsNoSecretPasses(t *testing.T) {
	s := scannerOf(t, honey)
	for name, text := range map[string]string{
		"nothing": "", "a letter": "s", "all but the end": honey[:len(honey)-1], "all but the begin": honey[1:],
		"again and again": strings.Repeat(honey[:len(honey)-1], 100), "in another case": strings.ToUpper(honey),
		"with a space in it": honey[:9] + " " + honey[9:], "with a line break in it": honey[:9] + "\n" + honey[9:],
		"half of its base64":        base64.StdEncoding.EncodeToString([]byte(honey))[:20],
		"base64 with an empty line": wrapped(base64.StdEncoding.EncodeToString([]byte(honey)), 16, "\n\n"),
		// From here on, what the documentation says is not found.
		"base64 with spaces":    wrapped(base64.StdEncoding.EncodeToString([]byte(honey)), 16, " "),
		"hexadecimal with :":    wrapped(hex.EncodeToString([]byte(honey)), 2, ":"),
		"base32":                base32.StdEncoding.EncodeToString([]byte(honey)),
		"octal":                 escaped(`\%03o`)(honey),
		"eight digits":          escaped(`\U%08x`)(honey),
		"braces":                escaped(`\u{%x}`)(honey),
		"CSS":                   escaped(`\%x `)(honey),
		"quoted-printable":      escaped("=%02X")(honey),
		"UTF-16":                escaped("%c\x00")(honey),
		"many zeros":            escaped("&#%09d;")(honey),
		"events of few letters": "data: " + wrapped(honey, 4, "\n\ndata: "),
	} {
		for size := range 4 {
			out, told, err := through(s, []byte(text), func() int { return []int{1, 2, 7, 1 << 20}[size] })
			if err != nil || len(told) > 0 || string(out) != text {
				t.Errorf("%s: %v, %q, %q", name, err, told, out)
			}
		}
	}
}

// What cannot begin a secret goes out with the read that brought it: events are not
// kept waiting for the next.
func TestEventsAreNotKeptBack(t *testing.T) {
	s := scannerOf(t, honey)
	server, client := io.Pipe()
	body := s.Body(server, func(string) {})
	for _, event := range []string{"data: {\"delta\": \"s\"}\n\n", ": ping\n\n", "data: " + base64.StdEncoding.EncodeToString([]byte(honey))[:9] + "\n\n"} {
		go io.WriteString(client, event)
		got := make([]byte, 0, len(event))
		for len(got) < len(event) {
			n, err := body.Read(got[len(got):cap(got)])
			if err != nil {
				t.Fatal(err)
			}
			got = got[:len(got)+n]
		}
		if string(got) != event {
			t.Errorf("%q became %q", event, got)
		}
	}
	client.Close()
	if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// An error of the server is passed on; what may begin a secret is not.
func TestErrorsOfTheServer(t *testing.T) {
	broken := errors.New("connection reset")
	s := scannerOf(t, honey)
	from := io.MultiReader(strings.NewReader("text "+honey[:20]), iotest.ErrReader(broken))
	out, err := io.ReadAll(s.Body(io.NopCloser(from), func(string) { t.Error("nothing was found") }))
	if !errors.Is(err, broken) || string(out) != "text " {
		t.Errorf("%q, %v", out, err)
	}
}

type closing struct {
	io.Reader
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

func spaceOf(r io.Reader) []byte { return r.(*body).space }

func TestFoundEndsEverything(t *testing.T) {
	s := scannerOf(t, honey)
	from := &closing{Reader: strings.NewReader("a" + honey + honey)}
	told := 0
	body := s.Body(from, func(string) { told++ })
	for range 5 {
		out, err := io.ReadAll(body)
		if !fault.Is(err, fault.Denied) || len(out) > 1 {
			t.Errorf("%q, %v", out, err)
		}
		var f *fault.Error
		if errors.As(err, &f); strings.Contains(f.Detail+f.Hint+f.Rule, honey[:8]) || f.Rule == "" {
			t.Errorf("%+v", f)
		}
	}
	if kept := spaceOf(body); bytes.Contains(kept[:cap(kept)], []byte(honey[:8])) {
		t.Errorf("%q is still there", kept)
	}
	if told != 1 || from.closed != 1 {
		t.Errorf("told %d times, closed %d times", told, from.closed)
	}
}

func TestClosedScanner(t *testing.T) {
	s := scannerOf(t, honey)
	patterns := s.patterns
	body := s.Body(io.NopCloser(strings.NewReader("text")), func(string) {})
	s.Close()
	s.Close()
	if out, err := io.ReadAll(body); !errors.Is(err, fs.ErrClosed) || len(out) > 0 {
		t.Errorf("%q, %v", out, err)
	}
	for _, p := range patterns {
		if strings.Trim(string(p.text), "\x00") != "" {
			t.Errorf("%q is still there", p.text)
		}
	}
}

// TestBounds: a server that knows what is looked for cannot make a walk grow, nor what is
// kept back.
func TestBounds(t *testing.T) {
	secret := strings.Repeat("ab", 100)
	s := scannerOf(t, secret)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	source := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{"ab", "a", "b", "%61", `\u0061`, "&#97;", "6162", "YWI=", "YWJh", "\n", `\n`, "WFi", "Fi", "%6", secret[:198], hex.EncodeToString([]byte(secret))[:390]}
	text := func() []byte {
		var out bytes.Buffer
		for out.Len() < 16<<10 {
			out.WriteString(pieces[source.IntN(len(pieces))] + "|"[:source.IntN(2)])
		}
		return out.Bytes()
	}
	w := newWalk(s.patterns, exact(), s.longest)
	for rest := text(); len(rest) > 0; {
		n := min(len(rest), 4096)
		if taken, _ := w.over(rest[:n]); taken < n {
			n, w.now, w.since = taken, w.begin, 0
		}
		rest = rest[n:]
		if len(w.states) > mostStates+1 || w.size > mostItems+2*len(w.now.items)+len(secret)*20 || w.pending() > s.longest {
			t.Fatalf("%d states of %d items, %d bytes kept back", len(w.states), w.size, w.pending())
		}
	}
}

// What always may be a beginning is kept back no longer than a secret can be.
func TestNoMoreIsKeptBackThanASecret(t *testing.T) {
	s := scannerOf(t, "aaaaaaab", "YWFhYWFh\"")
	for _, text := range []string{"a", "%61", `\u0061`, "61", "YWFh", "YWFh\n"} {
		w := newWalk(s.patterns, exact(), s.longest)
		if w.over(bytes.Repeat([]byte(text), 10_000)); w.pending() > s.longest || s.longest > 200 {
			t.Errorf("%q: %d of %d bytes are kept back", text, w.pending(), s.longest)
		}
	}
}

func TestManySecrets(t *testing.T) {
	var secrets []string
	for i := range 20 {
		secrets = append(secrets, fmt.Sprintf("secret-number-%02d-and-more", i))
	}
	s := scannerOf(t, secrets...)
	for i, secret := range secrets {
		if name, found := s.Find("x" + secret[:14] + secret + "y"); !found || name != fmt.Sprintf("c%d", i) {
			t.Errorf("%s: %q", secret, name)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	random := make([]byte, 1<<20)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	events := bytes.Repeat([]byte("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"of the system\\n\"}}\n\n"), 1<<13)[:1<<20]
	var hostile []byte
	for written := []string{honey, escaped("%%%02x")(honey), base64.StdEncoding.EncodeToString([]byte(honey)), hex.EncodeToString([]byte(honey)), escaped(`\u%04x`)(honey)}; len(hostile) < 1<<20; {
		one := written[rand.IntN(len(written))]
		hostile = append(hostile, one[:rand.IntN(len(one)/2)]...)
	}
	for name, text := range map[string][]byte{
		"hostile": hostile[:1<<20], "random": random, "events": events, "base64": []byte(base64.StdEncoding.EncodeToString(random))[:1<<20],
		"begins": bytes.Repeat([]byte(honey[:len(honey)-1]), 1<<16)[:1<<20],
	} {
		b.Run(name, func(b *testing.B) {
			s := scannerOf(b, honey)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := io.Copy(io.Discard, s.Body(io.NopCloser(bytes.NewReader(text)), func(string) { b.Error("found") })); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("a header", func(b *testing.B) {
		s := scannerOf(b, honey)
		for b.Loop() {
			s.Find("Content-Type: application/json\nDate: Wed, 01 Dec 2027 10:00:00 GMT\nServer: nginx\nX-Request-Id: 0123456789abcdef\n")
		}
	})
	b.Run("a scanner", func(b *testing.B) {
		secret, err := credential.NewSecret([]byte(honey))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			NewScanner(map[credential.Name]credential.Secret{"c": secret})
		}
	})
}
