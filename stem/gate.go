//go:build linux

package stem

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tendril/capability"
	"tendril/credential"
	"tendril/credential/attach"
	"tendril/destination"
	"tendril/egress/proxy"
	"tendril/fault"
	"tendril/grant"
	"tendril/ledger"
	"tendril/run"
)

// gate decides what one run may reach, by rules of the grant as it is when it is asked.
type gate struct {
	*reach
	rules func(grant.Grant) []destination.Rule
}

func egressRules(g grant.Grant) []destination.Rule { return g.Egress }

// reachOf is the grant that gives the actor what a request reaches; nil if none does. The
// Botanist's own grant reaches nothing, so it is a line of the file for the Botanist too,
// which widens by that and narrows nothing.
func (s *Stem) reachOf(a Actor, class string, in capability.Request) *grant.Grant {
	about := in.Subject().Substrate
	if about == nil || about.Name == "" {
		return nil
	}
	grants, err := s.grants()
	if err != nil {
		s.config.Notice(err.Error() + "; so nothing is reached")
		return nil
	}
	q := grant.Request{Pollen: a.Name(), Class: class, Substrate: about.Name, Now: time.Now()}
	if wall, ok := in.(capability.Walled); ok && !a.Botanist() {
		asked := wall.Wall()
		q.Provider, q.Image, q.Limits, q.Defaults = asked.Provider, asked.Image, asked.Limits, s.defaults()
	}
	return grants.Decide(q).Grant
}

// holding is the grant as it is at this moment: the one that was there at the beginning may
// have been changed, taken away, or have ended; nil if there is none.
func (r *reach) holding() *grant.Grant {
	return r.stem.reachOf(r.call.actor, r.call.name, r.call.input)
}

// now is what holds, and what it permits.
func (g gate) now() (holding *grant.Grant, rules []destination.Rule) {
	if holding = g.holding(); holding != nil {
		rules = g.rules(*holding)
	}
	return holding, rules
}

// asked is one request to the outside.
type asked struct {
	to     string // scheme, host and port
	method string
	url    string // what the Sprout asked for, which is its own; empty for a connection
}

// Connect implements [proxy.Gate].
func (g gate) Connect(ctx context.Context, to destination.Authority) (proxy.Verdict, error) {
	holding, rules := g.now()
	return g.decide(ctx, asked{"https://" + to.String(), "CONNECT", ""}, holding, rules, destination.DecideAuthority(to, rules), nil)
}

// Request implements [proxy.Gate].
func (g gate) Request(ctx context.Context, url destination.URL, method string) (proxy.Verdict, error) {
	holding, rules := g.now()
	d := destination.Decide(url, method, rules)
	var bound []credential.Named
	if d.Allowed {
		var err error
		if bound, err = g.stem.boundTo(*holding, url, method); err != nil {
			return proxy.Verdict{}, err
		}
	}
	return g.decide(ctx, asked{url.Origin(), method, url.String()}, holding, rules, d, bound)
}

// Misled implements [proxy.Gate].
func (g gate) Misled(ctx context.Context, to destination.Authority, rule, reason string) error {
	where := "unknown"
	if to != (destination.Authority{}) {
		where = "https://" + to.String()
	}
	why := rule + ": " + reason
	if !g.count(where, why, false) {
		return tooMuch
	}
	_, err := g.record(ctx, asked{where, "misled", ""}, why, false)
	g.tell(run.EgressDecision{Destination: where, Method: "-", Rule: rule, Failure: string(proxy.Refused)})
	return err
}

var tooMuch = fault.New(fault.Denied, "this run has asked for more than it may").WithRule("the run's limit of requests")

