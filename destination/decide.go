package destination

import (
	"fmt"
	"strings"
)

// Decision is an answer with its reasons. The zero Decision allows nothing.
type Decision struct {
	Allowed bool `json:"allowed"`

	// Inspect is for an authority that is allowed: the connection has to be
	// terminated, and each request in it is a decision of its own. Otherwise it is a
	// tunnel that nobody looks into.
	Inspect bool `json:"inspect"`

	// Rule is the index of the first rule that allows it; -1 if none does.
	Rule int `json:"rule"`

	// Reasons say why: of an answer that allows, which rule; of one that does not,
	// for each rule that names the host, everything that is missing.
	Reasons []string `json:"reasons"`
}

func denied(reasons ...string) Decision { return Decision{Rule: -1, Reasons: reasons} }

// Decide says whether the rules permit a request. An empty list denies all; what one
// rule lacks no other makes up for. It is pure, total and safe for concurrent use.
func Decide(u URL, method string, rules []Rule) Decision {
	switch {
	case u == URL{}:
		return denied("there is no destination")
	case !Method(method).valid():
		return denied(fmt.Sprintf("%q is not a method in upper case", clip(method)))
	case method == "CONNECT":
		return denied("CONNECT is no request for a URL")
	}
	return decide(u.authority.Host, rules, func(r Rule) []string {
		var missing []string
		if r.scheme() != u.scheme {
			missing = append(missing, fmt.Sprintf("the scheme is %s, not %s", u.scheme, r.scheme()))
		}
		if r.port() != u.authority.Port {
			missing = append(missing, fmt.Sprintf("the port is %d, not %d", u.authority.Port, r.port()))
		}
		if !r.permitsMethod(Method(method)) {
			missing = append(missing, fmt.Sprintf("the method is %s, not %s", method, join(r.methods(), " or ")))
		}
		switch {
		case r.permitsPath(u):
		case u.climbs:
			missing = append(missing, "the path may be read as another one, and the rule is for some paths only")
		default:
			missing = append(missing, "the path is none of "+join(r.Paths, ", "))
		}
		return missing
	})
}

// DecideAuthority says whether the rules permit a connection to an authority, as a
// CONNECT request asks for. A rule with `methods: any` permits a tunnel; any other
// https rule permits a connection that is inspected. Of both, the tunnel is used:
// somebody wrote it out.
func DecideAuthority(a Authority, rules []Rule) Decision {
	if a == (Authority{}) {
		return denied("there is no destination")
	}
	missing := func(r Rule) []string {
		var missing []string
		if r.scheme() != HTTPS {
			missing = append(missing, "plain text needs no tunnel: ask for the URL")
		}
		if r.port() != a.Port {
			missing = append(missing, fmt.Sprintf("the port is %d, not %d", a.Port, r.port()))
		}
		return missing
	}
	tunnel := decide(a.Host, rules, func(r Rule) []string {
		if !r.Tunnel() {
			return []string{"it is no tunnel"}
		}
		return missing(r)
	})
	if tunnel.Allowed {
		return tunnel
	}
	inspected := decide(a.Host, rules, missing)
	inspected.Inspect = inspected.Allowed
	return inspected
}

// decide asks every rule that names the host what it misses.
func decide(host Host, rules []Rule, missing func(Rule) []string) Decision {
	if len(rules) == 0 {
		return denied("no destination is permitted")
	}
	var reasons []string
	for i, rule := range rules {
		if !rule.Host.Matches(host) {
			continue
		}
		lacks := missing(rule)
		if len(lacks) == 0 {
			return Decision{Allowed: true, Rule: i, Reasons: []string{fmt.Sprintf("%s permits it", rule.name(i))}}
		}
		reasons = append(reasons, rule.name(i)+" does not permit it: "+strings.Join(lacks, "; "))
	}
	if reasons == nil {
		return denied(fmt.Sprintf("no rule names the host %s", clip(host.String())))
	}
	return denied(reasons...)
}

// name is how reasons call the rule at an index, counted from 1 as people do.
func (r Rule) name(index int) string { return fmt.Sprintf("rule %d (%s)", index+1, r.Host) }

func join[T ~string](list []T, separator string) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = string(v)
	}
	return strings.Join(texts, separator)
}
