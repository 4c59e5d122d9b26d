// Package attach puts credentials into a request that was already permitted, and looks
// for them in what comes back.
//
// It promises that a secret goes only into a request that its binding covers, in the one
// place that the credential names, where it replaces whatever the Sprout had put; and
// that what package leak finds does not come back, in a header, a trailer, the body or
// an error. Whether the grant gives the credential is for its caller to know.
//
// What it does not protect against: the request goes to a transport, which keeps text
// that holds the secret for as long as it likes.
package attach

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"tendril/credential"
	"tendril/credential/leak"
	"tendril/destination"
	"tendril/fault"
)

// Source gives the secret of a credential as it is now. The caller closes it.
type Source interface {
	Read(ctx context.Context, c credential.Named) (credential.Secret, error)
}

// Exchange is one request and its response, with their credentials: first Attach, then
// whatever looks at what comes back, at last Close.
type Exchange struct {
	bound   []credential.Named
	source  Source
	leaked  func(name string)
	scanner *leak.Scanner // nil until Attach
}

// New returns the Exchange of a request that will carry the credentials. leaked is told
// the name of one whose secret came back.
func New(bound []credential.Named, source Source, leaked func(name string)) *Exchange {
	return &Exchange{bound: bound, source: source, leaked: leaked}
}

// Attach reads the secrets and puts them into the request, all or none. A binding that
// does not cover the request, as it would be sent, is a fault of the kind denied. Of
// the rest of the request it changes what would keep the response from being looked
// through: it asks for no content coding, and for no part of a representation.
func (e *Exchange) Attach(ctx context.Context, r *http.Request) error {
	to, err := target(r)
	if err != nil {
		return err
	}
	for _, c := range e.bound {
		if !c.Bind.Covers(to, r.Method) {
			return fault.New(fault.Denied, "the credential %s is not for this request: it is bound to %s", c.Name, c.Bind).
				WithRule("a credential goes only where it is bound to")
		}
	}
	secrets := map[credential.Name]credential.Secret{}
	defer func() {
		for _, secret := range secrets {
			secret.Close()
		}
	}()
	for _, c := range e.bound {
		if secrets[c.Name], err = e.source.Read(ctx, c); err != nil {
			return err
		}
	}
	changed := r.Clone(ctx)
	for _, c := range e.bound {
		if err := put(changed, c, string(secrets[c.Name].Bytes())); err != nil {
			return err
		}
	}
	changed.Header.Set("Accept-Encoding", "identity")
	remove(changed.Header, "Range")
	remove(changed.Header, "If-Range")
	r.URL, r.Header = changed.URL, changed.Header
	e.scanner = leak.NewScanner(secrets)
	return nil
}

// target is where the request goes. It has to be written in its one form, because that
// is what is judged, and its Host has to agree.
func target(r *http.Request) (destination.URL, error) {
	to, err := destination.Parse(r.URL.String())
	if err != nil {
		return destination.URL{}, err
	}
	host := to
	if r.Host != "" {
		if host, err = destination.Parse(string(to.Scheme()) + "://" + r.Host + "/"); err != nil {
			return destination.URL{}, err
		}
	}
	switch {
	case to.Target() != r.URL.RequestURI() || r.URL.Opaque != "":
		return destination.URL{}, fault.New(fault.Denied, "a credential is not attached to a request whose URL is not in its one form")
	case host.Origin() != to.Origin() || host.Path() != "/":
		return destination.URL{}, fault.New(fault.Denied, "a credential is not attached to a request for one host that goes to another")
	}
	return to, nil
}

// put writes the secret to its place.
func put(r *http.Request, c credential.Named, secret string) error {
	switch a := c.Attach; {
	case secret == "":
		return fault.New(fault.Internal, "the credential %s has no secret", c.Name)
	case a.Header != "":
		remove(r.Header, string(a.Header))
		r.Header.Set(string(a.Header), a.Template.Value(secret))
	case a.Basic != "":
		remove(r.Header, "Authorization")
		r.SetBasicAuth(string(a.Basic), secret)
	case a.Query != "":
		query, err := withParameter(r.URL.RawQuery, string(a.Query), secret)
		if err != nil {
			return err
		}
		r.URL.RawQuery, r.URL.ForceQuery = query, false
	default:
		return fault.New(fault.Internal, "the credential %s is attached nowhere", c.Name)
	}
	return nil
}

// remove takes a header away in whatever case it was written.
func remove(header http.Header, name string) {
	for other := range header {
		if strings.EqualFold(other, name) {
			delete(header, other)
		}
	}
}

// withParameter returns a query in which a parameter has the value and no other, at its
// end. Other parameters stay as they were written. Where a semicolon would give servers
// that take it for a separator (as HTML 4 had it) another value, the query is refused.
func withParameter(query, name, value string) (string, error) {
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		if isParameter(pair, name) || pair == "" {
			continue
		}
		for part := range strings.SplitSeq(pair, ";") {
			if isParameter(part, name) {
				return "", fault.New(fault.Denied, "the query has a second %s behind a semicolon", name).
					WithHint("leave it out; it is attached outside")
			}
		}
		kept = append(kept, pair)
	}
	// A plus sign is a space in forms and itself in URLs; %20 is a space in both.
	escaped := strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	return strings.Join(append(kept, name+"="+escaped), "&"), nil
}

// isParameter ignores case, because there are servers that do, and take the first.
func isParameter(pair, name string) bool {
	key, _, _ := strings.Cut(pair, "=")
	key, err := url.QueryUnescape(key)
	return err == nil && strings.EqualFold(key, name)
}

// Hide returns an error that may be shown and kept: the same, or one in its place that
// does not hold a secret.
func (e *Exchange) Hide(err error) error {
	if err == nil || e.scanner == nil {
		return err
	}
	if name, found := e.scanner.Find(err.Error()); found {
		return fault.New(fault.Unavailable, "the request failed, and why holds the secret of the credential %s", name)
	}
	return err
}

// Scan returns a reader of some part of a response that ends with an error before the
// first byte of a secret. Of a body, it has to be what comes without a content coding.
func (e *Exchange) Scan(from io.ReadCloser) io.ReadCloser {
	if e.scanner == nil {
		return failed{from}
	}
	return e.scanner.Body(from, e.leaked)
}

// failed is of a response to nothing that was asked.
type failed struct{ io.Closer }

func (failed) Read([]byte) (int, error) {
	return 0, fault.New(fault.Internal, "a response is looked through before anything was attached")
}

// Close overwrites what is kept of the secrets. What is still read through Scan ends
// with an error.
func (e *Exchange) Close() {
	if e.scanner != nil {
		e.scanner.Close()
	}
}
