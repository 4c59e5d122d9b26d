package proxy

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// ServeConn serves one connection from inside with a server of the Stem's own, until
// it is over or the server is closed, and closes it. idle bounds how long no byte moves.
func ServeConn(server *http.Server, conn Conn, idle time.Duration) {
	over := make(chan struct{})
	c := newConn(conn, idle, sync.OnceFunc(func() { close(over) }))
	defer c.finish()
	_ = server.Serve(&single{conn: c, over: over}) // ends with the connection
	_ = c.Close()
}

// single is a listener with one connection.
type single struct {
	conn  *clientConn
	over  chan struct{}
	taken bool
}

func (s *single) Accept() (net.Conn, error) {
	if !s.taken {
		s.taken = true
		return s.conn, nil
	}
	<-s.over
	return nil, net.ErrClosed
}

func (s *single) Close() error   { return s.conn.Close() }
func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }
