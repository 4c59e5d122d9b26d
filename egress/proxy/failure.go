package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"

	"tendril/destination"
	"tendril/fault"
)

// failed says what an error on the way to an upstream means, and to the client. It
// repeats nothing that the upstream said.
func (p *Proxy) failed(ctx context.Context, err error, to destination.Authority) (*denial, Failure) {
	var refused *fault.Error
	var untrusted *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case p.bytes.exhausted():
		return exhausted(), Exhausted
	case ctx.Err() != nil:
		return refuse(http.StatusBadGateway, ruleUpstream, "the request was given up"), Gone
	case errors.As(err, &refused) && refused.Kind == fault.Denied:
		return &denial{status: http.StatusForbidden, fault: refused}, Refused
	case errors.As(err, &refused):
		return refuse(http.StatusBadGateway, ruleUpstream, "%s cannot be reached", to), Unreachable
	case errors.As(err, &untrusted):
		return refuse(http.StatusBadGateway, ruleUpstream, "the certificate of %s does not prove that it is that server", to), Untrusted
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return refuse(http.StatusGatewayTimeout, ruleUpstream, "%s took too long", to), Late
	}
	return refuse(http.StatusBadGateway, ruleUpstream, "%s did not answer, or not with HTTP", to), Cut
}
