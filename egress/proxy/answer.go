package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	neturl "net/url"
	"sync/atomic"
	"time"

	"tendril/destination"
	"tendril/fault"
)

// receive counts an answer, its body while that is read, and has the answer looked through.
func receive(response *http.Response, v Verdict, count *atomic.Int64) (*denial, Failure) {
	count.Add(responseSize(response))
	response.Body = &countedBody{ReadCloser: response.Body, response: response, count: count}
	if d := misleading(response); d != nil {
		return d, Refused
	}
	if v.Response == nil {
		return nil, ""
	}
	if err := v.Response(response); err != nil {
		return notPassed(err), Leak
	}
	return nil, ""
}

// misleading is the denial of an answer that clients take for different things, or that
// leads them away in a way that is none: to a proxy of the server's choice (305, RFC 9110,
// section 15.4.6), or with a password of the server's (section 4.2.4).
func misleading(response *http.Response) *denial {
	what := ""
	location := response.Header.Values("Location")
	switch {
	case len(location) > 1:
		what = "has more than one Location"
	case len(response.Header.Values("Content-Length")) > 1: // HTTP/2 passes them; HTTP/1.1 is framed by them
		what = "has more than one Content-Length"
	case response.StatusCode == http.StatusUseProxy:
		what = "names a proxy to use"
	case len(location) == 1:
		if to, err := neturl.Parse(location[0]); err == nil && to.User != nil {
			what = "redirects with a user's name or password in the URL"
		}
	}
	if what == "" {
		return nil
	}
	return &denial{status: http.StatusBadGateway, fault: fault.New(fault.Denied, "the answer %s, and was not passed on", what).WithRule(ruleHTTP)}
}

// notPassed is the denial of an answer in which something was found.
func notPassed(err error) *denial {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.Denied {
		return &denial{status: http.StatusBadGateway, fault: f}
	}
	return refuse(http.StatusBadGateway, ruleCredential, "the answer could not be looked through for the credential, and was not passed on")
}

// broken says why reading an answer's body failed.
func (p *Proxy) broken(ctx context.Context, err error, url destination.URL) (*denial, Failure) {
	var f *fault.Error
	// A permit that has ended is also a denial, and no leak.
	if errors.As(err, &f) && f.Kind == fault.Denied && !errors.Is(context.Cause(ctx), f) {
		return notPassed(err), Leak
	}
	d, failure := p.failed(ctx, err, url.Authority())
	if failure == Cut {
		d = refuse(http.StatusBadGateway, ruleUpstream, "the answer of %s was cut", url.Authority())
	}
	return d, failure
}

// answer passes an answer on. If it cannot be passed on whole, the client's stream is
// cut.
func (f *forwarding) answer(response *http.Response) {
	header := f.w.Header()
	for name, values := range passed(response.Header) {
		header[name] = values
	}
	if _, ok := header["Content-Type"]; !ok {
		header["Content-Type"] = nil // or net/http guesses one
	}
	if values := response.Header["Content-Length"]; values != nil {
		header["Content-Length"] = values
	}
	for name := range response.Trailer {
		if mayTrail(name) {
			header.Add("Trailer", name)
		}
	}
	f.w.WriteHeader(response.StatusCode)
	if response.ContentLength < 0 {
		_ = f.flush() // there may be nothing more for a long time
	}
	var passedOn atomic.Int64
	failure, err := carry(flushing{f}, response.Body, &passedOn, Gone, Cut)
	if failure == Cut {
		_, failure = f.proxy.broken(f.r.Context(), err, f.url)
	}
	if f.failure = failure; failure != "" {
		f.cut()
	}
	for name, values := range response.Trailer {
		if !mayTrail(name) {
			continue
		}
		for _, value := range values {
			header.Add(http.TrailerPrefix+name, value)
		}
	}
}

// cut ends the client's stream in a way that looks like no end of the answer. Nobody
// waits for the rest of the request.
func (f *forwarding) cut() {
	_ = http.NewResponseController(f.w).SetReadDeadline(time.Unix(1, 0))
	panic(http.ErrAbortHandler)
}

// flushing writes an answer's body so that nothing of it waits for more.
type flushing struct{ f *forwarding }

func (w flushing) Write(p []byte) (int, error) {
	n, err := w.f.w.Write(p)
	if err == nil {
		err = w.f.flush()
	}
	return n, err
}

func (f *forwarding) flush() error { return http.NewResponseController(f.w).Flush() }

// countedBody counts what is read of a body, and the trailer after it.
type countedBody struct {
	io.ReadCloser
	response *http.Response // nil after its end
	count    *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count.Add(int64(n))
	if err == io.EOF && b.response != nil {
		b.count.Add(fieldsSize(b.response.Trailer))
		b.response = nil
	}
	return n, err
}
