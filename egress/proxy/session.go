package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"

	"tendril/destination"
)

// session is what is known of a connection on which HTTP is spoken.
type session struct {
	// authority is the server that the client believes to speak to. The zero value:
	// the client knows that it asks a proxy.
	authority destination.Authority

	client   io.Closer      // the whole connection
	requests *requestReader // nil: the connection speaks HTTP/2
	served   int            // requests so far, of HTTP/1.1, where one follows another

	tasks sync.WaitGroup // the connection, and what handles its requests
	ended sync.Once
}

func newSession(authority destination.Authority, requests *requestReader, client io.Closer) *session {
	s := &session{authority: authority, requests: requests, client: client}
	s.tasks.Add(1)
	return s
}

// over says that nobody reads requests of the connection any more.
func (s *session) over() { s.ended.Do(s.tasks.Done) }

type sessionKey struct{}

func sessionFrom(ctx context.Context) *session { return ctx.Value(sessionKey{}).(*session) }

// requested is a connection whose bytes are requests of HTTP/1.1 that were checked.
type requested struct {
	net.Conn
	requests *requestReader
	session  *session
}

func (c requested) Read(p []byte) (int, error) { return c.requests.Read(p) }

// multiplexed is what lies below the TLS in which HTTP/2 is spoken.
type multiplexed struct {
	net.Conn
	session *session
}

// sessionOf returns the session of a connection that the server of HTTP was given.
func sessionOf(c net.Conn) *session {
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn().(*multiplexed).session
	}
	return c.(requested).session
}

// speak serves HTTP on a connection until it is over.
func (p *Proxy) speak(c net.Conn) {
	s := sessionOf(c)
	select {
	case p.incoming.conns <- c:
	case <-p.ctx.Done():
		s.over()
	}
	s.tasks.Wait()
}

// handle answers one request.
func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) {
	s := sessionFrom(r.Context())
	s.tasks.Add(1)
	defer s.tasks.Done()
	if s.requests != nil {
		s.served++
		if d := s.requests.refusal(s.served); d != nil {
			p.refuseMisled(w, r, s, d)
			return
		}
	}
	url, d := s.target(r)
	if d != nil {
		p.refuseMisled(w, r, s, d)
		return
	}
	p.forward(w, r, url)
}

// refuseMisled answers a request that is refused undecided, unless there were too many.
func (p *Proxy) refuseMisled(w http.ResponseWriter, r *http.Request, s *session, d *denial) {
	if p.misled(r.Context(), s.authority, d) != nil {
		_ = s.client.Close()
		panic(http.ErrAbortHandler)
	}
	d.answer(w, r)
}
