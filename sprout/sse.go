package sprout

import (
	"bufio"
	"errors"
	"io"
)

// An event of a text/event-stream. The name may be empty.
type event struct {
	name string
	data []byte
}

// The bounds of a stream. A piece of an answer is a few hundred bytes on the wire, and
// an answer a few thousand pieces.
const (
	maxEvent  = 1 << 20
	maxStream = 32 << 20
)

var errEndless = errors.New("the stream is longer than any answer")

// events reads a text/event-stream as the WHATWG HTML standard has it (9.2.6), less the
// fields id and retry: nothing here connects again to the middle of a stream.
type events struct {
	r       *bufio.Reader
	left    int  // bytes until the stream is too long
	started bool // the first line, which may begin with a byte order mark, was read
	cr      bool // the last line ended in CR: an LF that follows belongs to it
}

func newEvents(r io.Reader) *events {
	return &events{r: bufio.NewReader(r), left: maxStream}
}

// next returns the next event that has data. At the end of the stream it returns
// io.EOF, and an event that no blank line ended is dropped, as the standard demands.
func (e *events) next() (event, error) {
	var ev event
	size, some := 0, false
	for {
		line, err := e.line(maxEvent - size)
		if err != nil {
			return event{}, err
		}
		size += len(line)
		if len(line) == 0 {
			if some {
				return ev, nil
			}
			ev, size = event{}, 0
			continue
		}
		switch field, value := cut(line); field {
		case "event":
			ev.name = string(value)
		case "data":
			if some {
				ev.data = append(ev.data, '\n')
			}
			ev.data, some = append(ev.data, value...), true
		}
	}
}

// cut splits a line at its first colon and takes one space from the value. A comment has
// an empty field.
func cut(line []byte) (field string, value []byte) {
	for i, c := range line {
		if c == ':' {
			value = line[i+1:]
			if len(value) > 0 && value[0] == ' ' {
				value = value[1:]
			}
			return string(line[:i]), value
		}
	}
	return string(line), nil
}

// line reads up to LF, CR or CRLF, at most limit bytes. A line that the end of the
// stream cuts off is no line.
func (e *events) line(limit int) ([]byte, error) {
	var line []byte
	for {
		c, err := e.r.ReadByte()
		if err != nil {
			return nil, err
		}
		if e.left--; e.left < 0 {
			return nil, errEndless
		}
		after := e.cr
		e.cr = c == '\r'
		switch {
		case c == '\n' && after:
		case c == '\n', c == '\r':
			if !e.started {
				e.started = true
				if len(line) >= 3 && string(line[:3]) == "\ufeff" {
					line = line[3:]
				}
			}
			return line, nil
		case len(line) >= limit:
			return nil, errEndless
		default:
			line = append(line, c)
		}
	}
}
