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
	if !c.permit.reaches() {
		return capability.Fetched{}, c.deny(fault.New(fault.Denied, "its grant has no egress rules").
			WithRule("an empty list of destinations denies all").WithHint("the Botanist can add an egress rule to the grant"))
	}
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
func (s *Stem) explainEgress(_ context.Context, _ *call, in capability.EgressExplainInput) (capability.EgressExplanation, error) {
	file, err := s.grants()
	if err != nil {
		return capability.EgressExplanation{}, err
	}
	method, name := in.Method, in.Pollen
	if method == "" {
		method = "GET"
	}
	if name == "" {
		name = string(pollen.Botanist)
	}
	url, err := destination.Parse(in.URL)
	if err != nil {
		return capability.EgressExplanation{}, err
	}
	out := capability.EgressExplanation{URL: url.String(), Rule: "an empty list of destinations denies all", Reasons: []string{}, Credentials: []string{}}
	for _, g := range file.Grants {
		if string(g.Pollen) != name || in.Substrate != "" && !slices.Contains(texts(g.Substrates), in.Substrate) {
			continue
		}
		d := destination.Decide(url, strings.ToUpper(method), g.Egress)
		reason := g.Where() + ": " + strings.Join(d.Reasons, "; ")
		if on := decides(file, g, in.Substrate); on == "" {
			d.Allowed = false
			reason += "; but it decides about no run: it has ended, does not give sprout.grow, or an earlier grant on the same Substrate does"
		}
		out.Reasons = append(out.Reasons, reason)
		if !d.Allowed || out.Permitted {
			continue
		}
		out.Permitted, out.Rule = true, g.Where()+" "+d.Reasons[0]
		out.Inspected = url.Scheme() == destination.HTTP || destination.DecideAuthority(url.Authority(), g.Egress).Inspect
		if out.Credentials, err = s.attachable(g, url, strings.ToUpper(method)); err != nil {
			return capability.EgressExplanation{}, err
		}
	}
	return out, nil
}

// decides returns a Substrate on which runs of the grant's Pollen have this grant, which is
// the first that covers them; "" if there is none. Only one Substrate is looked at if one is
// named.
func decides(file grant.File, g grant.Grant, substrate string) string {
	for _, name := range g.Substrates {
		if substrate != "" && string(name) != substrate {
			continue
		}
		d := file.Decide(grant.Request{Pollen: string(g.Pollen), Class: "sprout.grow", Substrate: string(name), Now: time.Now()})
		if d.Permitted && d.Grant.Line == g.Line {
			return string(name)
		}
	}
	return ""
}
