package proxy

import (
	"io"
	"net/http"
	"strings"
)

// switchProtocols makes a tunnel of a request that became a WebSocket. body is the
// answer's as it came, which can be written to.
func (f *forwarding) switchProtocols(response *http.Response, body io.Reader) *denial {
	upstream, ok := body.(io.ReadWriteCloser)
	if !ok || !isWebSocket(f.r) || !lists(response.Header, "Upgrade", "websocket") {
		f.failure = Cut
		return refuse(http.StatusBadGateway, ruleUpstream, "%s switched to a protocol that was not asked for", f.url.Authority())
	}
	hijacked, buffered, err := http.NewResponseController(f.w).Hijack()
	if err != nil {
		f.failure = Gone
		panic(http.ErrAbortHandler)
	}
	defer hijacked.Close()
	c := hijacked.(requested)
	// Before the answer, a client has nothing to say (RFC 6455, section 4.1).
	rest, whole := c.requests.rest()
	if !whole || buffered.Reader.Buffered() > 0 {
		f.failure = Gone
		return nil
	}
	var text strings.Builder
	text.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
	_ = passed(response.Header).Write(&text) // a Builder does not fail
	text.WriteString("\r\n")
	if _, err := io.WriteString(c, text.String()); err != nil {
		f.failure = Gone
		return nil
	}
	f.body = &requestBody{}
	f.failure = f.proxy.exchange(c, rest, upstream, &f.body.sent, &f.received)
	return nil
}
