package proxy

import (
	"encoding/binary"
	"io"

	"tendril/destination"
	"tendril/fault"
)

// The bounds of what a client may begin TLS with. With post-quantum keys and tickets,
// browsers stay below 4 KiB.
const (
	longestHello = 16 << 10
	mostRecords  = 16
)

// hello is what a ClientHello says about the server that is meant.
type hello struct {
	name      string // of the server; empty if none is named
	named     bool
	encrypted bool // the name that counts may be another one, in what is encrypted
}

// check refuses a hello that does not mean the host, or may mean another one.
func (h hello) check(host destination.Host) error {
	_, isAddress := host.Address()
	switch {
	case h.encrypted:
		return notTheTLS("the client hides the server's name (Encrypted Client Hello)").WithHint("switch ECH off in the client")
	case isAddress && h.named:
		return notTheTLS("the client names a server where an address was asked for")
	case isAddress:
		return nil
	case !h.named:
		return notTheTLS("the client does not name the server (SNI)")
	}
	for i := range len(h.name) { // ParseHost makes A-labels of what is not ASCII
		if h.name[i] >= 0x80 {
			return notTheTLS("the client names another server than it asked for")
		}
	}
	if name, err := destination.ParseHost(h.name); err != nil || name != host {
		return notTheTLS("the client names another server than it asked for")
	}
	return nil
}

func notTheTLS(format string, args ...any) *fault.Error {
	return fault.New(fault.Denied, format, args...).WithRule("tls")
}

func badHello() *fault.Error { return notTheTLS("the client does not begin with a ClientHello of TLS") }

// readHello reads one ClientHello and returns it as it came, and not a byte beyond it.
func readHello(r io.Reader) (raw []byte, h hello, err error) {
	const headerSize = 5
	var message []byte
	for range mostRecords {
		start := len(raw)
		raw = append(raw, make([]byte, headerSize)...)
		if _, err := io.ReadFull(r, raw[start:]); err != nil {
			return nil, hello{}, err
		}
		kind, major, size := raw[start], raw[start+1], int(binary.BigEndian.Uint16(raw[start+3:]))
		if kind != 22 || major != 3 || size == 0 || size > longestHello {
			return nil, hello{}, badHello()
		}
		raw = append(raw, make([]byte, size)...)
		if _, err := io.ReadFull(r, raw[start+headerSize:]); err != nil {
			return nil, hello{}, err
		}
		message = append(message, raw[start+headerSize:]...)
		if message[0] != 1 || len(message) > longestHello {
			return nil, hello{}, badHello()
		}
		if len(message) < 4 {
			continue
		}
		switch whole := 4 + int(message[1])<<16 + int(message[2])<<8 + int(message[3]); {
		case whole > longestHello || len(message) > whole: // nothing may follow it in its record
			return nil, hello{}, badHello()
		case len(message) == whole:
			h, ok := parseHello(message[4:])
			if !ok {
				return nil, hello{}, badHello()
			}
			return raw, h, nil
		}
	}
	return nil, hello{}, badHello()
}

// The extensions that are looked into (IANA, TLS ExtensionType Values).
const (
	extensionServerName = 0
	extensionESNI       = 0xffce // of the drafts before ECH
	extensionECH        = 0xfe0d // RFC 9849
)

// parseHello parses the body of a ClientHello (RFC 8446, section 4.1.2).
func parseHello(body []byte) (hello, bool) {
	var h hello
	b := wire{rest: body}
	b.take(2 + 32) // version and random
	b.vector(1)    // session
	b.vector(2)    // cipher suites
	b.vector(1)    // compression
	if b.bad {
		return hello{}, false
	}
	if len(b.rest) == 0 {
		return h, true // before TLS 1.2 there may be no extensions
	}
	extensions := wire{rest: b.vector(2)}
	if b.bad || len(b.rest) > 0 {
		return hello{}, false
	}
	seen := map[int]bool{}
	for len(extensions.rest) > 0 {
		kind := extensions.uint(2)
		data := extensions.vector(2)
		if extensions.bad || seen[kind] {
			return hello{}, false
		}
		seen[kind] = true
		switch kind {
		case extensionECH, extensionESNI:
			h.encrypted = true
		case extensionServerName:
			name, ok := parseServerName(data)
			if !ok {
				return hello{}, false
			}
			h.name, h.named = name, true
		}
	}
	return h, true
}

// parseServerName takes exactly one host name (RFC 6066, section 3).
func parseServerName(data []byte) (string, bool) {
	b := wire{rest: data}
	list := wire{rest: b.vector(2)}
	kind := list.uint(1)
	name := list.vector(2)
	ok := !b.bad && !list.bad && len(b.rest) == 0 && len(list.rest) == 0 && kind == 0 && len(name) > 0
	return string(name), ok
}

// wire reads big-endian numbers and vectors. Once something is missing it is bad, and
// all that it returns is empty.
type wire struct {
	rest []byte
	bad  bool
}

func (w *wire) take(n int) []byte {
	if w.bad || n > len(w.rest) {
		w.bad = true
		return nil
	}
	taken := w.rest[:n]
	w.rest = w.rest[n:]
	return taken
}

func (w *wire) uint(size int) int {
	n := 0
	for _, b := range w.take(size) {
		n = n<<8 | int(b)
	}
	return n
}

// vector takes bytes that stand behind their length.
func (w *wire) vector(size int) []byte { return w.take(w.uint(size)) }
