package model

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"tendril/budget"
	"tendril/fault"
)

// exchange is one request that is paid for, on its way to the provider and back.
type exchange struct {
	endpoint
	*request
	payment *payment
	most    int64 // output tokens that all answers can have; 0: not known
}

// The bounds of an answer.
const (
	mostAnswer = 16 << 20         // bytes of one that is no stream
	silence    = 10 * time.Minute // without an event of a stream, or before an answer

	// afterwards is for how long a provider may still report the usage of an answer whose
	// reader has left, and close a stream after its last event.
	afterwards = time.Second
)

// pass sends a request and gives its answer to the client.
func (r *Route) pass(w http.ResponseWriter, req *http.Request, release func(), x *exchange) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(req.Context()))
	defer cancel()
	stop := context.AfterFunc(req.Context(), func() { time.AfterFunc(afterwards, cancel) })
	defer stop()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()

	response, err := r.config.Upstream.RoundTrip(r.outgoing(ctx, req, x))
	if err != nil {
		r.refuse(w, errors.Join(upstreamFault(err), x.payment.close(ctx, Outcome{}, neverSent(err))))
		return
	}
	defer response.Body.Close()
	quiet.Reset(silence)
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch encoding := response.Header.Get("Content-Encoding"); {
	case encoding != "" && encoding != "identity":
		err = fault.New(fault.Unavailable, "the provider sent an answer in the encoding %q, which was not asked for", clip(encoding))
	case response.StatusCode < 200 || response.StatusCode >= 300 && response.StatusCode < 400:
		err = fault.New(fault.Unavailable, "the provider answered with status %d, and no redirect is followed", response.StatusCode)
	case response.StatusCode < 300 && media == "text/event-stream":
		x.request.body = nil
		release()
		r.stream(ctx, w, response, x, quiet)
		return
	}
	if err == nil {
		err = r.whole(ctx, w, response, x)
	}
	if err != nil {
		r.refuse(w, errors.Join(err, x.payment.close(ctx, Outcome{Status: response.StatusCode}, false)))
	}
}

// Unsent is what is in the chain of an upstream's error that knows whether its request has
// left. A refusal alone does not say so: an answer can be refused as well, and is billed.
type Unsent interface {
	error
	Unsent() bool // no byte of the request has left
}

// neverSent reports whether an error says that no byte of a request has left.
func neverSent(err error) bool {
	var unsent Unsent
	return errors.As(err, &unsent) && unsent.Unsent()
}

// upstreamFault keeps a refusal, and hides what else happens on the way: that names
// places of the host and of its network.
func upstreamFault(err error) error {
	if fault.Is(err, fault.Denied) {
		return err
	}
	return fault.New(fault.Unavailable, "the provider could not be reached, or did not answer")
}

