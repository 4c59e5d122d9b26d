package proxy

import "net/http"

// requestSize is the bytes of a request's head as the text of HTTP/1.1 (RFC 9112,
// section 3), without the fields that frame its body.
func requestSize(r *http.Request) int64 {
	n := len(r.Method) + len(" ") + len(r.URL.RequestURI()) + len(" HTTP/1.1\r\n")
	n += len("Host: ") + len(r.Host) + len("\r\n")
	return int64(n) + fieldsSize(r.Header) + int64(len("\r\n"))
}

// responseSize is the bytes of an answer's head, in the same way. A status always has
// its usual words: HTTP/2 has none.
func responseSize(r *http.Response) int64 {
	n := len("HTTP/1.1 200 ") + len(http.StatusText(r.StatusCode)) + len("\r\n")
	return int64(n) + fieldsSize(r.Header) + int64(len("\r\n"))
}

func fieldsSize(fields http.Header) int64 {
	n := 0
	for name, values := range fields {
		for _, value := range values {
			n += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	return int64(n)
}
