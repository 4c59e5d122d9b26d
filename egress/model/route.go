// Package model is the way of model requests out of a Terrarium: Anthropic's Messages,
// and OpenAI's Chat Completions and Responses, at a loopback address inside.
//
// It promises that only requests to generate an answer pass, that nothing passes in them
// that is not known or granted, that what a request can come to is reserved before its
// first byte leaves and settled on what the provider reports, and that memory stays
// bounded whatever either side sends. It decides about no destination, dials nothing and
// holds no credential: that is for the [http.RoundTripper] that it is given.
//
// It does not judge what is said: whatever a Sprout can read, it can tell its model. And
// it believes the provider's report of what was used, which is what will be billed, unless
// the request cannot have come to that by any reading.
package model

import (
	"context"
	"errors"
	"io"
	"log"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"tendril/budget"
	"tendril/fault"
)

// Call is a model request that is about to be sent.
type Call struct {
	Route    budget.Route
	Endpoint string // its path
	Model    string
	Bound    budget.Amount // the most that it can come to
	Limits   budget.Limits // those that it has to keep within
	Removed  []string      // names of what was taken out of it, at most 64
}

// Outcome is what became of a call.
type Outcome struct {
	Status int           // of the provider's answer; 0: there was none
	Usage  budget.Usage  // as reported; of a call that is kept, nothing
	Came   budget.Amount // what it came to
	Ended  bool          // the answer came whole
	Absurd bool          // a usage was reported that the call cannot have come to; it is kept
}

// Accounts pays for calls, durably. It is used by several goroutines at once.
type Accounts interface {
	// Reserve sets the bound of a call aside, within its limits. A refusal is a fault of the kind denied,
	// with a [*budget.Exceeded] as its cause where a limit refuses. Nothing is sent after
	// any error.
	Reserve(ctx context.Context, c Call) (id int64, err error)
	// Settle replaces what is reserved by what a call came to.
	Settle(ctx context.Context, id int64, o Outcome) error
	// Keep leaves it reserved for good, because nobody reported what the call came to.
	Keep(ctx context.Context, id int64, o Outcome) error
	// Refused records that a route refused a request before Reserve was asked: it says
	// why, and of the call there is as much as was known by then.
	Refused(ctx context.Context, c Call, why *fault.Error) error
}

// Terms are what a grant says of a route.
type Terms struct {
	Permit Permit
	Limits budget.Limits
}

// Config is what a route is made of.
type Config struct {
	Route budget.Route

	// Base is the provider: scheme and authority, and what its paths begin with, if
	// anything. Nil: the provider's own.
	Base *url.URL

	// Upstream decides about a request, attaches the credential and sends it. A refusal
	// is a fault of the kind denied. It follows no redirects and retries nothing. What it
	// fails with keeps the reservation, unless [Unsent] is in its chain and says yes.
	Upstream http.RoundTripper

	Accounts Accounts
	Prices   budget.Prices
	Fields   Fields

	// Terms are asked for with each request. An error that is a fault refuses it.
	Terms func() (Terms, error)

	// Exceeded is told that a limit leaves no room for a call, or that an answer went
	// beyond what was reserved for it: time to stop the run. It may be called more than
	// once, and must not block. May be nil.
	Exceeded func(budget.Unit)
}

// Route serves the requests of one run to one provider. It is an [http.Handler], safe
// for concurrent use.
type Route struct {
	config    Config
	voice     voice
	endpoints map[string]endpoint
	room      room

	paying  sync.Mutex
	open    int           // calls that are reserved, and neither settled nor kept
	changed chan struct{} // closed when one of them is
}

// endpoint is one path that is passed on.
type endpoint struct {
	form
	dialect dialect
	answer  func(m *meter, data []byte) // reads the usage of one that is no stream
	event   func(m *meter, data []byte)
	failure func(r refusal) []byte // within a stream
}

// New makes a route. A configuration that makes none is a fault.
func New(c Config) (*Route, error) {
	r := &Route{config: c, room: newRoom(), changed: make(chan struct{})}
	base := ""
	switch c.Route {
	case budget.Anthropic:
		base, r.voice = "https://api.anthropic.com", anthropicVoice
		output := []string{"max_tokens"}
		r.endpoints = map[string]endpoint{
			"/v1/messages":              {form{output: output, counted: true}, c.Fields.anthropic, anthropicBody, anthropicEvent, r.voice.event},
			"/v1/messages/count_tokens": {form{output: output}, c.Fields.anthropic, anthropicBody, anthropicEvent, r.voice.event},
		}
	case budget.OpenAI:
		base, r.voice = "https://api.openai.com", openaiVoice
		r.endpoints = map[string]endpoint{
			"/v1/chat/completions": {form{output: []string{"max_tokens", "max_completion_tokens"}, copies: true, usage: true, store: true, counted: true},
				c.Fields.chat, chatBody, chatEvent, r.voice.event},
			"/v1/responses": {form{output: []string{"max_output_tokens"}, store: true, counted: true},
				c.Fields.responses, responsesBody, responsesEvent, responsesEventError},
		}
	default:
		return nil, fault.New(fault.Internal, "%q is not a model route", c.Route)
	}
	if r.config.Base == nil {
		r.config.Base, _ = url.Parse(base)
	}
	if c.Upstream == nil || c.Accounts == nil || c.Terms == nil {
		return nil, fault.New(fault.Internal, "the route %s leads nowhere, or nobody pays for it or permits it", c.Route)
	}
	return r, nil
}