// outgoing is the request as it is sent: nothing of the client's but what is named here.
func (r *Route) outgoing(ctx context.Context, req *http.Request, x *exchange) *http.Request {
	target := *r.config.Base
	target.Path = strings.TrimSuffix(target.Path, "/") + req.URL.Path
	target.RawQuery = req.URL.RawQuery
	out := (&http.Request{
		Method: http.MethodPost, URL: &target, Host: target.Host, Header: http.Header{}, ContentLength: int64(len(x.body)),
		Body: io.NopCloser(bytes.NewReader(x.body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	accept := "application/json"
	if x.request.stream {
		accept = "text/event-stream"
	}
	out.Header.Set("Accept", accept)
	out.Header.Set("Accept-Encoding", "identity") // what is compressed could not be counted
	out.Header.Set("Content-Type", "application/json")
	if agent := req.Header.Get("User-Agent"); agent != "" && len(agent) <= 256 {
		out.Header.Set("User-Agent", agent)
	} else {
		out.Header.Set("User-Agent", "tendril")
	}
	if r.config.Route == budget.Anthropic {
		out.Header.Set("Anthropic-Version", anthropicVersion)
		if known := slices.DeleteFunc(betas(req.Header), func(beta string) bool { return !x.dialect.betas[beta] }); len(known) > 0 {
			out.Header.Set("Anthropic-Beta", strings.Join(known, ","))
		}
	}
	return out
}

// anthropicVersion is the one that the dialect is of. There has been no other since.
const anthropicVersion = "2023-06-01"

// betas are the features that a client turns on by a header, in all its spellings.
func betas(header http.Header) []string {
	var names []string
	for _, line := range header.Values("Anthropic-Beta") {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// unknownBetas names those that are not passed on.
func (r *Route) unknownBetas(header http.Header, d dialect) []string {
	var unknown []string
	for _, beta := range betas(header) {
		if !d.betas[beta] && r.config.Route == budget.Anthropic {
			unknown = append(unknown, "anthropic-beta."+beta)
		}
	}
	return unknown
}

// copyHeader copies those headers of an answer that clients use.
func copyHeader(w http.ResponseWriter, from http.Header) {
	for name, values := range from {
		switch name {
		case "Content-Type", "Retry-After", "Retry-After-Ms", "X-Should-Retry", "Request-Id", "X-Request-Id":
		default:
			if !strings.HasPrefix(name, "Anthropic-Ratelimit-") && !strings.HasPrefix(name, "X-Ratelimit-") {
				continue
			}
		}
		w.Header()[name] = slices.Clone(values)
	}
}

// whole gives an answer that is no stream to the client, once it is paid for. An error
// means that nothing was given and nothing paid.
func (r *Route) whole(ctx context.Context, w http.ResponseWriter, response *http.Response, x *exchange) error {
	data, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer+1))
	if err != nil {
		return fault.New(fault.Unavailable, "the provider's answer broke off")
	}
	if len(data) > mostAnswer {
		return fault.New(fault.Unavailable, "the provider's answer is larger than %d bytes", mostAnswer)
	}
	o := Outcome{Status: response.StatusCode, Ended: true}
	var reported bool
	if response.StatusCode < 300 {
		m := &meter{}
		x.answer(m, data)
		o.Usage, o.Absurd, reported = m.usage, m.absurd, m.reported
	} else {
		reported = rejected(response.StatusCode)
	}
	if err := x.payment.close(ctx, o, reported); err != nil {
		return err
	}
	copyHeader(w, response.Header)
	w.WriteHeader(response.StatusCode)
	w.Write(data) // who is gone has paid as well
	return nil
}

// rejected reports whether a status says that a request was turned away before anything
// was generated, and so costs nothing: any error of the client's, and a provider that is
// overloaded (529 is Anthropic's). After any other failure nobody knows.
func rejected(status int) bool {
	return status >= 400 && status < 500 || status == http.StatusServiceUnavailable || status == 529
}

// errBeyond ends a stream whose text alone is more than was reserved for it. What is
// reported does not end one: it is settled, and the next request finds the limit.
var errBeyond = errors.New("the answer is longer than what was reserved for it")

// stream gives a stream to the client, event by event.
func (r *Route) stream(ctx context.Context, w http.ResponseWriter, response *http.Response, x *exchange, quiet *time.Timer) {
	copyHeader(w, response.Header)
	w.WriteHeader(response.StatusCode)
	control := http.NewResponseController(w)
	write := func(event []byte) {
		if _, err := w.Write(event); err == nil {
			control.Flush() // who is gone is noticed by req.Context, and the usage still read
		}
	}
	m := &meter{usage: budget.Usage{Input: -1}} // until an event says so
	o := Outcome{Status: response.StatusCode}
	err := events(response.Body, func(raw, data []byte) error {
		if m.ended {
			return nil // nothing belongs there
		}
		quiet.Reset(silence)
		m.extra = false
		if len(data) > 0 {
			x.event(m, data)
		}
		if !m.ended && x.most > 0 && m.least() > x.most {
			return errBeyond
		}
		if m.ended {
			o.Usage, o.Absurd, o.Ended = m.usage, m.absurd, true
			if err := x.payment.close(ctx, o, m.reported); err != nil {
				return err
			}
			quiet.Reset(afterwards)
		}
		if !m.extra || x.wantUsage {
			write(raw)
		}
		return nil
	})
	if m.ended && !errors.Is(err, notRecorded) {
		err = nil // all of it is there, however the connection ends
	}
	if !m.ended { // nothing is known but that it is no less than what was reported
		o.Usage, o.Absurd = m.usage, m.absurd
	}
	err = errors.Join(err, x.payment.close(ctx, o, m.reported && x.payment.within(m.usage)))
	switch {
	case err == nil:
	case errors.Is(err, errBeyond):
		r.exceeded(x.unit())
		write(x.failure(r.voice.usedUp(x.unit(), budget.OfRun)))
	default:
		// The client is to see that the answer is not whole: no last chunk is sent.
		panic(http.ErrAbortHandler)
	}
}

// unit is the limit that an answer beyond its bound runs into.
func (x *exchange) unit() budget.Unit {
	if limits := x.terms.Limits; limits.Run.Tokens == nil && limits.Day.Tokens == nil && (limits.Run.Spend != nil || limits.Day.Spend != nil) {
		return budget.Spend
	}
	return budget.Tokens
}
