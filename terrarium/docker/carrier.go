//go:build linux

package docker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"tendril/terrarium/confine"
)

// carrier is the Stoma's byte stream: the standard streams of a container, on one
// connection. What comes out is in frames of eight bytes and a payload (the first byte
// says which stream, the last four how long); what the guest half says on stderr is a
// diagnosis and kept apart.
type carrier struct {
	conn   net.Conn
	out    io.Reader
	stderr *confine.Tail

	left int // bytes of stdout until the next frame
}

const (
	frameHeader = 8
	frameStdout = 1
	frameStderr = 2
)

// maxFrame bounds the frames that a daemon may send: each of its own is no larger than
// what it reads at a time.
const maxFrame = 64 << 20

func (c *carrier) Write(p []byte) (int, error) { return c.conn.Write(p) }
func (c *carrier) Close() error                { return c.conn.Close() }

// Read is called by one goroutine.
func (c *carrier) Read(p []byte) (int, error) {
	for c.left == 0 {
		kind, size, err := readFrame(c.out)
		if err != nil {
			return 0, err
		}
		switch kind {
		case frameStdout:
			c.left = size
		case frameStderr:
			if _, err := io.CopyN(c.stderr, c.out, int64(size)); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("a frame of a stream %d, which a container has not", kind)
		}
	}
	n, err := c.out.Read(p[:min(len(p), c.left)])
	c.left -= n
	if err == io.EOF && c.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func readFrame(r io.Reader) (kind byte, size int, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(header[4:])
	if n > maxFrame {
		return 0, 0, errors.New("a frame that no daemon sends")
	}
	return header[0], int(n), nil
}
