package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"tendril/destination"
	"tendril/display"
	"tendril/fault"
)

// The rules that this package itself decides by. Others come from the gate and the
// dialer.
const (
	ruleHTTP       = "http"      // what is asked is not one request
	ruleAuthority  = "authority" // the names of the server do not agree
	ruleEgress     = "egress"    // what the gate refuses without naming a rule
	ruleWebSocket  = "websocket"
	ruleLimit      = "limits.egress"
	ruleUpstream   = "upstream" // nothing was refused; there is no answer to pass on
	ruleCredential = "credential"
)

// denial is an answer that this proxy makes itself.
type denial struct {
	status int
	fault  *fault.Error
	asked  string // what was asked for, in its one form; empty if it has none
}

func (d *denial) Error() string { return d.fault.Error() }

func refuse(status int, rule, format string, args ...any) *denial {
	return &denial{status: status, fault: fault.New(kinds[status], format, args...).WithRule(rule)}
}

// kinds are those of the denials' faults.
var kinds = map[int]fault.Kind{
	http.StatusBadRequest:                  fault.Invalid,
	http.StatusMisdirectedRequest:          fault.Invalid,
	http.StatusRequestHeaderFieldsTooLarge: fault.Invalid,
	http.StatusForbidden:                   fault.Denied,
	http.StatusInternalServerError:         fault.Internal,
	http.StatusBadGateway:                  fault.Unavailable,
	http.StatusServiceUnavailable:          fault.Unavailable,
	http.StatusGatewayTimeout:              fault.Unavailable,
}

func (d *denial) hint(format string, args ...any) *denial {
	d.fault = d.fault.WithHint(format, args...)
	return d
}

func (d *denial) of(method, what string) *denial {
	d.asked = method + " " + what
	return d
}

// deniedBy is the denial of a verdict that refuses.
func deniedBy(v Verdict) *denial {
	rule, hint := v.Rule, v.Hint
	if rule == "" {
		rule = ruleEgress
	}
	if hint == "" {
		hint = "ask whoever granted this run to permit it"
	}
	why := strings.Join(v.Reasons, "; ")
	if why == "" {
		why = "it is not permitted"
	}
	return refuse(http.StatusForbidden, rule, "%s", why).hint("%s", hint)
}

// unjudged is the denial for a gate that has no verdict. Only of a fault that says what
// is wrong with the request, the text is shown.
func unjudged(err error) *denial {
	var f *fault.Error
	if errors.As(err, &f) {
		switch f.Kind {
		case fault.Denied, fault.NeedsApproval:
			return &denial{status: http.StatusForbidden, fault: f}
		case fault.Invalid, fault.NotFound:
			return &denial{status: http.StatusBadRequest, fault: f}
		case fault.Unavailable:
			return refuse(http.StatusServiceUnavailable, ruleEgress, "there is no decision at the moment")
		}
	}
	return refuse(http.StatusInternalServerError, ruleEgress, "there is no decision, because of a fault in Tendril")
}

// longestReason is for what the gate is told, in bytes.
const longestReason = 200

// misled tells the gate of a denial that it was not asked about.
func (p *Proxy) misled(ctx context.Context, to destination.Authority, d *denial) error {
	rule := d.fault.Rule
	if rule == "" { // package destination names none
		rule = ruleHTTP
	}
	return p.gate.Misled(ctx, to, rule, clip(display.Line(d.fault.Detail), longestReason))
}

// clip cuts a text, and shows that it did.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// render returns the header and the body. What is hostile in it is escaped.
func (d *denial) render(accept string) (http.Header, []byte) {
	rule := display.Line(d.fault.Rule)
	if rule == "" {
		rule = ruleEgress
	}
	detail, hint, asked := display.Line(d.fault.Detail), display.Line(d.fault.Hint), display.Line(d.asked)
	header := http.Header{
		"Tendril-Denied":         {strings.Trim(strconv.QuoteToASCII(rule), `"`)},
		"Cache-Control":          {"no-store"},
		"X-Content-Type-Options": {"nosniff"},
	}
	var body []byte
	if strings.Contains(accept, "application/json") {
		header.Set("Content-Type", "application/json")
		body, _ = json.Marshal(map[string]any{"error": map[string]string{ // strings always marshal
			"kind": string(d.fault.Kind), "detail": detail, "rule": rule, "hint": hint, "asked": asked,
		}})
		body = append(body, '\n')
	} else {
		header.Set("Content-Type", "text/plain; charset=utf-8")
		body = fmt.Appendf(nil, "Tendril: %s\n", detail)
		if asked != "" {
			body = fmt.Appendf(body, "asked for: %s\n", asked)
		}
		body = fmt.Appendf(body, "rule: %s\n", rule)
		if hint != "" {
			body = fmt.Appendf(body, "hint: %s\n", hint)
		}
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	return header, body
}

// answer writes the denial as the answer to a request.
func (d *denial) answer(w http.ResponseWriter, r *http.Request) {
	header, body := d.render(strings.Join(r.Header.Values("Accept"), ","))
	for name, values := range header {
		w.Header()[name] = values
	}
	confused := d.status == http.StatusBadRequest || d.status == http.StatusMisdirectedRequest || d.status == http.StatusRequestHeaderFieldsTooLarge
	if r.ProtoMajor == 1 && (confused || r.ContentLength != 0) { // rather than to read a body that nobody wants
		w.Header().Set("Connection", "close")
	}
	w.WriteHeader(d.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that is gone needs no answer
	}
}

// send writes the denial as the last answer on a connection.
func (d *denial) send(w io.Writer, accept string) {
	header, body := d.render(accept)
	header.Set("Connection", "close")
	var text strings.Builder
	fmt.Fprintf(&text, "HTTP/1.1 %d %s\r\n", d.status, http.StatusText(d.status))
	_ = header.Write(&text) // a Builder does not fail
	text.WriteString("\r\n")
	text.Write(body)
	_, _ = io.WriteString(w, text.String()) // a client that is gone needs no answer
}
