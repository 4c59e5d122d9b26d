package sprout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// silence is how long a stream may say nothing. Models that think before they speak
// need minutes.
const silence = 10 * time.Minute

// An endpoint is where a provider's requests go.
type endpoint struct {
	url     string
	header  http.Header
	client  *http.Client
	silence time.Duration
}

// newEndpoint takes a base URL of the loopback alone: inside a Terrarium the model is
// there, and the key that a request carries is none.
func newEndpoint(base, path string, header http.Header) (*endpoint, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" || !loopback(u.Hostname()) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the base URL is no http URL of the loopback: the Sprout works inside a Terrarium, where the model's route is")
	}
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "text/event-stream")
	return &endpoint{
		url: strings.TrimRight(base, "/") + path, header: header, silence: silence,
		client: &http.Client{
			// No proxy: it would be a detour to the same Stem. One connection a request is
			// cheap on the loopback, and leaves nothing to close.
			Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
	}, nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// stream posts the body and hands over each event until take says that the answer is
// whole. A stream that ends before that broke off.
func (e *endpoint) stream(ctx context.Context, body any, take func(event) (whole bool, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(e.silence, func() { cancel(fmt.Errorf("it said nothing for %s", e.silence)) })
	defer timer.Stop()

	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return fail(refused, "write the request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, &text)
	if err != nil {
		return fail(refused, "make the request: %w", err)
	}
	request.Header = e.header.Clone()
	response, err := e.client.Do(request)
	if err != nil {
		return fail(busy, "ask the model: %w", cause(ctx, err))
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return refusal(response)
	}
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "text/event-stream" {
		return garbage("the answer is no event stream")
	}
	stream := newEvents(&watched{response.Body, timer, e.silence})
	for {
		ev, err := stream.next()
		switch {
		case errors.Is(err, errEndless):
			return garbage("%w", err)
		case err != nil:
			return fail(busy, "the answer broke off: %w", cause(ctx, err))
		}
		if whole, err := take(ev); whole || err != nil {
			return err
		}
	}
}

// cause is why the context ended, or err when it did not.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// watched puts the end of patience off while bytes come.
type watched struct {
	io.Reader
	timer   *time.Timer
	silence time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.timer.Reset(w.silence)
	}
	return n, err
}

// problem is the error object of both providers.
type problem struct {
	Type    string `json:"type"`
	Code    any    `json:"code"`
	Message string `json:"message"`
}

func (p problem) is(names ...string) bool {
	code, _ := p.Code.(string)
	return slices.Contains(names, p.Type) || code != "" && slices.Contains(names, code)
}

func refusal(r *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var body struct{ Error problem }
	if err != nil || json.Unmarshal(text, &body) != nil || body.Error.Message == "" {
		body.Error.Message = strings.ToValidUTF8(string(text), "?")
	}
	f := body.Error.failure(r.StatusCode)
	f.after = retryAfter(r.Header.Get("Retry-After"), time.Now())
	return f
}

// failure sorts a provider's error by what may be done about it. The status is 0 for
// one that came in the middle of a stream. A budget that is used up is
// insufficient_quota at OpenAI (with the status 429, which otherwise means to wait) and
// billing_error at Anthropic.
func (p problem) failure(status int) *failure {
	kind, message := refused, strings.ToLower(p.Message)
	switch {
	case p.is("insufficient_quota", "billing_error", "billing_hard_limit_reached"), status == http.StatusPaymentRequired:
		kind = spent
	case p.is("context_length_exceeded", "request_too_large"), status == http.StatusRequestEntityTooLarge,
		strings.Contains(message, "prompt is too long"), strings.Contains(message, "maximum context length"):
		kind = tooLong
	case status == 0 && !p.is("invalid_request_error", "authentication_error", "permission_error", "not_found_error"),
		status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		kind = busy
	}
	what := start(p.Message, 500)
	if what == "" {
		what = "it does not say why"
	}
	if status == 0 {
		return fail(kind, "the model's answer ended with an error: %s", what)
	}
	return fail(kind, "the model's server answered %d: %s", status, what)
}

// retryAfter reads RFC 9110 section 10.2.3: seconds or a date. It returns 0 for
// neither.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil && seconds >= 0 {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}
