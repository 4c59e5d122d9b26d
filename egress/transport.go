package egress

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"tendril/destination"
)

// loopback is what a registry of this host has to be named by: no other name leads there.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// Transport returns a way to ask servers whose names come from the Botanist and from those
// servers themselves, such as a registry of images that answers with the address of its
// store: each connection is dialled as [Dialer.Dial] does. This host is reached only under
// the names localhost and 127.0.0.1, and no private network is.
func (d *Dialer) Transport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			to, err := destination.ParseAuthority(address)
			if err != nil {
				return nil, err
			}
			var networks []netip.Prefix
			if host := to.Host.String(); host == "localhost" || host == "127.0.0.1" {
				networks = loopback
			}
			conn, _, err := d.Dial(ctx, to, networks)
			return conn, err
		},
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   connectTime,
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       time.Minute,
		MaxIdleConns:          8,
	}
}
