package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"

	"tendril/destination"
)

// Gate decides about one request, durably, before the first byte of it leaves. It is
// asked from several goroutines at once.
//
// An error is no decision and refuses: a fault of the kind denied or invalid is shown
// inside, of any other error no more than that it happened.
type Gate interface {
	// Connect decides a CONNECT. Inspect of the answer says whether TLS ends here or
	// the bytes are tunnelled.
	Connect(ctx context.Context, to destination.Authority) (Verdict, error)

	// Request decides one HTTP request.
	Request(ctx context.Context, url destination.URL, method string) (Verdict, error)

	// Misled is told of a request that is refused before there is anything to decide: it
	// is malformed, or for another server than its connection. It is told once for each,
	// before the refusal is answered. to is the server that the connection is for, the
	// zero value if it is for none. rule and reason are the proxy's own words, of bounded
	// length and escaped: nothing of the request but a name. An error says that there were
	// too many, and ends the connection.
	//
	// It is not told of what net/http takes for no request of HTTP/2 (RFC 9113, section
	// 8.1.1: a stream that it resets, a field that belongs to HTTP/1.1, a header that is
	// too large) and answers by itself.
	Misled(ctx context.Context, to destination.Authority, rule, reason string) error
}

// Verdict is a decision about a request. The zero Verdict refuses.
type Verdict struct {
	Allowed bool
	Inspect bool     // of Connect: TLS ends here, and each request in it is decided
	Rule    string   // what decided
	Reasons []string // why, for whoever asked
	Hint    string   // of a refusal: how to ask for it

	// Networks are those that are not public and that the rule names on purpose.
	Networks []netip.Prefix

	// WebSocket permits the request to become a WebSocket, in which nobody looks at
	// what is said.
	WebSocket bool

	// Attach puts the credential on a request that was decided, and changes nothing of
	// where it goes. Nil: there is none.
	Attach func(ctx context.Context, r *http.Request) error

	// Response looks through the answer for what must not come back: at its header at
	// once, at its body and trailer while they are read. It may replace the body by a
	// reader that fails. Its faults of the kind denied are shown inside. It is called
	// after Attach, once, and may be nil.
	Response func(r *http.Response) error

	// Done is told what became of the request, exactly once, also if it was refused.
	// It must not wait for the proxy. Nil: nobody wants to know.
	Done func(Outcome)
}

// done tells Done.
func (v Verdict) done(o Outcome) {
	if v.Done != nil {
		v.Done(o)
	}
}

// Failure is why a request has no answer, or less than all of it.
type Failure string

// The failures.
const (
	Refused      Failure = "refused"     // it was not permitted, here or by the dialer
	Hello        Failure = "hello"       // of a CONNECT: what follows is not the TLS that was asked for
	NoCredential Failure = "credential"  // there is one to attach, and it could not be
	Unreachable  Failure = "unreachable" // no connection
	Untrusted    Failure = "untrusted"   // the server's certificate proves nothing
	Late         Failure = "late"        // the upstream took too long
	Cut          Failure = "cut"         // the upstream ended early, or made no sense
	Gone         Failure = "gone"        // the client ended early
	Leak         Failure = "leak"        // the answer held the credential
	Exhausted    Failure = "exhausted"   // the run has used all the bytes that it may
)

// Outcome is what became of a request or of a tunnel.
type Outcome struct {
	Address netip.AddrPort // what was spoken to; the zero value if nothing was
	Status  int            // of the upstream's answer; 0 if there was none
	Failure Failure        // empty if all went well

	// Sent and Received are bytes: of a tunnel, those in it; of a request, the request
	// line, the fields of header and trailer, and the body, and the same of its answer;
	// of a WebSocket, also what is said in it. The lines count as the text that HTTP/1.1
	// has for them, whatever is spoken, and without the fields that frame the body and
	// the credential that was attached. Nothing is sent where no connection was made.
	Sent     int64
	Received int64
}

// Dialer connects to what was permitted, and to nothing but an address that it has
// looked at. A fault of the kind denied says that no address may be dialled.
type Dialer interface {
	Dial(ctx context.Context, to destination.Authority, networks []netip.Prefix) (net.Conn, netip.AddrPort, error)
}

// Conn is a client's connection. Close has to end a Read or Write that is going on. If
// it has a CloseWrite method, the end of a tunnel is told with it.
type Conn = io.ReadWriteCloser
