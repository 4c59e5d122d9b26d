//go:build linux

package stem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	neturl "net/url"
	"slices"
	"strings"
	"time"

	"tendril/budget"
	"tendril/destination"
	"tendril/egress/model"
	"tendril/egress/proxy"
	"tendril/fault"
	"tendril/grant"
	"tendril/ledger"
	"tendril/run"
	"tendril/site"
	"tendril/state"
	"tendril/stoma"
	"tendril/terrarium"
)

// modelRoute is one provider's interface on the loopback inside.
type modelRoute struct {
	name   budget.Route
	port   uint16
	server *http.Server
}

// modelPorts are where programs inside find the routes.
var modelPorts = map[budget.Route]uint16{budget.Anthropic: 3129, budget.OpenAI: 3130}

// providers are where the routes lead when the Botanist says nothing else.
var providers = map[budget.Route]string{budget.Anthropic: "https://api.anthropic.com", budget.OpenAI: "https://api.openai.com"}

// modelIdle is how long a connection inside may wait for a model: some think for long.
const modelIdle = 15 * time.Minute

func (m *modelRoute) listener() terrarium.Listener {
	return terrarium.Listener{Name: "model-" + string(m.name), Port: m.port, Serve: func(conn *stoma.Stream) { proxy.ServeConn(m.server, conn, modelIdle) }}
}

// openRoutes makes the routes that the grant names.
func (r *reach) openRoutes() error {
	if r.grant.Models == nil {
		return nil
	}
	prices, err := r.stem.pricesFile.Current()
	if err != nil {
		return err
	}
	fields, err := r.stem.fieldsFile.Current()
	if err != nil {
		return err
	}
	if fields == nil {
		fields = new(model.BuiltIn())
	}
	for _, named := range r.grant.Models {
		rule, base, err := r.stem.routeRule(named.Route)
		if err != nil {
			return err
		}
		to, err := destination.Parse(base.String())
		if err != nil {
			return err
		}
		leads := func(g grant.Grant) []destination.Rule { // as long as the grant names the route
			if _, ok := routeOf(g, named.Route); ok {
				return []destination.Rule{rule}
			}
			return nil
		}
		route, err := model.New(model.Config{
			Route: named.Route, Base: base,
			Upstream: r.proxy.RoundTripper(gate{r, leads}),
			Accounts: account{r, to}, Prices: prices, Fields: *fields, Terms: r.terms(named.Route),
			Exceeded: func(unit budget.Unit) { r.exceed(run.Limit(unit)) },
		})
		if err != nil {
			return err
		}
		r.routes = append(r.routes, &modelRoute{named.Route, modelPorts[named.Route], route.Server()})
	}
	return nil
}

// routeRule is what a route may reach: its provider's endpoints, by POST.
func (s *Stem) routeRule(name budget.Route) (destination.Rule, *neturl.URL, error) {
	configured := map[budget.Route]*site.Route{budget.Anthropic: s.config.Routes.Anthropic, budget.OpenAI: s.config.Routes.OpenAI}[name]
	text, networks := providers[name], []destination.Network(nil)
	if configured != nil {
		text, networks = configured.URL.String(), configured.Networks
	}
	url, err := destination.Parse(text)
	if err != nil {
		return destination.Rule{}, nil, err
	}
	base, err := neturl.Parse(strings.TrimSuffix(url.String(), "/"))
	if err != nil {
		return destination.Rule{}, nil, fault.New(fault.Invalid, "the route %s: %w", name, err)
	}
	host, err := destination.ParsePattern(url.Authority().Host.String())
	if err != nil {
		return destination.Rule{}, nil, err
	}
	return destination.Rule{
		Host: host, Scheme: url.Scheme(), Port: url.Authority().Port, Methods: destination.Methods{"POST"},
		Paths: []destination.PathPattern{destination.PathPattern(strings.TrimSuffix(url.Path(), "/") + "/v1/*")}, Networks: networks,
	}, base, nil
}

// terms are what the grant says of a route when they are asked for.
func (r *reach) terms(name budget.Route) func() (model.Terms, error) {
	return func() (model.Terms, error) {
		if holding := r.holding(); holding != nil {
			if m, ok := routeOf(*holding, name); ok {
				return model.Terms{Permit: permitOf(m), Limits: budgetOf(*holding)}, nil
			}
		}
		return model.Terms{}, fault.New(fault.Denied, "no grant gives this run the models of %s any more", name).
			WithHint("the Botanist can name them in %s", r.grant.Where())
	}
}

func routeOf(g grant.Grant, name budget.Route) (grant.ModelRoute, bool) {
	i := slices.IndexFunc(g.Models, func(m grant.ModelRoute) bool { return m.Route == name })
	if i < 0 {
		return grant.ModelRoute{}, false
	}
	return g.Models[i], true
}

func permitOf(m grant.ModelRoute) model.Permit {
	return model.Permit{Models: texts(m.Models), Tools: texts(m.Tools), Fields: texts(m.Fields), Strict: m.Strict}
}

func texts[T ~string](words []T) []string {
	var list []string
	for _, word := range words {
		list = append(list, string(word))
	}
	return list
}

