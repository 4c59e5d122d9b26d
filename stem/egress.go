//go:build linux

package stem

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"tendril/capability"
	"tendril/destination"
	"tendril/fault"
	"tendril/grant"
	"tendril/pollen"
)

// fetch fetches one file as the grant permits, each redirect being a decision of its own.
func (s *Stem) fetch(ctx context.Context, c *call, in capability.FetchInput) (capability.Fetched, error) {
	most := capability.MostFetched
	if in.Limit != nil {
		most = *in.Limit
	}
	r, err := s.newReach(c, "", nil)
	if err != nil {
		return capability.Fetched{}, err
	}
	defer r.close()
	return r.fetch(ctx, in.URL, in.Digest, most)
}

// fetch fetches one file. A digest that it has to have is empty for any.
func (r *reach) fetch(ctx context.Context, raw, digest string, most capability.Bytes) (capability.Fetched, error) {
	url, err := destination.Parse(raw)
	if err != nil {
		return capability.Fetched{}, err
	}
	var content bytes.Buffer
	fetched, err := r.proxy.Fetch(ctx, gate{r, egressRules}, url, &content, int64(most))
	if err != nil {
		return capability.Fetched{}, err
	}
	out := capability.Fetched{
		URL: url.String(), Final: fetched.Final.String(), Digest: "sha256:" + hex.EncodeToString(fetched.Digest[:]), Size: fetched.Size, Content: content.Bytes(),
	}
	if digest != "" && digest != out.Digest {
		return capability.Fetched{}, fault.New(fault.Invalid, "%s has the digest %s, not %s", clip(out.URL), out.Digest, digest).
			WithHint("it is another file than the one that was meant")
	}
	return out, nil
}

// explainEgress asks the decision that a request would meet.
func (s *Stem) explainEgress(ctx context.Context, _ *call, in capability.EgressExplainInput) (capability.EgressExplanation, error) {
	file, err := s.grants()
	if err != nil {
		return capability.EgressExplanation{}, err
	}
	q := reachQuestion{method: strings.ToUpper(in.Method), pollen: in.Pollen, substrate: in.Substrate}
	if q.method == "" {
		q.method = "GET"
	}
	if q.pollen == "" {
		q.pollen = string(pollen.Botanist)
	}
	if q.url, err = destination.Parse(in.URL); err != nil {
		return capability.EgressExplanation{}, err
	}
	out := capability.EgressExplanation{URL: q.url.String(), Classes: []string{}, Reasons: []string{}, Credentials: []string{}, Unreadable: []string{}}
	if q.substrate != "" {
		if _, err := s.bound(q.substrate); err != nil {
			return capability.EgressExplanation{}, err
		}
	}
	if refusal, err := s.refusalOfPollen(ctx, q.pollen); err != nil {
		return capability.EgressExplanation{}, err
	} else if refusal != nil {
		out.Rule, out.Reasons = "only a Pollen that is good may ask", append(out.Reasons, refusal.Error())
		return out, nil
	}
	decided := false // by a grant that gives something that could ask
	for _, g := range file.Grants {
		if string(g.Pollen) != q.pollen || q.substrate != "" && !slices.Contains(texts(g.Substrates), q.substrate) {
			continue
		}
		said, err := s.judgeReach(file, g, q)
		if err != nil {
			return capability.EgressExplanation{}, err
		}
		out.Reasons = append(out.Reasons, said.reason)
		decides := len(said.classes) > 0
		if out.Rule == "" || decides && !decided || said.permitted && !out.Permitted {
			out.Rule = said.rule
		}
		decided = decided || decides
		if !said.permitted {
			continue
		}
		for _, class := range said.classes {
			if !slices.Contains(out.Classes, class) {
				out.Classes = append(out.Classes, class)
			}
		}
		if out.Permitted { // an earlier grant is the rule
			continue
		}
		out.Permitted = true
		out.Inspected = q.url.Scheme() == destination.HTTP || destination.DecideAuthority(q.url.Authority(), g.Egress).Inspect
		if err := s.explainCredentials(ctx, g, q, &out); err != nil {
			return capability.EgressExplanation{}, err
		}
	}
	if out.Rule == "" {
		out.Rule = "what no single grant covers is denied"
		out.Reasons = append(out.Reasons, strings.TrimSuffix(q.pollen+" has no grant on "+q.substrate, " on "))
	}
	return out, nil
}

