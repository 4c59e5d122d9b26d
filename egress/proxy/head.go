package proxy

import (
	"net/http"
	"strconv"
	"strings"

	"tendril/destination"
)

// head is what the proxy itself has to know of a request.
type head struct {
	method  string
	target  string
	old     bool   // HTTP/1.0
	host    string // of the Host field; empty if there is none, which HTTP/1.0 allows
	accept  string
	length  int64 // of the body, if it is not chunked
	chunked bool
}

type field struct{ name, value string } // name is in lower case

func malformed(format string, args ...any) *denial {
	return refuse(http.StatusBadRequest, ruleHTTP, "malformed request: "+format, args...)
}

func tooLarge(format string, args ...any) *denial {
	return refuse(http.StatusRequestHeaderFieldsTooLarge, ruleHTTP, format, args...)
}

// parseHead parses a request line and fields, up to and with the empty line. It refuses
// what two readers may read in two ways: RFC 9112, sections 2 to 6, without what it
// lets a lenient recipient do.
func parseHead(text []byte) (*head, error) {
	line, rest, ok := strings.Cut(string(text), "\r\n")
	if !ok {
		return nil, malformed("there is no request line")
	}
	words := strings.Split(line, " ")
	if len(words) != 3 || !isToken(words[0]) || !isTarget(words[1]) {
		return nil, malformed("the first line is not a method, a target and a version")
	}
	h := &head{method: words[0], target: words[1]}
	switch {
	case words[2] == "HTTP/1.1":
	case words[2] == "HTTP/1.0" && h.method == "CONNECT":
		// Python before 3.12 asks so, and pip with it. There is no body to be
		// unsure about, and after the answer the connection is the tunnel's.
		h.old = true
	default:
		return nil, malformed("the version is not HTTP/1.1")
	}
	fields, err := parseFields([]byte(rest))
	if err != nil {
		return nil, err
	}
	if d := h.take(fields); d != nil {
		return nil, d
	}
	return h, nil
}

// take takes what the fields say about the host and the body.
func (h *head) take(fields []field) *denial {
	seen := map[string]string{}
	for _, f := range fields {
		switch f.name {
		case "host", "content-length", "transfer-encoding":
			if _, twice := seen[f.name]; twice {
				return malformed("it has two fields %s", f.name)
			}
			seen[f.name] = f.value
		case "accept":
			h.accept += f.value + ","
		}
	}
	length, hasLength := seen["content-length"]
	coding, hasCoding := seen["transfer-encoding"]
	host, hasHost := seen["host"]
	h.host = host
	h.chunked = hasCoding
	switch {
	case !hasHost && !h.old:
		return malformed("it has no field host")
	case host != "" && !isHost(host):
		return malformed("its field host is no host")
	case hasLength && hasCoding:
		return malformed("it has both content-length and transfer-encoding (RFC 9112, section 6.1)")
	case hasCoding && !strings.EqualFold(coding, "chunked"):
		return malformed("its transfer-encoding is not chunked alone")
	case hasLength:
		n, err := strconv.ParseInt(length, 10, 64)
		if err != nil || strings.Trim(length, "0123456789") != "" {
			return malformed("its content-length is not a number")
		}
		h.length = n
	}
	if h.method == "CONNECT" && (h.chunked || h.length > 0) {
		return malformed("a CONNECT has a body")
	}
	return h.agree()
}

// agree refuses a Host that is not the target's, where the target names one: net/http
// looks at the target alone (RFC 9112, section 3.2.2), and some server behind it may
// not.
func (h *head) agree() *denial {
	if h.method == "CONNECT" || strings.HasPrefix(h.target, "/") {
		return nil // for which the one who asks the gate compares them
	}
	url, err := destination.Parse(h.target)
	if err == nil && !names(h.host, url.Scheme(), url.Authority()) {
		return otherHost(h.host)
	}
	return nil
}

// parseFields parses lines of fields, up to and with the empty line.
func parseFields(text []byte) ([]field, error) {
	var fields []field
	rest := string(text)
	for {
		line, after, ok := strings.Cut(rest, "\r\n")
		if !ok {
			return nil, malformed("the header does not end")
		}
		if line == "" {
			if after != "" {
				return nil, malformed("the header ends before its end")
			}
			return fields, nil
		}
		if len(fields) == mostFields {
			return nil, tooLarge("the header is larger than %d fields", mostFields)
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) { // also what continues the line before it: RFC 9112, section 5.2
			return nil, malformed("a line of the header is not a name, a colon and a value")
		}
		value = strings.Trim(value, " \t")
		if !isValue(value) {
			return nil, malformed("a field has a control character")
		}
		fields = append(fields, field{strings.ToLower(name), value})
		rest = after
	}
}

// isToken is for methods and field names (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isTarget is visible ASCII. What it means is for package destination.
func isTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != ""
}

// isHost is what may stand in a Host (RFC 3986, sections 3.2.2 and 3.2.3). What it means
// is for package destination.
func isHost(s string) bool { return isTarget(s) && !strings.ContainsAny(s, "\"#/<>?@\\^`{|}") }

// isValue is what may stand in a field (RFC 9110, section 5.5): also bytes beyond
// ASCII, which are opaque.
func isValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}
