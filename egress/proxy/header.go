package proxy

import (
	"net/http"
	"net/textproto"
	"strings"
)

// ownFields are fields that mean one connection, or this proxy, and not the server at
// the end (RFC 9110, section 7.6.1), and those with which proxies tell about clients.
var ownFields = []string{
	"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Host",
	"Via", "Forwarded", "X-Real-Ip",
	"Alt-Svc", "Alt-Used", // another way to the server, which there is not (RFC 7838)
	"Http2-Settings",
	"Tendril-Denied", // is said by nobody else
}

// passed returns the fields that go on to the other side.
func passed(from http.Header) http.Header {
	to := from.Clone()
	if to == nil {
		to = http.Header{}
	}
	for _, list := range from.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			to.Del(textproto.TrimString(name))
		}
	}
	for _, name := range ownFields {
		to.Del(name)
	}
	for name := range to {
		if strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "X-Forwarded-") {
			delete(to, name)
		}
	}
	return to
}

// lists reports whether a field is a list of tokens in which one is.
func lists(header http.Header, name, token string) bool {
	for _, list := range header.Values(name) {
		for one := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(textproto.TrimString(one), token) {
				return true
			}
		}
	}
	return false
}

// mayTrail reports whether a field may stand behind a body: none that says how the body
// is to be read, where it goes or who sends it (RFC 9110, section 6.5.1).
func mayTrail(name string) bool {
	name = http.CanonicalHeaderKey(name)
	switch name {
	case "Content-Encoding", "Content-Type", "Content-Range", "Authorization", "Cookie", "Set-Cookie",
		"Expect", "Location", "Www-Authenticate", "Cache-Control":
		return false
	}
	return len(passed(http.Header{name: nil})) == 1
}

// isWebSocket reports whether a request asks for a WebSocket (RFC 6455, section 4.1).
func isWebSocket(r *http.Request) bool {
	return r.ProtoMajor == 1 && lists(r.Header, "Connection", "upgrade") && lists(r.Header, "Upgrade", "websocket")
}
