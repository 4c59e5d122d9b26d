package proxy

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"tendril/destination"
	"tendril/fault"
)

// RoundTripper sends the requests of a program of the Stem's own on the same way as those
// of a client: gate decides each, and what it decided is what is sent. Redirects are
// answers like others, and nothing is sent twice. A refusal is a fault of the kind denied;
// no answer, or one that must not come back, is unavailable or denied. An error has
// Unsent() bool in its chain, and that is true, if and only if no byte of the request can
// have left: it never had a connection. The body of an answer has to be closed; until then
// the request is under way.
func (p *Proxy) RoundTripper(gate Gate) http.RoundTripper { return roundTripper{p, gate} }

type roundTripper struct {
	proxy *Proxy
	gate  Gate
}

// unsent is the error of a request that never had a connection to leave by.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }
func (unsent) Unsent() bool    { return true }

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	response, err := t.enter(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})))
	if err != nil && !connected.Load() {
		err = unsent{err}
	}
	return response, err
}

// enter waits for its turn and sends.
func (t roundTripper) enter(r *http.Request) (*http.Response, error) {
	p, ctx := t.proxy, r.Context()
	url, err := destination.Parse(r.URL.String())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, fault.New(fault.Unavailable, "the run is over")
	}
	p.calls.Add(1)
	p.mu.Unlock()
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		p.calls.Done()
		return nil, ctx.Err()
	}
	leave := sync.OnceFunc(func() {
		<-p.slots
		p.calls.Done()
	})
	response, err := t.send(r, url, leave)
	if err != nil {
		leave()
	}
	return response, err
}

// send decides and sends. With an answer, leave is called when its body is closed.
func (t roundTripper) send(r *http.Request, url destination.URL, leave func()) (*http.Response, error) {
	p, ctx := t.proxy, r.Context()
	if p.bytes.exhausted() {
		return nil, exhausted().fault
	}
	p.requests.Add(1)
	verdict, err := t.gate.Request(ctx, url, r.Method)
	if err != nil {
		return nil, err
	}
	f := &forwarding{proxy: p, r: r, url: url, verdict: verdict}
	end := sync.OnceFunc(func() {
		verdict.done(f.outcome())
		leave()
	})
	refuse := func(d *denial) (*http.Response, error) {
		end()
		return nil, d.fault
	}
	if !verdict.Allowed {
		f.failure = Refused
		return refuse(deniedBy(verdict))
	}
	out, d := f.outgoing(false)
	if d != nil {
		return refuse(d)
	}
	response, address, err := p.upstreams.roundTrip(out, verdict.Networks)
	f.address = address
	if err != nil {
		d, f.failure = p.failed(ctx, err, url.Authority())
		return refuse(d)
	}
	f.status = response.StatusCode
	if d, failure := receive(response, verdict, &f.received); d != nil {
		_ = response.Body.Close()
		f.failure = failure
		return refuse(d)
	}
	response.Header = passed(response.Header)
	response.Body = &answered{response.Body, f, end}
	return response, nil
}

// answered is the body of an answer, whose end is the end of the request.
type answered struct {
	io.ReadCloser
	f   *forwarding
	end func()
}

func (a *answered) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		var d *denial
		d, a.f.failure = a.f.proxy.broken(a.f.r.Context(), err, a.f.url)
		err = d.fault
	}
	return n, err
}

func (a *answered) Close() error {
	err := a.ReadCloser.Close()
	a.end()
	return err
}
