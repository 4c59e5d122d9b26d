package stoma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Headers and messages are byte strings, each preceded by its length as a
// uvarint, in a fixed order. A number is a byte string that holds one uvarint;
// a list is a byte string that holds byte strings. Every value has exactly one
// encoding, so that two readers cannot disagree.

// AppendBytes appends one byte string.
func AppendBytes[T ~string | ~[]byte](b []byte, field T) []byte {
	b = binary.AppendUvarint(b, uint64(len(field)))
	return append(b, field...)
}

// AppendUint appends one number.
func AppendUint(b []byte, n uint64) []byte {
	var buf [binary.MaxVarintLen64]byte
	return AppendBytes(b, buf[:binary.PutUvarint(buf[:], n)])
}

// AppendList appends one list of byte strings.
func AppendList(b []byte, list []string) []byte {
	var inner []byte
	for _, s := range list {
		inner = AppendBytes(inner, s)
	}
	return AppendBytes(b, inner)
}

var errFields = errors.New("malformed fields")

// Fields takes fields off a header, one call a field, in the order in which
// they were appended. The first mistake sticks: check [Fields.End] once, at the
// end. What Bytes returns aliases the header.
type Fields struct {
	rest []byte
	err  error
}

// NewFields reads the header b.
func NewFields(b []byte) *Fields { return &Fields{rest: b} }

func (f *Fields) fail() {
	f.err = errFields
	f.rest = nil
}

// Bytes takes one byte string.
func (f *Fields) Bytes() []byte {
	n, rest, ok := takeUvarint(f.rest)
	if f.err != nil || !ok || n > uint64(len(rest)) {
		f.fail()
		return nil
	}
	f.rest = rest[n:]
	return rest[:n:n]
}

// Text takes one byte string as a string.
func (f *Fields) Text() string { return string(f.Bytes()) }

// Uint takes one number.
func (f *Fields) Uint() uint64 {
	b := f.Bytes()
	n, rest, ok := takeUvarint(b)
	if f.err != nil || !ok || len(rest) != 0 {
		f.fail()
		return 0
	}
	return n
}

// UintMax takes one number that is at most limit.
func (f *Fields) UintMax(limit uint64) uint64 {
	n := f.Uint()
	if n > limit {
		f.fail()
		return 0
	}
	return n
}

// List takes one list. Its length is bounded by the size of the header.
func (f *Fields) List() []string {
	inner := NewFields(f.Bytes())
	var list []string
	for f.err == nil && len(inner.rest) > 0 {
		list = append(list, inner.Text())
		if inner.err != nil {
			f.fail()
			return nil
		}
	}
	return list
}

// End reports whether every field was well formed and nothing is left.
func (f *Fields) End() error {
	if f.err == nil && len(f.rest) > 0 {
		f.fail()
	}
	return f.err
}

// takeUvarint takes a uvarint in its shortest encoding.
func takeUvarint(b []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || size > 1 && b[size-1] == 0 {
		return 0, nil, false
	}
	return n, b[size:], true
}

// WriteMessage writes fields as one message on a stream: their length, then
// the fields themselves.
func WriteMessage(w io.Writer, fields []byte) error {
	if len(fields) > MaxHeader {
		return fmt.Errorf("message of %d bytes is over the limit of %d", len(fields), MaxHeader)
	}
	_, err := w.Write(AppendBytes(nil, fields))
	return err
}

// MessageReader is what a message is read from: a bufio.Reader over a stream.
type MessageReader interface {
	io.Reader
	io.ByteReader
}

// ReadMessage reads one message of at most limit bytes. It returns io.EOF only
// when the stream ended before the message's first byte.
func ReadMessage(r MessageReader, limit int) (*Fields, error) {
	var size uint64
	for shift := 0; ; shift += 7 {
		c, err := r.ReadByte()
		if err != nil {
			if err == io.EOF && shift > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if shift > 21 || shift > 0 && c == 0 {
			return nil, violation("message length")
		}
		size |= uint64(c&0x7f) << shift
		if c < 0x80 {
			break
		}
	}
	if size > uint64(limit) {
		return nil, violation("message over its limit")
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return NewFields(b), nil
}
