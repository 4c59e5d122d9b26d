package proxy

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pumped is how much of what a client sends is held for it. With the buffers of
// whoever reads, of TLS and for copying, a connection has less than 64 KiB.
const pumped = 16 << 10

// clientConn makes a net.Conn of a client's stream, which has no deadlines. It closes
// itself when no byte has moved in either direction for a while.
type clientConn struct {
	raw     Conn
	onClose func()
	idle    time.Duration
	watch   *time.Timer
	closing sync.Once
	pump    sync.WaitGroup

	mu       sync.Mutex
	changed  sync.Cond
	buffer   []byte // what was read and not yet taken
	err      error  // of reading, after the buffer
	reading  deadline
	writing  deadline
	writes   int // that are going on
	isClosed bool
}

// deadline has its fields guarded by the connection.
type deadline struct {
	timer *time.Timer
	round int // of the timer; an earlier one has no say
	over  bool
}

// newConn takes a stream, which is closed by Close. onClose is called once, and must
// not wait.
func newConn(raw Conn, idle time.Duration, onClose func()) *clientConn {
	c := &clientConn{raw: raw, onClose: onClose, idle: idle}
	c.changed.L = &c.mu
	c.watch = time.AfterFunc(idle, func() { _ = c.Close() })
	c.pump.Go(c.fill)
	return c
}

// fill reads ahead, so that a Read can be given up without losing what arrives.
func (c *clientConn) fill() {
	space := make([]byte, pumped)
	for {
		n, err := c.raw.Read(space)
		c.mu.Lock()
		c.buffer, c.err = space[:n], err
		c.changed.Broadcast()
		for len(c.buffer) > 0 && !c.isClosed {
			c.changed.Wait()
		}
		over := err != nil || c.isClosed
		c.mu.Unlock()
		if over {
			return
		}
		if n > 0 {
			c.watch.Reset(c.idle)
		}
	}
}

func (c *clientConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.isClosed:
			return 0, net.ErrClosed
		case c.reading.over:
			return 0, os.ErrDeadlineExceeded
		case len(c.buffer) > 0:
			n := copy(p, c.buffer)
			if c.buffer = c.buffer[n:]; len(c.buffer) == 0 {
				c.changed.Broadcast()
			}
			return n, nil
		case c.err != nil:
			return 0, c.err
		case len(p) == 0:
			return 0, nil
		}
		c.changed.Wait()
	}
}

func (c *clientConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	switch {
	case c.isClosed:
		c.mu.Unlock()
		return 0, net.ErrClosed
	case c.writing.over:
		c.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	}
	c.writes++
	c.mu.Unlock()
	total := 0
	var err error
	for len(p) > 0 && err == nil { // in pieces, so that a large one does not look idle
		var n int
		n, err = c.raw.Write(p[:min(len(p), pumped)])
		total += n
		p = p[n:]
		if n > 0 {
			c.watch.Reset(c.idle)
		}
	}
	c.mu.Lock()
	c.writes--
	c.mu.Unlock()
	return total, err
}

// CloseWrite ends this side's bytes, if the stream can say so.
func (c *clientConn) CloseWrite() error {
	if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Close ends the connection in both directions, and what waits for it.
func (c *clientConn) Close() error {
	var err error
	c.closing.Do(func() {
		c.mu.Lock()
		c.isClosed = true
		c.changed.Broadcast()
		c.mu.Unlock()
		err = c.raw.Close()
		c.watch.Stop()
		_ = c.SetDeadline(time.Time{})
		c.onClose()
	})
	return err
}

// finish closes the connection and waits for the goroutine that it has.
func (c *clientConn) finish() {
	_ = c.Close()
	c.pump.Wait()
	c.watch.Stop() // the pump may have begun it again
}

func (c *clientConn) SetReadDeadline(t time.Time) error {
	c.set(&c.reading, t, c.changed.Broadcast)
	return nil
}

// SetWriteDeadline bounds writes. One that is late closes the connection: how much of
// it arrived is not known.
func (c *clientConn) SetWriteDeadline(t time.Time) error {
	c.set(&c.writing, t, func() {
		c.mu.Lock()
		stuck := c.writes > 0
		c.mu.Unlock()
		if stuck {
			_ = c.Close()
		}
	})
	return nil
}

func (c *clientConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// set begins a deadline anew. passed is called once it has passed.
func (c *clientConn) set(d *deadline, t time.Time, passed func()) {
	c.mu.Lock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.round++
	round := d.round
	left := time.Until(t)
	d.over = !t.IsZero() && left <= 0
	over := d.over
	if !t.IsZero() && !over && !c.isClosed {
		d.timer = time.AfterFunc(left, func() {
			c.mu.Lock()
			current := d.round == round
			d.over = d.over || current
			c.mu.Unlock()
			if current {
				passed()
			}
		})
	}
	c.mu.Unlock()
	if over {
		passed()
	}
}

func (c *clientConn) LocalAddr() net.Addr  { return inside{} }
func (c *clientConn) RemoteAddr() net.Addr { return inside{} }

// inside is the address of every client: which of a run's processes asks is a claim
// that nobody can check.
type inside struct{}

func (inside) Network() string { return "stoma" }
func (inside) String() string  { return "inside" }

// replayed is a connection that begins with what was read of it already.
type replayed struct {
	net.Conn
	from io.Reader
}

func (r replayed) Read(p []byte) (int, error) { return r.from.Read(p) }
