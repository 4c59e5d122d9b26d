// Package proxy is the way out of a Terrarium: an HTTP proxy that asks before each
// request, and ends TLS itself so that there is something to ask about.
//
// It promises that nothing leaves that was not decided: each request of each
// connection, by the one form of its URL, which is also what is sent; that a server is
// spoken to only at an address that the [Dialer] permitted, and over TLS only with a
// certificate that proves its name; that the names of the server in a CONNECT, in TLS
// and in each request are the same; that what two readers may read in two ways is
// refused; that an answer that was cut does not look whole; and that memory, time and
// connections are bounded, whatever the client or the server does.
//
// What it does not protect against: what a permitted server does with what it is told.
// In a tunnel (a verdict without Inspect) and in a WebSocket nobody looks at the
// bytes. Of a tunnel only the first ClientHello is checked: a server that answers with
// a HelloRetryRequest could be told another name in the second one.
package proxy

import (
	"context"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tendril/destination"
	"tendril/egress/authority"
)

// Limits are the bounds of one run. A zero field has its default.
type Limits struct {
	Connections int           // of clients, at the same time; 128
	Requests    int           // that are under way at the same time; more wait; 256
	Header      time.Duration // from the first byte of a head, or of TLS, to its last; 10 s
	Idle        time.Duration // of a connection on which no byte moves; 5 min
	Bytes       int64         // to and from upstreams, in sum; no limit
}

// Config is what a Proxy needs. All of it but Roots and Limits must be there.
type Config struct {
	Gate      Gate
	Dialer    Dialer
	Authority *authority.Authority
	Roots     []*x509.Certificate // trusted beside the system's
	Limits    Limits
}

// Stats are the counts of one run so far. Bytes are those on the wire to and from
// upstreams, TLS included.
type Stats struct {
	Connections int64 // of clients, that are open
	Requests    int64 // that were decided
	Sent        int64
	Received    int64
}

// Proxy serves the connections of one run. Its methods are safe for concurrent use.
type Proxy struct {
	gate      Gate
	authority *authority.Authority
	limits    Limits
	bytes     *meter
	upstreams *upstreams

	server   *http.Server
	incoming queue
	slots    chan struct{} // of requests

	ctx      context.Context
	end      context.CancelFunc
	requests atomic.Int64

	mu     sync.Mutex
	conns  map[*clientConn]struct{}
	closed bool
	calls  sync.WaitGroup // of Serve and Fetch
	own    sync.WaitGroup // goroutines of the proxy itself
}

// New returns a proxy for one run, which has to be closed.
func New(c Config) (*Proxy, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	for _, root := range c.Roots {
		roots.AddCert(root)
	}
	limits := c.Limits
	orDefault(&limits.Connections, 128)
	orDefault(&limits.Requests, 256)
	orDefault(&limits.Header, 10*time.Second)
	orDefault(&limits.Idle, 5*time.Minute)
	ctx, end := context.WithCancel(context.Background())
	p := &Proxy{
		gate:      c.Gate,
		authority: c.Authority,
		limits:    limits,
		bytes:     newMeter(limits.Bytes),
		incoming:  queue{conns: make(chan net.Conn), closed: ctx.Done()},
		slots:     make(chan struct{}, limits.Requests),
		ctx:       ctx,
		end:       end,
		conns:     map[*clientConn]struct{}{},
	}
	p.upstreams = &upstreams{
		dialer:     c.Dialer,
		roots:      roots,
		bytes:      p.bytes,
		ctx:        ctx,
		transports: map[string]*http.Transport{},
		open:       map[*upstreamConn]struct{}{},
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	p.server = &http.Server{
		Handler:                      http.HandlerFunc(p.handle),
		DisableGeneralOptionsHandler: true,
		IdleTimeout:                  limits.Idle,
		MaxHeaderBytes:               longestHead,
		Protocols:                    protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          64,
			MaxReceiveBufferPerConnection: 64 << 10,
			MaxReceiveBufferPerStream:     64 << 10,
			MaxReadFrameSize:              16 << 10,
			WriteByteTimeout:              limits.Idle,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, sessionKey{}, sessionOf(c))
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				sessionOf(c).over()
			}
		},
		ErrorLog: log.New(io.Discard, "", 0), // what a client sends is no news
	}
	p.own.Go(func() { _ = p.server.Serve(p.incoming) }) // ends when p does
	p.own.Go(func() {
		select {
		case <-p.bytes.over:
			p.upstreams.cut()
		case <-ctx.Done():
		}
	})
	return p, nil
}

func orDefault[T int | time.Duration](limit *T, value T) {
	if *limit == 0 {
		*limit = value
	}
}

// Serve serves one connection until it is over, ctx ends or the proxy is closed, and
// closes it.
func (p *Proxy) Serve(ctx context.Context, conn Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := newConn(conn, p.limits.Idle, cancel)
	defer c.finish()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	leave, ok := p.enter(c)
	if !ok {
		return
	}
	defer leave()

	requests := newRequestReader(c, p.limits.Header, func() { _ = c.Close() })
	defer requests.late.stop()
	first, err := requests.begin()
	switch {
	case err != nil:
	case first != nil && first.method == http.MethodConnect:
		p.connect(ctx, c, requests.source, first)
	default:
		p.speak(requested{c, requests, newSession(destination.Authority{}, requests, c)})
	}
}

// enter takes a connection in, unless there are too many or the proxy is closed.
func (p *Proxy) enter(c *clientConn) (leave func(), ok bool) {
	p.mu.Lock()
	if closed, full := p.closed, len(p.conns) >= p.limits.Connections; closed || full {
		p.mu.Unlock()
		if full && !closed {
			late := time.AfterFunc(time.Second, func() { _ = c.Close() })
			defer late.Stop()
			refuse(http.StatusServiceUnavailable, ruleLimit, "%d connections are open already", p.limits.Connections).send(c, "")
		}
		return nil, false
	}
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	p.calls.Add(1)
	return func() {
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
		p.calls.Done()
	}, true
}

// Exhausted is closed once the run has used all the bytes that it may. All streams are
// ended then, and every request is refused.
func (p *Proxy) Exhausted() <-chan struct{} { return p.bytes.over }

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Connections: int64(len(p.conns)),
		Requests:    p.requests.Load(),
		Sent:        p.bytes.sent.Load(),
		Received:    p.bytes.received.Load(),
	}
}

// Close ends all connections and waits for whatever the proxy began.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	conns := make([]*clientConn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	p.end()
	for _, c := range conns {
		_ = c.Close()
	}
	p.calls.Wait()
	p.upstreams.close()
	_ = p.server.Close()
	p.own.Wait()
}

// queue is a listener whose connections are handed to it.
type queue struct {
	conns  chan net.Conn
	closed <-chan struct{}
}

func (q queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q queue) Close() error   { return nil }
func (q queue) Addr() net.Addr { return inside{} }
