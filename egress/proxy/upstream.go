package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"time"

	"tendril/destination"
)

const (
	longestAnswerHeader = 64 << 10
	handshake           = 10 * time.Second // with an upstream
	keptIdle            = 60 * time.Second // an upstream connection that is not used
)

var errExhausted = errors.New("the run has used all the bytes that it may")

// upstreams are the connections of one run to servers. They are shared within the run,
// by origin, and among decisions that permit the same networks.
type upstreams struct {
	dialer Dialer
	roots  *x509.CertPool
	bytes  *meter
	ctx    context.Context // of the run

	mu         sync.Mutex
	transports map[string]*http.Transport // by networks
	open       map[*upstreamConn]struct{}
	closed     bool
	tasks      sync.WaitGroup // dials, and connections that are open
}

// roundTrip sends a request and returns the answer's header, and the address that was
// spoken to, which is known also when it fails after that.
func (u *upstreams) roundTrip(r *http.Request, networks []netip.Prefix) (*http.Response, netip.AddrPort, error) {
	transport, err := u.transport(networks)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	var mu sync.Mutex
	var address netip.AddrPort
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn := info.Conn
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		if own, ok := conn.(*upstreamConn); ok {
			mu.Lock()
			defer mu.Unlock()
			address = own.address
		}
	}}
	response, err := transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	mu.Lock()
	defer mu.Unlock()
	return response, address, err
}

func (u *upstreams) transport(networks []netip.Prefix) (*http.Transport, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, net.ErrClosed
	}
	key := fmt.Sprint(networks)
	if known, ok := u.transports[key]; ok {
		return known, nil
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		Proxy: nil, // whatever the environment says
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			to, err := destination.ParseAuthority(address)
			if err != nil {
				return nil, err
			}
			return u.dial(ctx, to, networks)
		},
		TLSClientConfig:        &tls.Config{RootCAs: u.roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    handshake,
		DisableCompression:     true,
		Protocols:              protocols,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        keptIdle,
		MaxResponseHeaderBytes: longestAnswerHeader,
		ExpectContinueTimeout:  time.Second,
		WriteBufferSize:        16 << 10,
		ReadBufferSize:         16 << 10,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:     512 << 10,
			MaxReceiveBufferPerConnection: 2 << 20,
		},
	}
	u.transports[key] = transport
	return transport, nil
}

// dial connects to what was permitted, for as long as the run goes on.
func (u *upstreams) dial(ctx context.Context, to destination.Authority, networks []netip.Prefix) (net.Conn, error) {
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return nil, net.ErrClosed
	}
	u.tasks.Add(1)
	u.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.ctx, cancel)()
	conn, address, err := u.dialer.Dial(ctx, to, networks)
	if err != nil {
		u.tasks.Done()
		return nil, err
	}
	own := &upstreamConn{Conn: conn, address: address, of: u}
	u.mu.Lock()
	u.open[own] = struct{}{}
	closed := u.closed || u.bytes.exhausted()
	u.mu.Unlock()
	if closed {
		_ = own.Close()
		return nil, errExhausted
	}
	return own, nil
}

// cut ends all connections that are open.
func (u *upstreams) cut() {
	u.mu.Lock()
	var open []*upstreamConn
	for conn := range u.open {
		open = append(open, conn)
	}
	u.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// close ends everything and waits for it.
func (u *upstreams) close() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.cut()
	u.tasks.Wait()
	for _, transport := range u.transports {
		transport.CloseIdleConnections()
	}
}

// upstreamConn counts every byte that leaves or comes in, and ends when there have been
// too many.
type upstreamConn struct {
	net.Conn
	address netip.AddrPort
	of      *upstreams
	closing sync.Once
}

func (c *upstreamConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.of.bytes.receive(n) {
		return 0, errExhausted
	}
	return n, err
}

func (c *upstreamConn) Write(p []byte) (int, error) {
	if !c.of.bytes.send(len(p)) {
		return 0, errExhausted
	}
	return c.Conn.Write(p)
}

// CloseWrite ends this side's bytes.
func (c *upstreamConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

func (c *upstreamConn) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		err = c.Conn.Close()
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
		c.of.tasks.Done()
	})
	return err
}
