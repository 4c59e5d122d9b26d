package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tendril/destination"
	"tendril/fault"
)

// connect answers a CONNECT, which is the first request on its connection. rest is what
// the client sends after it.
func (p *Proxy) connect(ctx context.Context, c *clientConn, rest io.Reader, h *head) {
	to, err := destination.ParseAuthority(h.target)
	var d *denial
	switch {
	case err != nil:
		d = unjudged(err)
	case h.host != "" && !names(h.host, destination.HTTPS, to):
		d = otherHost(h.host).of(h.method, to.String())
	}
	if d != nil {
		if p.misled(ctx, destination.Authority{}, d) == nil {
			d.send(c, h.accept)
		}
		return
	}
	if p.bytes.exhausted() {
		exhausted().of(h.method, to.String()).send(c, h.accept)
		return
	}
	p.requests.Add(1)
	verdict, err := p.gate.Connect(ctx, to)
	if err != nil {
		unjudged(err).of(h.method, to.String()).send(c, h.accept)
		return
	}
	outcome := Outcome{Failure: Refused}
	defer func() { verdict.done(outcome) }()
	switch {
	case !verdict.Allowed:
		deniedBy(verdict).of(h.method, to.String()).send(c, h.accept)
	case verdict.Inspect:
		outcome.Failure = p.inspect(ctx, c, rest, to)
	default:
		outcome = p.tunnel(ctx, c, rest, h, to, verdict)
	}
}

// established is the answer to a CONNECT that was permitted (RFC 9110, section 9.3.6).
const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// inspect ends TLS here. Each request in it is decided by itself.
func (p *Proxy) inspect(ctx context.Context, c *clientConn, rest io.Reader, to destination.Authority) Failure {
	if _, err := io.WriteString(c, established); err != nil {
		return Gone
	}
	opening, failure := p.hello(c, rest, to)
	if failure != "" {
		return failure
	}
	s := newSession(to, nil, c)
	below := &multiplexed{replayed{c, io.MultiReader(bytes.NewReader(opening), rest)}, s}
	secure := tls.Server(below, &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true, // a session is of one connection and one server
		GetCertificate: func(info *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return p.authority.Leaf(to.Host)
		},
	})
	defer secure.Close()
	deadline := time.Now().Add(p.limits.Header)
	_ = secure.SetDeadline(deadline)
	if err := secure.HandshakeContext(ctx); err != nil {
		return Hello
	}
	_ = secure.SetDeadline(time.Time{})
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		p.speak(secure)
		return ""
	}
	s.requests = newRequestReader(secure, p.limits.Header, func() { _ = c.Close() })
	defer s.requests.late.stop()
	p.speak(requested{secure, s.requests, s})
	return ""
}

// hello reads the ClientHello, and refuses one that does not mean the host.
func (p *Proxy) hello(c *clientConn, rest io.Reader, to destination.Authority) ([]byte, Failure) {
	_ = c.SetReadDeadline(time.Now().Add(p.limits.Header))
	raw, h, err := readHello(rest)
	_ = c.SetReadDeadline(time.Time{})
	if err == nil {
		err = h.check(to.Host)
	}
	switch {
	case fault.Is(err, fault.Denied):
		_, _ = c.Write(alert) // it is closed in any case
		return nil, Hello
	case err != nil:
		return nil, Gone
	}
	return raw, ""
}

// alert is a fatal one, unrecognized_name (RFC 8446, section 6.2; RFC 6066, section 3).
var alert = []byte{21, 3, 3, 0, 2, 2, 112}

// tunnel copies bytes both ways after the ClientHello.
func (p *Proxy) tunnel(ctx context.Context, c *clientConn, rest io.Reader, h *head, to destination.Authority, v Verdict) Outcome {
	upstream, err := p.upstreams.dial(ctx, to, v.Networks)
	if err != nil {
		d, failure := p.failed(ctx, err, to)
		d.of(h.method, to.String()).send(c, h.accept)
		return Outcome{Failure: failure}
	}
	defer upstream.Close()
	defer context.AfterFunc(ctx, func() { _ = upstream.Close() })()
	outcome := Outcome{Address: upstream.(*upstreamConn).address}
	if _, err := io.WriteString(c, established); err != nil {
		outcome.Failure = Gone
		return outcome
	}
	opening, failure := p.hello(c, rest, to)
	if outcome.Failure = failure; failure != "" {
		return outcome
	}
	var sent, received atomic.Int64
	outcome.Failure = p.exchange(c, io.MultiReader(bytes.NewReader(opening), rest), upstream, &sent, &received)
	outcome.Sent, outcome.Received = sent.Load(), received.Load()
	return outcome
}

// exchange copies both ways until both have ended, or one has failed. from is what the
// client sends.
func (p *Proxy) exchange(client io.WriteCloser, from io.Reader, upstream io.ReadWriteCloser, sent, received *atomic.Int64) Failure {
	var once sync.Once
	var failure Failure
	fail := func(f Failure, _ error) {
		if f == "" {
			return
		}
		once.Do(func() { failure = f })
		_ = client.Close()
		_ = upstream.Close()
	}
	var both sync.WaitGroup
	both.Go(func() {
		fail(carry(upstream, from, sent, Cut, Gone))
		closeWrite(upstream)
	})
	both.Go(func() {
		fail(carry(client, upstream, received, Gone, Cut))
		closeWrite(client)
	})
	both.Wait()
	if failure != "" && p.bytes.exhausted() {
		return Exhausted
	}
	return failure
}

// closeWrite ends one direction, or both where that is not possible.
func closeWrite(to io.Closer) {
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
}

// carry copies until the source ends. It says which side failed, and how.
func carry(to io.Writer, from io.Reader, count *atomic.Int64, writing, reading Failure) (Failure, error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		n, err := from.Read(*buffer)
		if n > 0 {
			if _, err := to.Write((*buffer)[:n]); err != nil {
				return writing, err
			}
			count.Add(int64(n))
		}
		switch {
		case err == io.EOF:
			return "", nil
		case err != nil:
			return reading, err
		}
	}
}

// buffers are for copying.
var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func exhausted() *denial {
	return refuse(http.StatusForbidden, ruleLimit, "the run has used all the bytes that it may")
}
