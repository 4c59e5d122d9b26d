package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of one request's head, and of the trailer of its body.
const (
	longestHead = 64 << 10
	mostFields  = 100

	// longestSize is for a chunk's size with its extensions, which are dropped.
	longestSize = 256
)

// requestReader reads what a client sends as HTTP/1.1 requests, and passes on what has
// one meaning, byte for byte (but for chunk extensions). It stands in front of the
// reader of net/http, which is laxer: it takes a bare LF for the end of a line (RFC
// 9112, section 2.2, allows it) and more than one Content-Length if they agree.
//
// In the place of a request that it refuses it passes on one that asks for nothing,
// and nothing after it, so that the refusal is answered in its turn and by the same
// hand as everything else; [requestReader.refusal] says which one that is.
//
// A Read that fails because of a deadline can be repeated.
type requestReader struct {
	source *bufio.Reader
	late   *headTimer

	out   []byte // checked, and not yet passed on
	part  []byte // of a head, a trailer or a line that has not ended yet
	state readState
	left  int64 // bytes of the body, or of its chunk, that are still to come

	tunnels   bool // the next request may be a CONNECT
	heads     int  // that were passed on
	first     *head
	failed    error // of a body, after which nothing can be told apart any more
	broken    atomic.Pointer[denial]
	refused   *denial
	refusedAt atomic.Int64 // which head was refused, counted from 1; 0: none was
}

type readState int

const (
	atHead readState = iota
	inBody
	atSize
	inChunk
	afterChunk
	inTrailer
	atEnd // nothing more is passed on
)

// headTimer ends a connection on which a head drips.
type headTimer struct {
	limit time.Duration
	end   func()

	mu    sync.Mutex
	timer *time.Timer
}

func (t *headTimer) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		t.timer = time.AfterFunc(t.limit, t.end)
	}
}

func (t *headTimer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// newRequestReader reads from source. Each head has to be whole within the limit after
// its first byte, or end is called.
func newRequestReader(source io.Reader, limit time.Duration, end func()) *requestReader {
	return &requestReader{source: bufio.NewReaderSize(source, 4<<10), late: &headTimer{limit: limit, end: end}}
}

// begin waits for the first request and returns its head, or nil if it is refused.
// Nothing is passed on by it.
func (r *requestReader) begin() (*head, error) {
	r.tunnels = true
	err := r.readHead()
	r.tunnels = false
	return r.first, err
}

// rest returns what follows the head that was passed on last, as it is. After it,
// nothing more may be read otherwise. It fails if more has been looked at already.
func (r *requestReader) rest() (io.Reader, bool) {
	return r.source, len(r.out) == 0 && len(r.part) == 0 && r.refusedAt.Load() == 0
}

// refusal returns why the head with this number, counted from 1, was refused.
func (r *requestReader) refusal(number int) *denial {
	if at := r.refusedAt.Load(); at == 0 || int(at) != number {
		return nil
	}
	return r.refused
}

func (r *requestReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.out) == 0 {
		if r.failed != nil {
			return 0, r.failed
		}
		var err error
		switch r.state {
		case atHead:
			err = r.readHead()
		case inBody, inChunk:
			n, err := r.readBody(p)
			return n, r.fail(err)
		case atSize:
			err = r.readSize()
		case afterChunk:
			err = r.readChunkEnd()
		case inTrailer:
			err = r.readTrailer()
		case atEnd:
			return 0, io.EOF
		}
		if err != nil {
			return 0, r.fail(err)
		}
	}
	n := copy(p, r.out)
	if r.out = r.out[n:]; len(r.out) == 0 {
		r.out = nil // a large head is not kept
	}
	return n, nil
}

// fail keeps an error, unless time may mend it.
func (r *requestReader) fail(err error) error {
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		r.failed = err
		var d *denial
		if errors.As(err, &d) {
			r.broken.Store(d)
		}
	}
	return err
}

// brokenBody returns what is wrong with a body, if that is why reading it failed:
// net/http does not always pass the error on.
func (r *requestReader) brokenBody() *denial { return r.broken.Load() }

