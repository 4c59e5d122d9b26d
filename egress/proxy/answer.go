package proxy

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
)

// clean reports whether the credential is not in a header or a trailer.
func (f *forwarding) clean(header http.Header) bool { return clean(f.verdict, header) }

func clean(v Verdict, header http.Header) bool {
	if v.Scan == nil {
		return true
	}
	var text bytes.Buffer
	for name, values := range header {
		for _, value := range values {
			text.WriteString(name + ": " + value + "\n")
		}
	}
	scanned := v.Scan(io.NopCloser(&text))
	defer scanned.Close()
	_, err := io.Copy(io.Discard, scanned)
	return err == nil
}

func leaked() *denial {
	return refuse(http.StatusBadGateway, ruleLeak, "the answer held the credential that was attached, and was not passed on")
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
	counted := &countedBody{ReadCloser: response.Body, count: &f.received}
	var body io.ReadCloser = counted
	if f.verdict.Scan != nil {
		body = f.verdict.Scan(body)
		defer body.Close()
	}
	var passedOn atomic.Int64
	if failure := carry(flushing{f}, body, &passedOn, Gone, Cut); failure != "" {
		if failure == Cut && (counted.err == nil || counted.err == io.EOF) {
			failure = Leak // it was the scan that failed
		} else if failure == Cut {
			_, failure = f.proxy.failed(f.r.Context(), counted.err, f.url.Authority())
		}
		f.failure = failure
		panic(http.ErrAbortHandler) // cuts the stream
	}
	if !f.clean(response.Trailer) {
		f.failure = Leak
		panic(http.ErrAbortHandler)
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

// countedBody counts what is read of a body, and keeps the error that ended it.
type countedBody struct {
	io.ReadCloser
	count *atomic.Int64
	err   error
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count.Add(int64(n))
	if err != nil {
		b.err = err
	}
	return n, err
}
