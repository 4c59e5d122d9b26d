package attach

import (
	"io"
	"net/http"
	"strings"

	"tendril/credential/leak"
	"tendril/fault"
)

// Response looks through a response: its header at once, its body and its trailer while
// they are read. The body is without its content coding afterwards, and the header says
// so. On an error, which is a fault of the kind denied, the body is closed and nothing
// of the response may go on.
func (e *Exchange) Response(r *http.Response) error {
	err := e.response(r)
	if err != nil {
		_ = r.Body.Close()
	}
	return err
}

func (e *Exchange) response(r *http.Response) error {
	if r.StatusCode == http.StatusSwitchingProtocols {
		return fault.New(fault.Denied, "the connection would go on in another protocol, in which nobody looks for the credential").
			WithRule("a response to a request with a credential is looked through, or does not pass")
	}
	// The names of a trailer that a header announces are in r.Trailer alone.
	if err := e.fields(r.Status+"\n"+text(r.Header)+text(r.Trailer), "the header of the response"); err != nil {
		return err
	}
	body := r.Body
	if codings := strings.Join(r.Header.Values("Content-Encoding"), ","); codings != "" && hasBody(r) {
		if r.StatusCode == http.StatusPartialContent {
			return fault.New(fault.Denied, "the response is a part of something encoded, which cannot be looked into")
		}
		var err error
		if body, err = leak.Decoded(codings, r.Body); err != nil {
			return err
		}
		r.Header.Del("Content-Encoding")
		r.Header.Del("Content-Length")
		r.ContentLength, r.Uncompressed = -1, true
	}
	r.Body = trailed{e.Scan(body), func() error { return e.fields(text(r.Trailer), "the trailer of the response") }}
	return nil
}

// hasBody reports whether a body follows (RFC 9112, section 6.3).
func hasBody(r *http.Response) bool {
	return r.StatusCode != http.StatusNoContent && r.StatusCode != http.StatusNotModified && r.ContentLength != 0 &&
		(r.Request == nil || r.Request.Method != http.MethodHead)
}

func text(header http.Header) string {
	var out strings.Builder
	for name, values := range header {
		if len(values) == 0 {
			out.WriteString(name + "\n")
		}
		for _, value := range values {
			out.WriteString(name + ": " + value + "\n")
		}
	}
	return out.String()
}

func (e *Exchange) fields(text, where string) error {
	if e.scanner == nil {
		return fault.New(fault.Internal, "a response is looked through before anything was attached")
	}
	if name, found := e.scanner.Find(text); found {
		e.leaked(name)
		return leak.Found(name, where)
	}
	return nil
}

// trailed is a body whose trailer is looked at before its end is told.
type trailed struct {
	io.ReadCloser
	trailer func() error
}

func (t trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF {
		if found := t.trailer(); found != nil {
			return n, found
		}
	}
	return n, err
}
