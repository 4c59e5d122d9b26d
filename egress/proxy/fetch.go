package proxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"tendril/destination"
	"tendril/fault"
)

// mostRedirects are followed by a Fetch.
const mostRedirects = 10

// Fetched is what a Fetch wrote.
type Fetched struct {
	Digest [sha256.Size]byte
	Size   int64           // bytes
	Final  destination.URL // that answered with it
	Hops   int             // requests, of which all but the last were redirected
}

// Fetch gets a URL, following redirects, and writes what it answers with to w, as it
// came: nothing is decompressed. gate decides each hop, as it decides the requests of
// a client. A credential is attached as long as the hops stay at the first one's
// origin, and not after one that left it. Of more than most bytes, and of an answer
// that is cut, an error is returned; w has a part of it then.
//
// Faults: denied, if a hop is not permitted or there is more than there may be;
// invalid, if it leads to what is no URL; unavailable, if there is no answer, or one
// without the content.
func (p *Proxy) Fetch(ctx context.Context, gate Gate, url destination.URL, w io.Writer, most int64) (Fetched, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return Fetched{}, fault.New(fault.Unavailable, "the run is over")
	}
	p.calls.Add(1)
	p.mu.Unlock()
	defer p.calls.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	idle := time.AfterFunc(p.limits.Idle, cancel)
	defer idle.Stop()

	sink := &sink{to: w, digest: sha256.New(), most: most, alive: func() { idle.Reset(p.limits.Idle) }}
	home := true // at the origin that was asked for
	for hops := 1; ; hops++ {
		next, err := p.hop(ctx, gate, url, home, sink)
		switch {
		case err != nil:
			return Fetched{}, err
		case next == destination.URL{}:
			fetched := Fetched{Size: sink.size, Final: url, Hops: hops}
			sink.digest.Sum(fetched.Digest[:0])
			return fetched, nil
		case hops > mostRedirects:
			return Fetched{}, fault.New(fault.Denied, "%s leads to more than %d redirects", url.Origin(), mostRedirects).WithRule(ruleHTTP)
		}
		home = home && next.Origin() == url.Origin()
		url = next
	}
}

// hop makes one request of a Fetch. It returns where it is redirected to, or the zero
// URL after the content was written.
func (p *Proxy) hop(ctx context.Context, gate Gate, url destination.URL, home bool, to *sink) (next destination.URL, err error) {
	if p.bytes.exhausted() {
		return next, exhausted().fault
	}
	p.requests.Add(1)
	verdict, err := gate.Request(ctx, url, http.MethodGet)
	if err != nil {
		return next, err
	}
	var outcome Outcome
	var received atomic.Int64
	defer func() {
		outcome.Received = received.Load()
		verdict.done(outcome)
	}()
	if !verdict.Allowed {
		outcome.Failure = Refused
		return next, deniedBy(verdict).fault
	}
	if !home {
		verdict.Attach, verdict.Response = nil, nil
	}
	out, d := newRequest(ctx, http.MethodGet, url)
	var size int64
	if d == nil {
		out.Header.Set("Accept", "*/*")
		out.Header.Set("Accept-Encoding", "identity")
		out.Header.Set("User-Agent", "tendril")
		size = requestSize(out)
		d = attach(out, verdict, url)
	}
	if d != nil {
		outcome.Failure = NoCredential
		return next, d.fault
	}
	response, address, err := p.upstreams.roundTrip(out, verdict.Networks)
	if outcome.Address = address; address.IsValid() {
		outcome.Sent = size
	}
	if err != nil {
		d, outcome.Failure = p.failed(ctx, err, url.Authority())
		return next, d.fault
	}
	defer func() { _ = response.Body.Close() }() // which may have been replaced by then
	outcome.Status = response.StatusCode
	if d, failure := receive(response, verdict, &received); d != nil {
		outcome.Failure = failure
		return next, d.fault
	}
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if place := response.Header.Values("Location"); len(place) > 0 { // one: receive passes no more
			return resolve(url, place[0])
		}
	}
	if response.StatusCode/100 != 2 || response.StatusCode == http.StatusPartialContent {
		return next, fault.New(fault.Unavailable, "%s answers with status %d", url.Origin(), response.StatusCode)
	}
	if response.ContentLength > to.most {
		outcome.Failure = Refused
		return next, to.tooMuch()
	}
	var written atomic.Int64
	outcome.Failure, err = carry(to, response.Body, &written, Refused, Cut)
	if outcome.Failure == Cut {
		d, outcome.Failure = p.broken(ctx, err, url)
		err = d.fault
	}
	if outcome.Failure == Cut {
		err = fault.New(fault.Unavailable, "the answer of %s was cut after %d bytes", url.Authority(), written.Load()).WithRule(ruleUpstream)
	}
	return next, err
}

// sink takes what a Fetch gets, up to a bound.
type sink struct {
	to     io.Writer
	digest hash.Hash
	size   int64
	most   int64
	alive  func()
}

func (s *sink) tooMuch() error {
	return fault.New(fault.Denied, "there is more than the %d bytes that may be fetched", s.most).WithRule("limits.fetch")
}

func (s *sink) Write(p []byte) (int, error) {
	s.alive()
	if s.size += int64(len(p)); s.size > s.most {
		return 0, s.tooMuch()
	}
	_, _ = s.digest.Write(p) // a hash does not fail
	return s.to.Write(p)
}

// resolve returns the URL that a Location means at a URL (RFC 3986, section 5.2). The
// result goes through the one parser.
func resolve(at destination.URL, location string) (destination.URL, error) {
	end := strings.IndexAny(location, "/?#")
	if end < 0 {
		end = len(location)
	}
	directory := at.Path()[:strings.LastIndexByte(at.Path(), '/')+1]
	var text string
	switch {
	case strings.Contains(location[:end], ":"): // a scheme
		text = location
	case strings.HasPrefix(location, "//"):
		text = string(at.Scheme()) + ":" + location
	case strings.HasPrefix(location, "/"):
		text = at.Origin() + location
	case strings.HasPrefix(location, "?"):
		text = at.Origin() + at.Path() + location
	case location == "" || strings.HasPrefix(location, "#"):
		text = at.String()
	default:
		text = at.Origin() + directory + location
	}
	url, err := destination.Parse(text)
	if err != nil {
		var f *fault.Error
		errors.As(err, &f) // Parse returns nothing else
		return destination.URL{}, fault.New(fault.Denied, "%s redirects to what is no URL: %w", at.Origin(), f).WithRule(ruleHTTP)
	}
	return url, nil
}
