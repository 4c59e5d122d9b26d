package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"tendril/fault"
)

// ErrTooLong is the error of a line above its bound.
var ErrTooLong = errors.New("the line is too long")

var errNotOneThing = errors.New("a line does not say exactly one thing")

func notUnderstood(err error) error {
	return fault.New(fault.Internal, "what the Stem said is not understood, so what became of the call is not known: %w", err).
		WithHint("it is probably of another version; use the same tendril at both ends")
}

// Lines reads lines of bounded length. It is for one goroutine.
type Lines struct {
	from *bufio.Reader
	line []byte // read of the next line, and not returned
}

// NewLines reads lines from r.
func NewLines(r io.Reader) *Lines {
	return &Lines{from: bufio.NewReaderSize(r, 16<<10)}
}

// Next returns the next line without its end. It is valid until the next call. At the
// end of the input the error is [io.EOF], and [io.ErrUnexpectedEOF] within a line; A
// line of more than most bytes is [ErrTooLong], which does not wait for its end. What
// was read of it is kept: a call with a larger bound goes on with the same line.
func (l *Lines) Next(most int) ([]byte, error) {
	for {
		if i := len(l.line) - 1; i >= 0 && l.line[i] == '\n' { // it is nowhere else
			line := l.line[:i]
			if len(line) > most {
				return nil, ErrTooLong
			}
			l.line = l.line[:0]
			if cap(l.line) > LargestMessage { // a large line is rare; its memory is not kept
				l.line = nil
			}
			return line, nil
		}
		if len(l.line) > most {
			return nil, ErrTooLong
		}
		part, err := l.from.ReadSlice('\n')
		l.line = append(l.line, part...)
		if err == io.EOF && len(l.line) > 0 {
			return nil, io.ErrUnexpectedEOF
		}
		if err != nil && err != bufio.ErrBufferFull {
			return nil, err
		}
	}
}

// strict decodes one JSON value of the Stem's and refuses unknown keys and whatever
// follows it.
func strict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("something follows the value")
	}
	return nil
}
