//go:build linux

package stem

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"tendril/credential"
	"tendril/credential/attach"
	"tendril/destination"
	"tendril/egress/authority"
	"tendril/egress/proxy"
	"tendril/fault"
	"tendril/grant"
	"tendril/ledger"
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
	events    *eventLog
	authority *authority.Authority
	proxy     *proxy.Proxy
	routes    []*modelRoute

	mu       sync.Mutex
	seen     map[string]*run.Reach // by destination
	refused  int
	asked    int
	said     map[string]bool // once
	exceeded chan run.Limit  // holds the limit once one is reached
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
	r := &reach{stem: s, call: c, run: id, grant: g, events: events, exceeded: make(chan run.Limit, 1)}
	var err error
	if r.authority, err = authority.New(time.Now()); err != nil {
		return nil, err
	}
	r.proxy, err = proxy.New(proxy.Config{
		Gate: gate{r, g.Egress, g.Where()}, Dialer: s.config.Dialer, Authority: r.authority, Roots: s.config.Roots, Limits: proxy.Limits{Connections: mostConnections},
	})
	if err != nil {
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
}

// limit delivers the limit that asking reached. It is silent for a nil reach.
func (r *reach) limit() <-chan run.Limit {
	if r == nil {
		return nil
	}
	return r.exceeded
}

// summary is what the record says of it.
func (r *reach) summary() []run.Reach {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []run.Reach{}
	for _, seen := range r.seen {
		list = append(list, *seen)
	}
	slices.SortFunc(list, func(a, b run.Reach) int { return strings.Compare(a.Destination, b.Destination) })
	return list
}

// gate decides by some rules for one run.
type gate struct {
	*reach
	rules []destination.Rule
	where string // the rules are written
}

// Connect implements [proxy.Gate].
func (g gate) Connect(ctx context.Context, to destination.Authority) (proxy.Verdict, error) {
	return g.decide(ctx, "https://"+to.String(), "CONNECT", "", destination.DecideAuthority(to, g.rules), nil)
}

// Request implements [proxy.Gate].
func (g gate) Request(ctx context.Context, url destination.URL, method string) (proxy.Verdict, error) {
	d := destination.Decide(url, method, g.rules)
	if !d.Allowed {
		return g.decide(ctx, url.Origin(), method, url.String(), d, nil)
	}
	bound, err := g.stem.boundTo(*g.grant, url, method)
	if err != nil {
		return proxy.Verdict{}, err
	}
	return g.decide(ctx, url.Origin(), method, url.String(), d, bound)
}

// Misled implements [proxy.Gate].
func (g gate) Misled(ctx context.Context, to destination.Authority, rule, reason string) error {
	return nil
}

// decide records the decision, and makes a verdict of it. What the Sprout asked for
// beyond the destination is its own: the ledger has a digest of it.
func (g gate) decide(ctx context.Context, to, method, url string, d destination.Decision, bound []credential.Named) (proxy.Verdict, error) {
	if !g.count(to, d.Allowed) {
		return proxy.Verdict{}, fault.New(fault.Denied, "this run has asked for more than it may").WithRule("the run's limit of requests")
	}
	rule := d.Reasons[0]
	if d.Allowed {
		rule = g.where + " " + rule
	}
	e := g.call.entry(ledger.Decision)
	e.Run, e.Target, e.Change, e.Rule, e.Decision = string(g.run), to, "", strings.Join(d.Reasons, "; "), ledger.Permit
	e.Capability, e.Of = "egress."+strings.ToLower(method), &g.call.row
	if url != "" {
		e.Digests = map[string]string{"url": g.stem.state.Digest([]byte(url))}
	}
	if !d.Allowed {
		e.Decision, e.Fault = ledger.Deny, string(fault.Denied)
	}
	if _, err := g.stem.state.Record(context.WithoutCancel(ctx), e); err != nil {
		return proxy.Verdict{}, err
	}
	v := proxy.Verdict{Allowed: d.Allowed, Inspect: d.Inspect, Rule: rule, Reasons: d.Reasons, Done: func(o proxy.Outcome) { g.done(ctx, to, method, rule, d, o) }}
	if len(bound) > 0 {
		g.carry(&v, bound)
	}
	if !d.Allowed {
		v.Hint = fmt.Sprintf("the Botanist can permit it in the egress rules of %s", g.where)
		return v, nil
	}
	permitting := g.rules[d.Rule]
	v.WebSocket = permitting.WebSocket
	for _, network := range permitting.Networks {
		v.Networks = append(v.Networks, network.Prefix())
	}
	return v, nil
}

// carry makes the request carry credentials, and looks for them in what comes back.
func (r *reach) carry(v *proxy.Verdict, bound []credential.Named) {
	exchange := attach.New(bound, r.stem.secrets, func(name string) {
		r.warn("an answer held the secret of the credential " + name + ", and was cut before it")
	})
	v.Response = exchange.Response
	v.Attach = func(ctx context.Context, request *http.Request) error {
		err := exchange.Attach(ctx, request)
		if err != nil { // inside it is only said that there is none
			r.warn(err.Error())
		}
		return err
	}
	done := v.Done
	v.Done = func(o proxy.Outcome) {
		exchange.Close()
		done(o)
	}
}

// warn tells the Botanist. That it could not be stored shows in the next thing that is.
func (r *reach) warn(text string) {
	if r.events != nil {
		_ = r.events.append(context.Background(), run.Event{Data: run.Warning{Detail: text}})
	}
}

// count counts one more request, and says whether it may still be decided.
func (r *reach) count(to string, allowed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	at := r.at(to)
	if allowed {
		at.Allowed++
	} else {
		at.Refused++
		r.refused++
	}
	if r.asked <= mostAsked && r.refused <= mostRefused {
		return true
	}
	r.exceed(run.Egress)
	return false
}

// exceed says that a limit was reached, unless one was before.
func (r *reach) exceed(limit run.Limit) {
	select {
	case r.exceeded <- limit:
	default:
	}
}

// at is the sum of a destination. The caller holds the lock.
func (r *reach) at(to string) *run.Reach {
	if r.seen == nil {
		r.seen = map[string]*run.Reach{}
	}
	if r.seen[to] == nil && len(r.seen) >= mostDestinations {
		to = "other"
	}
	if r.seen[to] == nil {
		r.seen[to] = &run.Reach{Destination: to}
	}
	return r.seen[to]
}

// done records what became of a request. Its bytes do not count twice: those of a
// connection that is looked into are counted by its requests.
func (r *reach) done(ctx context.Context, to, method, rule string, d destination.Decision, o proxy.Outcome) {
	if d.Inspect && o.Failure == "" {
		return
	}
	r.mu.Lock()
	at := r.at(to)
	at.Sent += o.Sent
	at.Received += o.Received
	r.mu.Unlock()
	event := run.EgressDecision{Destination: to, Method: method, Allowed: d.Allowed, Rule: rule, Status: o.Status, Sent: o.Sent, Received: o.Received, Failure: string(o.Failure)}
	if r.events == nil {
		return
	}
	// That it could not be stored shows in the next thing that is.
	_ = r.events.append(context.WithoutCancel(ctx), run.Event{Data: event})
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
	const trusted = "/etc/ssl/certs/ca-certificates.crt"
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
		fmt.Sprintf("JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=%d -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=%[1]d", proxyPort))
}

func loopback(port uint16) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
