//go:build linux

package api

import (
	"encoding/json"
	"net"
	"sync"
	"time"

	"tendril/api/wire"
	"tendril/fault"
)

// connection writes lines to a client, one at a time, and gives the client up when it
// takes too little for too long.
type connection struct {
	conn  net.Conn
	stall time.Duration
	gone  func() // called when the client does not take what is sent

	mu    sync.Mutex
	ended bool // nothing more is sent
}

func newConnection(conn net.Conn, stall time.Duration, gone func()) *connection {
	return &connection{conn: conn, stall: stall, gone: gone}
}

// send writes one line and waits until the client's kernel has it. After the answer, or
// once the client is given up, it does nothing.
func (c *connection) send(message any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(message)
}

// answer writes the last line.
func (c *connection) answer(row *int64, output json.RawMessage) {
	c.last(wire.OutputLine{Row: row, Output: output})
}

// fail writes the last line of a call that did not succeed.
func (c *connection) fail(row *int64, failure wire.Failure) {
	c.last(wire.FailureLine{Row: row, Error: failure})
}

func (c *connection) last(message any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(message)
	c.ended = true
}

// write is send with mu held. It goes piece by piece, so that a large line to a slow
// client is not one to a client that stalls.
func (c *connection) write(message any) {
	if c.ended {
		return
	}
	line, err := json.Marshal(message)
	if err != nil { // ours, and not the client's: no line of it has begun
		c.end()
		return
	}
	line = append(line, '\n')
	for len(line) > 0 {
		piece := line[:min(len(line), writePiece)]
		c.conn.SetWriteDeadline(time.Now().Add(c.stall)) // if it fails, so does the write
		if _, err := c.conn.Write(piece); err != nil {
			c.end()
			return
		}
		line = line[len(piece):]
	}
}

func (c *connection) end() {
	c.ended = true
	c.gone()
}

func (c *connection) close() { c.conn.Close() }

// encode returns an output as the wire takes it.
func encode(output any) (json.RawMessage, error) {
	text, err := json.Marshal(output)
	if err != nil {
		return nil, fault.New(fault.Internal, "encoding the answer: %w", err)
	}
	if len(text) > largestOutput {
		return nil, fault.New(fault.Unavailable, "the answer of %d bytes is larger than %d", len(text), largestOutput).
			WithHint("ask for less of it at once")
	}
	return text, nil
}

const largestOutput = wire.LargestReply - 1024 // the row and the keys around it