// The bounds of a connection from inside.
const (
	headerTimeout = 30 * time.Second
	bodyTimeout   = 2 * time.Minute
	idleTimeout   = 10 * time.Minute
	mostHeader    = 64 << 10
)

// Server returns a server of the route with its bounds, for the connections of one run.
// Whoever serves it shuts it down.
func (r *Route) Server() *http.Server {
	var one http.Protocols
	one.SetHTTP1(true)
	return &http.Server{
		Handler: r, Protocols: &one, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader,
		ErrorLog: log.New(io.Discard, "", 0), // it would hold what a Sprout wrote
	}
}

// ServeHTTP answers a request from inside.
func (r *Route) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := req.URL.Path
	if req.Method == http.MethodGet && (path == modelsPath || strings.HasPrefix(path, modelsPath+"/")) {
		r.listModels(w, strings.TrimPrefix(strings.TrimPrefix(path, modelsPath), "/"))
		return
	}
	e, ok := r.endpoints[path]
	if !ok || req.Method != http.MethodPost {
		var served []string
		for path := range r.endpoints {
			served = append(served, "POST "+path)
		}
		slices.Sort(served)
		err := fault.New(fault.NotFound, "%s %s is not served", printable(req.Method), clip(path)).
			WithHint("this route serves %s and GET %s", strings.Join(served, ", "), modelsPath)
		r.refuse(w, r.refused(req.Context(), Call{}, err))
		return
	}
	release, q, err := r.read(w, req, e)
	if err != nil {
		r.refuse(w, r.refused(req.Context(), Call{Endpoint: path}, err))
		return
	}
	defer release()
	p, err := r.pay(req.Context(), path, e, q)
	if err != nil {
		r.refuse(w, err)
		return
	}
	r.pass(w, req, release, &exchange{endpoint: e, request: q, payment: p, most: r.config.Prices.MostOutput(r.budgetOf(q))})
}

func (r *Route) refuse(w http.ResponseWriter, err error) { r.voice.refuse(w, r.voice.refusalOf(err)) }

// refused records that a request was refused, and returns what is said of it inside. What
// is no fault refuses nothing: its client has left.
func (r *Route) refused(ctx context.Context, c Call, err error) error {
	var why *fault.Error
	if !errors.As(err, &why) {
		return err
	}
	c.Route = r.config.Route
	switch lost := r.config.Accounts.Refused(ctx, c, why); {
	case lost == nil:
		return err
	case fault.Is(lost, fault.Denied):
		return lost
	}
	return notRecorded
}

// read reads a client's request and makes the one that is sent. What it holds is to be
// released.
func (r *Route) read(w http.ResponseWriter, req *http.Request, e endpoint) (release func(), q *request, err error) {
	media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || media != "application/json" || req.Header.Get("Content-Encoding") != "" {
		return nil, nil, fault.New(fault.Invalid, "the request is not plain application/json").
			WithHint("send JSON without a Content-Encoding")
	}
	if query := req.URL.RawQuery; query != "" && (query != "beta=true" || r.config.Route != budget.Anthropic) {
		return nil, nil, fault.New(fault.Invalid, "the query %q is not passed on", clip(query))
	}
	size := req.ContentLength
	if size < 0 {
		size = MostBody
	}
	if size > MostBody {
		return nil, nil, tooLarge(&http.MaxBytesError{Limit: MostBody})
	}
	release, err = r.room.acquire(req.Context(), size)
	if err != nil {
		return nil, nil, err
	}
	if q, err = r.readBody(w, req, e); err != nil {
		release()
		return nil, nil, err
	}
	return release, q, nil
}

func (r *Route) readBody(w http.ResponseWriter, req *http.Request, e endpoint) (*request, error) {
	// A connection without deadlines, as tests have, is one whose owner watches it.
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(bodyTimeout)); err == nil {
		defer control.SetReadDeadline(time.Time{})
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MostBody))
	if err != nil {
		return nil, tooLarge(err)
	}
	terms, err := r.terms() // those of now, when all of it is there
	if err != nil {
		return nil, err
	}
	q, err := read(body, e.dialect.permitting(terms.Permit), e.form, terms.Permit, r.unknownBetas(req.Header, e.dialect))
	if err != nil {
		return nil, err
	}
	q.terms = terms
	return q, nil
}

func (r *Route) terms() (Terms, error) {
	terms, err := r.config.Terms()
	if err == nil {
		err = terms.Permit.Check()
	}
	return terms, err
}

// tooLarge is the fault of a body that could not be read to its end.
func tooLarge(err error) error {
	return fault.New(fault.Invalid, "read the request: %w", err).WithHint("a request has at most %d MiB", MostBody>>20)
}

func (r *Route) budgetOf(q *request) budget.Request {
	return budget.Request{Route: r.config.Route, Model: q.model, Input: q.input, Output: q.output, Copies: q.copies}
}
