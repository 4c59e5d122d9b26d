package proxy

import (
	"net/http"
	"net/netip"
	"sync/atomic"

	"tendril/destination"
)

// forward decides a request, and if it is permitted sends it on and its answer back.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, url destination.URL) {
	ctx := r.Context()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return
	}
	if p.bytes.exhausted() {
		exhausted().of(r.Method, url.String()).answer(w, r)
		return
	}
	p.requests.Add(1)
	verdict, err := p.gate.Request(ctx, url, r.Method)
	if err != nil {
		unjudged(err).of(r.Method, url.String()).answer(w, r)
		return
	}
	f := &forwarding{proxy: p, w: w, r: r, url: url, verdict: verdict}
	defer func() { // also when the answer is cut, which is a panic
		verdict.done(f.outcome())
	}()
	if d := f.run(); d != nil {
		d.of(r.Method, url.String()).answer(w, r)
	}
}

// forwarding is one request that was decided, on its way.
type forwarding struct {
	proxy   *Proxy
	w       http.ResponseWriter
	r       *http.Request
	url     destination.URL
	verdict Verdict

	head     int64        // size of the request's
	body     *requestBody // nil: there is none
	address  netip.AddrPort
	status   int
	received atomic.Int64
	failure  Failure
}

func (f *forwarding) outcome() Outcome {
	o := Outcome{Address: f.address, Status: f.status, Received: f.received.Load(), Failure: f.failure}
	if f.address.IsValid() {
		o.Sent = f.head
	}
	if f.body != nil {
		o.Sent += f.body.sent.Load()
	}
	return o
}

// run returns the denial that has to be answered, if nothing was answered yet.
func (f *forwarding) run() *denial {
	upgrade := isWebSocket(f.r)
	switch {
	case !f.verdict.Allowed:
		f.failure = Refused
		return deniedBy(f.verdict)
	case upgrade && !f.verdict.WebSocket:
		f.failure = Refused
		return refuse(http.StatusForbidden, ruleWebSocket, "the request is permitted, but not to become a WebSocket").
			hint("ask whoever granted this run to permit WebSockets there")
	}
	out, d := f.outgoing(upgrade)
	if d != nil {
		return d
	}
	// Without this, a server of HTTP/1.1 reads the rest of a request before the first
	// byte of its answer. HTTP/2 knows no other way, and says so with an error.
	_ = http.NewResponseController(f.w).EnableFullDuplex()
	response, address, err := f.proxy.upstreams.roundTrip(out, f.verdict.Networks)
	f.address = address
	if err != nil {
		if s := sessionFrom(f.r.Context()); s.requests != nil {
			if d := s.requests.brokenBody(); d != nil {
				f.failure = Gone
				return d
			}
		}
		d, f.failure = f.proxy.failed(f.r.Context(), err, f.url.Authority())
		return d
	}
	defer func() { _ = response.Body.Close() }() // which may have been replaced by then
	f.status = response.StatusCode
	switched := response.Body
	if d, failure := receive(response, f.verdict, &f.received); d != nil {
		f.failure = failure
		return d
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		return f.switchProtocols(response, switched)
	}
	f.answer(response)
	return nil
}