// decide records the decision, and makes a verdict of it.
func (g gate) decide(ctx context.Context, a asked, holding *grant.Grant, rules []destination.Rule, d destination.Decision, bound []credential.Named) (proxy.Verdict, error) {
	where := g.grant.Where()
	if holding != nil {
		where = holding.Where()
	}
	why := where + ": " + strings.Join(d.Reasons, "; ")
	if !g.count(a.to, why, d.Allowed) {
		return proxy.Verdict{}, tooMuch
	}
	row, err := g.record(ctx, a, why, d.Allowed)
	if err != nil {
		return proxy.Verdict{}, err
	}
	rule := where + " " + d.Reasons[0]
	v := proxy.Verdict{Allowed: d.Allowed, Inspect: d.Inspect, Rule: rule, Reasons: d.Reasons, Done: func(o proxy.Outcome) { g.done(a, rule, d, row, o) }}
	if !d.Allowed {
		v.Hint = fmt.Sprintf("the Botanist can permit it in the egress rules of %s", where)
		return v, nil
	}
	if len(bound) > 0 {
		g.carry(&v, bound)
	}
	v.WebSocket = rules[d.Rule].WebSocket
	for _, network := range rules[d.Rule].Networks {
		v.Networks = append(v.Networks, network.Prefix())
	}
	return v, nil
}

// record writes the decision down, and returns its row. The ledger has a digest of what
// the Sprout asked for beyond the destination.
func (g gate) record(ctx context.Context, a asked, rule string, allowed bool) (int64, error) {
	e := g.call.entry(ledger.Decision)
	e.Run, e.Target, e.Rule, e.Decision = string(g.run), a.to, rule, ledger.Permit
	e.Capability, e.Of = "egress."+strings.ToLower(a.method), &g.call.row
	if a.url != "" {
		e.Digests = map[string]string{"url": g.stem.state.Digest([]byte(a.url))}
	}
	if !allowed {
		e.Decision, e.Fault = ledger.Deny, string(fault.Denied)
	}
	rows, err := g.stem.state.Record(context.WithoutCancel(ctx), e)
	if err != nil {
		return 0, err
	}
	return rows[0].Seq, nil
}

// turnedAway are the failures of a request that was permitted and then refused by what it
// turned out to be: where its name leads, what it says instead of TLS, or what came back.
var turnedAway = map[proxy.Failure]bool{proxy.Refused: true, proxy.Hello: true, proxy.Untrusted: true, proxy.Leak: true, proxy.NoCredential: true}

// done records what became of a request. The bytes of a connection that is looked into are
// counted by its requests.
func (g gate) done(a asked, rule string, d destination.Decision, row int64, o proxy.Outcome) {
	if d.Inspect && o.Failure == "" {
		return
	}
	refused := d.Allowed && turnedAway[o.Failure]
	g.sum(a.to, rule+", but it was turned away: "+string(o.Failure), o.Sent, o.Received, refused)
	g.tell(run.EgressDecision{
		Destination: a.to, Method: a.method, Allowed: d.Allowed && !refused, Rule: rule, Status: o.Status, Sent: o.Sent, Received: o.Received, Failure: string(o.Failure),
	})
	if !refused {
		return
	}
	e := g.call.entry(ledger.Outcome)
	e.Of, e.Run, e.Target, e.State, e.Fault = &row, string(g.run), a.to, string(o.Failure), string(fault.Denied)
	// That it could not be recorded shows in the next decision, which has to be.
	_, _ = g.stem.state.Record(context.Background(), e)
}

// carry makes the request carry credentials, and looks for them in what comes back.
func (g gate) carry(v *proxy.Verdict, bound []credential.Named) {
	exchange := attach.New(bound, g.stem.secrets, func(name string) {
		g.warn("an answer held the secret of the credential " + name + ", and was cut before it")
	})
	v.Response = exchange.Response
	v.Attach = func(ctx context.Context, request *http.Request) error {
		err := exchange.Attach(ctx, request)
		if err != nil { // inside it is only said that there is none
			g.warn(err.Error())
		}
		return err
	}
	done := v.Done
	v.Done = func(o proxy.Outcome) {
		exchange.Close()
		done(o)
	}
}
