package leak

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"strings"

	"tendril/fault"
)

// Decoded returns what a body says without its content coding (RFC 9110, section 8.4.1),
// which is what a client would see and what has to be looked at. coding is the value of
// Content-Encoding. One that cannot be undone here, and more than one, is a fault of
// the kind denied. What grows out of all proportion while it is undone ends with an
// error.
func Decoded(coding string, from io.ReadCloser) (io.ReadCloser, error) {
	var open func(*bufio.Reader) (io.Reader, error)
	switch strings.ToLower(strings.TrimSpace(coding)) {
	case "", "identity":
		return from, nil
	case "gzip", "x-gzip":
		open = func(r *bufio.Reader) (io.Reader, error) { return gzip.NewReader(r) }
	case "deflate":
		open = inflate
	default:
		return nil, fault.New(fault.Denied, "the response is encoded in a way that is not looked into (Content-Encoding)").
			WithRule("a response to a request with a credential is looked through, or does not pass").
			WithHint("the request asked for no encoding; gzip and deflate are undone, others are not")
	}
	return &decoded{from: from, open: open}, nil
}

// inflate takes the zlib format (RFC 1950), which deflate means, and what some servers
// take it to mean, which is the data in it alone (RFC 1951).
func inflate(r *bufio.Reader) (io.Reader, error) {
	head, err := r.Peek(2)
	if err != nil {
		return nil, err
	}
	if head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(r)
	}
	return flate.NewReader(r), nil
}

// The most that may come out: text compresses to a tenth, and hardly anything that
// is sent on purpose to a hundredth.
const (
	mostGrowth = 200
	freeGrowth = 1 << 20 // bytes that may come out of any
)

type decoded struct {
	from    io.ReadCloser
	open    func(*bufio.Reader) (io.Reader, error)
	decoder io.Reader
	in, out int64
	end     error
}

// Read opens the decoder at the first call, because that reads.
func (d *decoded) Read(p []byte) (int, error) {
	if d.end != nil {
		return 0, d.end
	}
	if d.decoder == nil {
		if d.decoder, d.end = d.open(bufio.NewReader(counted{d})); d.end != nil {
			d.end = undone(d.end)
			return 0, d.end
		}
	}
	n, err := d.decoder.Read(p)
	d.out += int64(n)
	switch {
	case d.out > freeGrowth && d.out/mostGrowth > d.in:
		d.end = fault.New(fault.Denied, "the response grows to more than %d times its size while it is decoded", mostGrowth)
		return 0, d.end
	case err == io.EOF:
		d.end = err
	case err != nil:
		d.end = undone(err)
	}
	return n, d.end
}

func undone(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("decode a response: %w", err)
}

func (d *decoded) Close() error { return d.from.Close() }

// counted counts what goes in.
type counted struct{ d *decoded }

func (c counted) Read(p []byte) (int, error) {
	n, err := c.d.from.Read(p)
	c.d.in += int64(n)
	return n, err
}