// reachQuestion is who would ask for what.
type reachQuestion struct {
	url                       destination.URL
	method, pollen, substrate string // no Substrate: any of the grant's
}

// reachAnswer is what one grant says to it.
type reachAnswer struct {
	permitted    bool
	classes      []string // by which it could be asked for
	rule, reason string
}

func (s *Stem) judgeReach(file grant.File, g grant.Grant, q reachQuestion) (reachAnswer, error) {
	d := destination.Decide(q.url, q.method, g.Egress)
	a := reachAnswer{classes: decides(file, g, q), rule: g.Where() + " " + d.Reasons[0], reason: g.Where() + ": " + strings.Join(d.Reasons, "; ")}
	a.permitted = d.Allowed && len(a.classes) > 0
	if len(g.Egress) == 0 {
		a.rule = g.Where() + ": an empty list of destinations denies all"
	}
	switch route, err := s.routeTo(g, q.url); {
	case err != nil:
		return a, err
	case len(a.classes) == 0:
		a.reason += "; it decides about nothing that could ask: it has ended, does not give " + strings.Join(reachingBy(q.method), ", ") +
			", or an earlier grant on the same Substrate does"
		if d.Allowed {
			a.rule = g.Where() + ": it gives nothing that could ask"
		}
	case route != "" && !d.Allowed:
		a.rule = g.Where() + ": only the model route " + route + " leads there"
		a.reason += "; it is reached only over the model route " + route + ", by the requests that this route knows"
	}
	return a, nil
}

// reachingBy are the classes that ask for something outside; a fetch has one method.
func reachingBy(method string) []string {
	classes := []string{"sprout.grow", "stoma.pass"}
	if method == "GET" {
		classes = append(classes, "egress.fetch")
	}
	return classes
}

// decides returns the classes for which this grant is the one that decides, which is the
// first that covers them on a Substrate.
func decides(file grant.File, g grant.Grant, q reachQuestion) []string {
	on := texts(g.Substrates)
	if q.substrate != "" {
		on = []string{q.substrate}
	}
	var classes []string
	for _, class := range reachingBy(q.method) {
		if slices.ContainsFunc(on, func(name string) bool {
			d := file.Decide(grant.Request{Pollen: q.pollen, Class: class, Substrate: name, Now: time.Now()})
			return d.Permitted && d.Grant.Line == g.Line
		}) {
			classes = append(classes, class)
		}
	}
	return classes
}

// routeTo names the model route of the grant whose provider a URL is of; "" if none is.
func (s *Stem) routeTo(g grant.Grant, url destination.URL) (string, error) {
	for _, named := range g.Models {
		rule, _, err := s.routeRule(named.Route)
		if err != nil {
			return "", err
		}
		rule.Paths = nil // of the provider, whatever is asked of it
		if destination.Decide(url, "POST", []destination.Rule{rule}).Allowed {
			return string(named.Route), nil
		}
	}
	return "", nil
}

// explainCredentials names what a request would carry. It reads the secrets as a request
// would, but runs no command: a question has no effects.
func (s *Stem) explainCredentials(ctx context.Context, g grant.Grant, q reachQuestion, out *capability.EgressExplanation) error {
	bound, err := s.boundTo(g, q.url, q.method)
	for _, one := range bound {
		out.Credentials = append(out.Credentials, string(one.Name))
		if one.Source.Command != nil {
			continue
		}
		if _, err := s.secrets.Read(ctx, one); err != nil {
			out.Unreadable = append(out.Unreadable, err.Error())
		}
	}
	return err
}

// refusalOfPollen is what keeps an issued Pollen from asking anything; nothing keeps the
// Botanist.
func (s *Stem) refusalOfPollen(ctx context.Context, name string) (refusal, err error) {
	if name == string(pollen.Botanist) {
		return nil, nil
	}
	parsed, err := pollen.ParseName(name)
	if err != nil {
		return nil, err
	}
	record, err := s.state.Pollen(ctx, parsed)
	if err != nil {
		return nil, err
	}
	return record.Check(time.Now(), record.UID), nil
}
