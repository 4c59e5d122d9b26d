// Package leak finds secrets in what a server sends back, before it goes on.
//
// It promises that a secret does not pass verbatim; in base64, at any place in what is
// encoded and over line breaks; in hexadecimal digits; nor with any of the characters
// of these escaped as in a URL, JSON, C or HTML, each in its own way; also not in
// pieces over chunks, and not its beginning either. In a header the case of letters
// makes no difference. Memory and the time of a byte are bounded.
//
// What it does not protect against: a server that wants to give a secret away. What is
// encrypted, compressed within the body, reversed, encoded twice, encoded in another
// way, or sent in pieces with something between them, is not seen.
package leak

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	"tendril/credential"
	"tendril/fault"
)

// Scanner looks for the secrets of some credentials. It is safe for concurrent use.
type Scanner struct {
	longest int

	mu       sync.RWMutex // over looking
	patterns []pattern    // nil when it is closed
}

// NewScanner returns a Scanner that keeps what it needs of the secrets, by the names of
// their credentials; the secrets themselves stay the caller's.
func NewScanner(secrets map[credential.Name]credential.Secret) *Scanner {
	s := &Scanner{}
	for name, secret := range secrets {
		s.patterns = append(s.patterns, patternsOf(string(name), secret.Bytes())...)
	}
	for _, p := range s.patterns {
		s.longest = max(s.longest, p.longest(exact()))
	}
	return s
}

// Close overwrites what the Scanner keeps of the secrets. Nothing is found from then on,
// and bodies end with an error.
func (s *Scanner) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.patterns {
		clear(p.text)
	}
	s.patterns = nil
}

// Find returns the name of a credential whose secret is in text, with its letters in
// either case: the names of header fields have none (RFC 9110, section 5.1), and net/http
// writes them in its own.
func (s *Scanner) Find(text string) (name string, found bool) {
	_, name, _ = s.look(s.walk(folded()), []byte(text))
	return name, name != ""
}

func (s *Scanner) walk(forms *[256][]form) *walk {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return newWalk(s.patterns, forms, s.longest)
}

// look goes over bytes unless the Scanner is closed.
func (s *Scanner) look(w *walk, bytes []byte) (taken int, found string, closed bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.patterns == nil {
		return 0, "", true
	}
	taken, found = w.over(bytes)
	return taken, found, false
}

// Found is the fault of a response that holds the secret of a credential. where is the
// part of the response.
func Found(name, where string) error {
	return fault.New(fault.Denied, "%s holds the secret of the credential %s", where, name).
		WithRule("a secret that is attached outside never comes inside").
		WithHint("the server repeats what was sent to it; bind the credential to paths that do not")
}

// Body returns a body that ends with [Found] before the first byte of a secret, and
// then calls found, once. It keeps back what may be the beginning of a secret until more
// is there. It reads from the other body, also while it is closed by another goroutine.
func (s *Scanner) Body(from io.ReadCloser, found func(name string)) io.ReadCloser {
	return &body{from: from, scanner: s, walk: s.walk(exact()), found: found}
}

type body struct {
	from    io.ReadCloser
	scanner *Scanner
	found   func(name string)

	walk   *walk
	space  []byte
	held   []byte // what was read and is not out, in space
	passed int    // how much of it may go out
	end    error  // what follows that; nil if it is not known
}

// chunk is how many bytes are read at once, at most.
const chunk = 32 << 10

func (b *body) Read(p []byte) (int, error) {
	for b.passed == 0 && b.end == nil && len(p) > 0 {
		b.fill()
	}
	if b.passed == 0 {
		return 0, b.end
	}
	n := copy(p, b.held[:b.passed])
	b.held = b.held[n:]
	b.passed -= n
	return n, nil
}

func (b *body) fill() {
	b.space = slices.Grow(append(b.space[:0], b.held...), chunk)
	before := len(b.space)
	n, err := b.from.Read(b.space[before : before+chunk])
	b.held = b.space[:before+n]
	taken, name, closed := b.scanner.look(b.walk, b.held[before:])
	switch {
	case closed:
		b.passed, b.end = 0, fmt.Errorf("look through a response: %w", fs.ErrClosed)
	case name != "":
		b.passed = before + taken - b.walk.pending()
		clear(b.held[b.passed:])
		b.end = Found(name, "the response")
		b.from.Close()
		b.found(name)
	case err == io.EOF:
		b.passed, b.end = len(b.held), err
	default:
		b.passed, b.end = len(b.held)-b.walk.pending(), err
	}
}

// Close closes what the body comes from.
func (b *body) Close() error { return b.from.Close() }
