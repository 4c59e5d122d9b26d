//go:build linux

package stem

import (
	"context"
	"fmt"
	"time"

	"tendril/egress/authority"
	"tendril/egress/proxy"
	"tendril/grant"
	"tendril/run"
	"tendril/stoma"
	"tendril/terrarium"
)

// reach is what one run can reach of the outside: nothing but through here. Each request
// is decided by the rules of one grant, written down, and only then sent.
type reach struct {
	stem      *Stem
	call      *call
	run       run.ID
	grant     *grant.Grant
	authority *authority.Authority
	proxy     *proxy.Proxy
	routes    []*modelRoute

	*tally
}

const (
	// proxyPort is where programs inside find the proxy.
	proxyPort = 3128

	// mostDestinations is how many a run's record tells apart, and the others bound what a
	// Sprout can make the ledger grow by.
	mostDestinations = 100
	mostAsked        = 100_000
	mostConnections  = 1000
	mostRefused      = 10_000
)

// newReach makes the road of one run. There is none without rules.
func (s *Stem) newReach(c *call, id run.ID, events *eventLog) (*reach, error) {
	if !c.permit.reaches() {
		return nil, nil
	}
	g := c.permit.reach
	r := &reach{stem: s, call: c, run: id, grant: g, tally: newTally(events)}
	var err error
	if r.authority, err = authority.New(time.Now()); err == nil {
		r.proxy, err = proxy.New(proxy.Config{
			Gate: gate{r, egressRules}, Dialer: s.config.Dialer, Authority: r.authority, Roots: s.config.Roots, Limits: proxy.Limits{Connections: mostConnections},
		})
	}
	if err != nil {
		r.tally.close()
		return nil, err
	}
	if err := r.openRoutes(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// listeners are the ports inside that lead out. A nil reach has none.
func (r *reach) listeners(ctx context.Context) []terrarium.Listener {
	if r == nil {
		return nil
	}
	list := []terrarium.Listener{}
	if r.grant.Egress != nil {
		list = append(list, terrarium.Listener{Name: "proxy", Port: proxyPort, Serve: func(conn *stoma.Stream) { r.proxy.Serve(ctx, conn) }})
	}
	for _, route := range r.routes {
		list = append(list, route.listener())
	}
	return list
}

// certificate is what programs inside trust; nil: what the host trusts.
func (r *reach) certificate() []byte {
	if r == nil || r.grant.Egress == nil {
		return nil
	}
	return r.authority.CertificatePEM()
}

// close ends what is open and waits for it.
func (r *reach) close() {
	if r == nil {
		return
	}
	for _, route := range r.routes {
		_ = route.server.Close() // its connections end with it
	}
	r.proxy.Close()
	r.tally.close()
}

// env is what programs inside need to find the road: in both cases of the letters,
// because programs disagree, and by the names that those with certificates of their own
// look for.
func (p permit) env() []string {
	if !p.reaches() {
		return nil
	}
	env := modelEnv(p.reach.Models)
	if p.reach.Egress == nil {
		return env
	}
	proxy := loopback(proxyPort)
	const (
		trusted       = "/etc/ssl/certs/ca-certificates.crt"
		trustedByJava = "/etc/ssl/certs/java/cacerts"
	)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "npm_config_proxy", "npm_config_https_proxy", "PIP_PROXY"} {
		env = append(env, name+"="+proxy)
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		env = append(env, name+"=localhost,127.0.0.1,::1")
	}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CARGO_HTTP_CAINFO", "npm_config_cafile"} {
		env = append(env, name+"="+trusted)
	}
	return append(env, "NODE_USE_ENV_PROXY=1",
		fmt.Sprintf("JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=%d -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=%[1]d -Djavax.net.ssl.trustStore=%s", proxyPort, trustedByJava))
}

func loopback(port uint16) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
