package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	neturl "net/url"
	"strings"
	"sync/atomic"

	"tendril/destination"
	"tendril/fault"
)

// outgoing returns the request as it leaves, with its credential.
func (f *forwarding) outgoing(upgrade bool) (*http.Request, *denial) {
	out, d := newRequest(f.r.Context(), f.r.Method, f.url)
	if d != nil {
		f.failure = Refused
		return nil, d
	}
	out.Header = passed(f.r.Header)
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // or net/http sends its own
	}
	if lists(f.r.Header, "Te", "trailers") {
		out.Header.Set("Te", "trailers") // gRPC insists on it
	}
	if upgrade {
		if f.r.ContentLength != 0 {
			f.failure = Refused
			return nil, malformed("a request for a WebSocket has a body")
		}
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", "websocket")
	}
	if f.r.ContentLength != 0 {
		f.body = &requestBody{from: f.r.Body}
		out.Body, out.GetBody, out.ContentLength = f.body, f.body.again, f.r.ContentLength
		if len(f.r.Trailer) > 0 {
			out.Trailer = http.Header{}
			for name := range f.r.Trailer {
				if mayTrail(name) {
					out.Trailer[name] = nil
				}
			}
			f.body.ended = func() {
				for name := range out.Trailer {
					out.Trailer[name] = f.r.Trailer[name]
				}
				f.body.sent.Add(fieldsSize(out.Trailer))
			}
		}
	}
	f.head = requestSize(out)
	if d := attach(out, f.verdict, f.url); d != nil {
		f.failure = NoCredential
		return nil, d
	}
	return out, nil
}

// newRequest returns a request whose target is exactly the one that was judged.
func newRequest(ctx context.Context, method string, url destination.URL) (*http.Request, *denial) {
	parsed, err := neturl.Parse(url.String())
	if err != nil || parsed.RequestURI() != url.Target() {
		return nil, malformed("the URL has no form that all parsers agree on")
	}
	out := &http.Request{
		Method: method,
		URL:    parsed,
		Host:   strings.TrimPrefix(url.Origin(), string(url.Scheme())+"://"),
		Header: http.Header{},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody,
	}
	return out.WithContext(ctx), nil
}

// attach puts the credential on a request that was decided. Beside one, nothing that
// the agent brought to authenticate itself goes over plain text.
func attach(out *http.Request, v Verdict, url destination.URL) *denial {
	if v.Attach == nil {
		return nil
	}
	if url.Scheme() == destination.HTTP {
		out.Header.Del("Authorization")
		out.Header.Del("Cookie")
	}
	err := v.Attach(out.Context(), out)
	var f *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f) && f.Kind == fault.Denied:
		return &denial{status: http.StatusForbidden, fault: f}
	default: // its text may say too much
		return refuse(http.StatusServiceUnavailable, ruleCredential, "the credential for this destination is not available")
	}
}

// requestBody is what a client sends, on its way to the upstream.
type requestBody struct {
	from  io.ReadCloser
	ended func() // is called before the end is passed on, when the trailer is known
	sent  atomic.Int64
	begun atomic.Bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.begun.Store(true)
	n, err := b.from.Read(p)
	b.sent.Add(int64(n))
	if err == io.EOF && b.ended != nil {
		b.ended()
	}
	return n, err
}

// Close does nothing: the server of the request closes its body.
func (b *requestBody) Close() error { return nil }

// again is for a request that net/http wants to send once more, because the connection
// was closed under it. It may, as long as nothing of the body was used.
func (b *requestBody) again() (io.ReadCloser, error) {
	if b.begun.Load() {
		return nil, errors.New("a body is sent once")
	}
	return b, nil
}
