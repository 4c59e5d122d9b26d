package model

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"tendril/fault"
)

// largestEvent is the most bytes of one event of a stream. The largest ones repeat a
// whole answer.
const largestEvent = 4 << 20

// errTooLong ends a stream whose events cannot be read in bounded memory.
var errTooLong = fault.New(fault.Unavailable, "the provider sent an event of more than %d bytes", largestEvent)

// events reads a stream of server-sent events (HTML, section 9.2) and calls each with
// the bytes of one event, its empty line included, and with its data. Both are valid
// until it returns. What follows the last empty line is an event as well.
//
// It returns nil at the end of the stream, the error of each, or what the reader failed
// with.
func events(from io.Reader, each func(raw, data []byte) error) error {
	lines := bufio.NewReaderSize(from, 64<<10)
	var raw, data []byte
	for {
		line, err := appendLine(lines, &raw)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		content := bytes.TrimRight(line, "\r\n")
		if value, ok := bytes.CutPrefix(content, []byte("data:")); ok {
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		}
		if (err != nil || len(content) == 0) && len(raw) > 0 {
			if err := each(raw, data); err != nil {
				return err
			}
			raw, data = raw[:0], data[:0]
		}
		if err != nil {
			return nil
		}
	}
}

// appendLine appends one line with its end to raw and returns it.
func appendLine(from *bufio.Reader, raw *[]byte) ([]byte, error) {
	start := len(*raw)
	for {
		part, err := from.ReadSlice('\n')
		if len(*raw)+len(part) > largestEvent {
			return nil, errTooLong
		}
		*raw = append(*raw, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return (*raw)[start:], err
		}
	}
}