// readHead reads one head, up to its empty line.
func (r *requestReader) readHead() error {
	if len(r.part) == 0 {
		if _, err := r.source.Peek(1); err != nil {
			return err
		}
		r.late.begin()
	}
	text, err := r.section()
	if err != nil {
		return r.refuse(err)
	}
	h, err := parseHead(text)
	if err == nil && h.method == http.MethodConnect && !r.tunnels {
		err = malformed("CONNECT is for a proxy, and the first request on its connection")
	}
	if err == nil {
		err = understood(h, text)
	}
	if err != nil {
		return r.refuse(err)
	}
	r.late.stop()
	r.heads++
	if r.first == nil {
		r.first = h
	}
	r.out = text
	switch {
	case h.method == http.MethodConnect:
		r.out, r.state = nil, atEnd // what follows is no request
	case h.chunked:
		r.state = atSize
	case h.length > 0:
		r.state, r.left = inBody, h.length
	}
	return nil
}

// understood refuses what net/http does not take for a request: it would answer by
// itself, and nobody would know.
func understood(h *head, text []byte) error {
	if h.method == http.MethodConnect {
		return nil // it does not see that
	}
	if _, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text))); err != nil {
		return malformed("it has a target or a field that cannot be read")
	}
	return nil
}

// refuse puts a request that asks for nothing in the place of one that is malformed.
// Any other error is returned.
func (r *requestReader) refuse(err error) error {
	var d *denial
	if !errors.As(err, &d) {
		return err
	}
	r.late.stop()
	r.heads++
	r.part = nil
	r.out = []byte("GET http://refused.invalid/ HTTP/1.1\r\nHost: refused.invalid\r\nConnection: close\r\n\r\n")
	r.state = atEnd
	r.refused = d
	r.refusedAt.Store(int64(r.heads))
	return nil
}

// section reads lines up to an empty one, which is part of what it returns.
func (r *requestReader) section() ([]byte, error) {
	for lines := bytes.Count(r.part, []byte("\n")); ; lines++ {
		start := bytes.LastIndexByte(r.part, '\n') + 1
		if err := r.line(longestHead, tooLarge("the header is larger than %d bytes", longestHead)); err != nil {
			return nil, err
		}
		if len(r.part)-start == len("\r\n") {
			return r.taken(), nil
		}
		if lines > mostFields {
			return nil, tooLarge("the header is larger than %d fields", mostFields)
		}
	}
}

// line appends to part up to the end of a line. tooLong is its error when part becomes
// longer than it may.
func (r *requestReader) line(longest int, tooLong *denial) error {
	for {
		text, err := r.source.ReadSlice('\n')
		r.part = append(r.part, text...)
		switch {
		case len(r.part) > longest:
			return tooLong
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(r.part) > 0:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case !bytes.HasSuffix(r.part, []byte("\r\n")):
			return malformed("a line ends without a carriage return (RFC 9112, section 2.2)")
		}
		return nil
	}
}

func (r *requestReader) taken() []byte {
	text := r.part
	r.part = nil
	return text
}

func (r *requestReader) readBody(p []byte) (int, error) {
	n, err := r.source.Read(p[:min(int64(len(p)), r.left)])
	if r.left -= int64(n); r.left == 0 {
		if r.state == inChunk {
			r.state = afterChunk
		} else {
			r.state = atHead
		}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readSize reads a chunk's size (RFC 9112, section 7.1).
func (r *requestReader) readSize() error {
	if err := r.line(longestSize, malformed("the size of a chunk is not a hexadecimal number")); err != nil {
		return err
	}
	text, _, _ := strings.Cut(strings.TrimSuffix(string(r.taken()), "\r\n"), ";")
	text = strings.TrimRight(text, " \t") // before an extension, as net/http takes it
	size, err := strconv.ParseInt(text, 16, 64)
	if err != nil || strings.Trim(text, "0123456789abcdefABCDEF") != "" { // or it has a sign
		return malformed("the size of a chunk is not a hexadecimal number")
	}
	r.out = append(strconv.AppendInt(nil, size, 16), "\r\n"...)
	r.left, r.state = size, inChunk
	if size == 0 {
		r.state = inTrailer
	}
	return nil
}

func (r *requestReader) readChunkEnd() error {
	if err := r.line(longestSize, malformed("a chunk is longer than its size")); err != nil {
		return err
	}
	if text := r.taken(); string(text) != "\r\n" {
		return malformed("a chunk is longer than its size")
	}
	r.out, r.state = []byte("\r\n"), atSize
	return nil
}

func (r *requestReader) readTrailer() error {
	text, err := r.section()
	if err != nil {
		return err
	}
	fields, err := parseFields(text)
	if err != nil {
		return err
	}
	for _, f := range fields {
		if !mayTrail(f.name) {
			return malformed("a trailer has a field that belongs in a header")
		}
	}
	r.out, r.state = text, atHead
	return nil
}