// budgetOf is what the models of a grant may cost.
func budgetOf(g grant.Grant) budget.Limits {
	return budget.Limits{
		Run: budget.Limit{Tokens: (*int64)(g.Limits.Tokens), Spend: (*int64)(g.Limits.Spend)},
		Day: budget.Limit{Tokens: (*int64)(g.Daily.Tokens), Spend: (*int64)(g.Daily.Spend)},
	}
}

// account pays for the model calls of one run, out of what its grant has.
type account struct {
	*reach
	to destination.URL // where its route leads
}

// Reserve implements [model.Accounts].
func (a account) Reserve(ctx context.Context, c model.Call) (int64, error) {
	asked := string(c.Route) + " " + c.Model
	id, err := a.stem.state.Reserve(ctx, state.Reservation{
		Run: a.run, Pollen: a.call.actor.Name(), At: time.Now(), Bound: c.Bound, Limits: c.Limits,
	}, a.row("model.reserved", asked+without(c.Removed), ""))
	var why *fault.Error
	switch {
	case fault.Is(err, fault.Denied) && errors.As(err, &why) && a.first("refused "+asked):
		// The same is asked again while a request waits for another one, and is one decision.
		return id, errors.Join(err, a.refuse(ctx, asked, why.Rule, why))
	case err == nil:
		for _, name := range c.Removed {
			a.once("taken out of requests to " + string(c.Route) + ": " + name)
		}
	}
	return id, err
}

// row is the ledger's row for what becomes of a model request.
func (a account) row(change, target, state string) ledger.Entry {
	e := a.call.change(change, target)
	e.Run, e.State = string(a.run), state
	return e
}

// without says what was taken out of a request. The ledger cuts it where it is too long.
func without(removed []string) string {
	if len(removed) == 0 {
		return ""
	}
	return " without " + strings.Join(removed, ", ")
}

// Refused implements [model.Accounts]. It counts as a request to where the route leads.
func (a account) Refused(ctx context.Context, c model.Call, why *fault.Error) error {
	where := a.grant.Where()
	if holding := a.holding(); holding != nil {
		where = holding.Where()
	}
	rule := where + ": " + why.Detail
	if why.Rule != "" {
		rule += " (" + why.Rule + ")"
	}
	if !a.count(a.to.Origin(), rule, false) {
		return tooMuch
	}
	err := a.refuse(ctx, string(c.Route)+" "+cmp.Or(c.Model, c.Endpoint, "-"), rule, why)
	a.tell(run.EgressDecision{Destination: a.to.Origin(), Method: "-", Rule: rule, Failure: string(proxy.Refused)})
	return err
}

// refuse records that a model request was refused.
func (a account) refuse(ctx context.Context, asked, rule string, why *fault.Error) error {
	e := a.call.entry(ledger.Decision)
	e.Of, e.Run, e.Capability, e.Target = &a.call.row, string(a.run), "egress.model", asked
	e.Decision, e.Fault, e.Rule = ledger.Deny, string(why.Kind), rule
	_, err := a.stem.state.Record(context.WithoutCancel(ctx), e)
	return err
}

// Settle implements [model.Accounts].
func (a account) Settle(ctx context.Context, id int64, o model.Outcome) error {
	return a.stem.state.Settle(ctx, id, o.Came, a.row("model.settled", fmt.Sprintf("%d tokens, %d micro-USD", o.Came.Tokens, o.Came.Spend), endOfCall(o)))
}

// Keep implements [model.Accounts].
func (a account) Keep(ctx context.Context, id int64, o model.Outcome) error {
	why := "no usage was reported"
	if o.Absurd {
		why = "the usage that was reported is more than the request can have come to"
		a.once("a model request is counted as what was reserved for it: " + why)
	}
	return a.stem.state.Keep(ctx, id, a.row("model.kept", "what was reserved: "+why, endOfCall(o)))
}

func endOfCall(o model.Outcome) string {
	if !o.Ended {
		return fmt.Sprintf("%d, cut", o.Status)
	}
	return fmt.Sprint(o.Status)
}

// usage is what the models of a run came to; nil if it has none.
func (r *reach) usage(ctx context.Context) (*run.Usage, error) {
	if r == nil || r.grant.Models == nil {
		return nil, nil
	}
	spent, err := r.stem.state.Spent(ctx, r.run)
	if err != nil {
		return nil, err
	}
	return &run.Usage{Tokens: spent.Total().Tokens, MicroUSD: spent.Total().Spend}, nil
}

// placeholder is in the place of a key inside: agents want one to be there.
const placeholder = "tendril-attaches-the-key-outside"

// modelEnv is where agents look for their models.
func modelEnv(models grant.Models) []string {
	var env []string
	for _, m := range models {
		switch m.Route {
		case budget.Anthropic:
			env = append(env, "ANTHROPIC_BASE_URL="+loopback(modelPorts[m.Route]), "ANTHROPIC_API_KEY="+placeholder)
		case budget.OpenAI:
			env = append(env, "OPENAI_BASE_URL="+loopback(modelPorts[m.Route])+"/v1", "OPENAI_API_BASE="+loopback(modelPorts[m.Route])+"/v1", "OPENAI_API_KEY="+placeholder)
		}
	}
	return env
}
