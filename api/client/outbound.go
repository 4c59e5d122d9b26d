package client

import (
	"io"
	"sync"

	"tendril/api/wire"
	"tendril/capability"
)

// send sends one line, and reports whether that worked.
func (c *call) send(message wire.Message) bool {
	line, err := marshal(message)
	return err == nil && c.write(append(line, '\n'))
}

func (c *call) write(line []byte) bool {
	c.sending.Lock()
	defer c.sending.Unlock()
	_, err := c.conn.Write(line)
	return err == nil
}

// follow passes on the terminal's sizes, and the end of ctx once, until the call is over.
func (c *call) follow(sizes <-chan capability.Size) {
	cancelled := c.ctx.Done()
	for {
		select {
		case size, more := <-sizes:
			if !more {
				sizes = nil
				continue
			}
			c.send(wire.Message{Resize: &size})
		case <-cancelled:
			cancelled = nil
			c.send(wire.Message{Cancel: true})
		case <-c.over:
			return
		}
	}
}

// pump sends stdin as far as the server has room for it. It takes nothing from input
// that it could not send. An input that cannot be read to its end cancels the call, so
// that a part of it is not taken for the whole.
func (c *call) pump(input io.Reader) {
	buffer := make([]byte, wire.StdinChunk)
	for {
		most := c.room.wait(len(buffer))
		if most == 0 {
			return
		}
		n, err := input.Read(buffer[:most])
		c.room.take(n)
		if n > 0 && !c.send(wire.Message{Stdin: buffer[:n]}) {
			return
		}
		switch err {
		case nil:
		case io.EOF:
			c.send(wire.Message{StdinEnd: true})
			return
		default:
			c.send(wire.Message{Cancel: true})
			return
		}
	}
}

// room is how many bytes of stdin the server takes for now.
type room struct {
	mu     sync.Mutex
	change sync.Cond
	free   int
	closed bool
}

func newRoom(free int) *room {
	r := &room{free: free}
	r.change.L = &r.mu
	return r
}

// wait waits until there is any, and returns it, but at most most; 0 after close.
func (r *room) wait(most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.free == 0 && !r.closed {
		r.change.Wait()
	}
	if r.closed {
		return 0
	}
	return min(r.free, most)
}

func (r *room) take(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free -= n
}

// add is for what the server took. More than it was sent would be its defect, and makes
// no more room than there was.
func (r *room) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = min(r.free+max(n, 0), wire.StdinWindow)
	r.change.Broadcast()
}

func (r *room) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.change.Broadcast()
}
