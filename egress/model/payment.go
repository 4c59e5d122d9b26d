package model

import (
	"context"
	"errors"
	"math"
	"time"

	"tendril/budget"
	"tendril/fault"
)

// payment is what is reserved for one call. It is settled or kept once.
type payment struct {
	route *Route
	id    int64
	model string
	bound budget.Amount
	most  int64 // tokens of a report that is believed
	free  bool  // nothing is counted
	done  bool
}

// pay reserves what a request can come to. While another call of the run is open, its
// reservation may yet make room: only what has no room then is refused for good.
func (r *Route) pay(ctx context.Context, path string, e endpoint, q *request) (*payment, error) {
	if !e.counted {
		return &payment{free: true}, nil
	}
	bound, err := r.config.Prices.Bound(r.budgetOf(q), q.terms.Limits)
	call := Call{r.config.Route, path, q.model, bound, q.terms.Limits, q.removed}
	if err != nil {
		return nil, r.refused(ctx, call, err)
	}
	for {
		id, wait, err := r.reserve(ctx, call)
		var exceeded *budget.Exceeded
		switch {
		case err == nil:
			return &payment{route: r, id: id, model: q.model, bound: bound, most: r.believed(q, bound)}, nil
		case fault.Is(err, fault.Denied) && !errors.As(err, &exceeded):
			return nil, err
		case exceeded == nil:
			return nil, notRecorded
		case wait == nil:
			r.exceeded(exceeded.Unit)
			return nil, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// notRecorded is said inside in the place of what failed: that names places of the host.
var notRecorded = fault.New(fault.Unavailable, "the request could not be recorded, and nothing goes on without a record").
	WithHint("the Botanist can see why")

// reserve also returns what to wait for if it fails while other calls are open.
func (r *Route) reserve(ctx context.Context, c Call) (id int64, wait <-chan struct{}, err error) {
	r.paying.Lock()
	defer r.paying.Unlock()
	if id, err = r.config.Accounts.Reserve(ctx, c); err == nil {
		r.open++
	} else if r.open > 0 {
		wait = r.changed
	}
	return id, wait, err
}

func (r *Route) exceeded(unit budget.Unit) {
	if r.config.Exceeded != nil {
		r.config.Exceeded(unit)
	}
}

// settleTimeout bounds how long an outcome is recorded after its request has ended.
const settleTimeout = 15 * time.Second

// close settles the payment if the usage is reported, and keeps it otherwise.
func (p *payment) close(ctx context.Context, o Outcome, reported bool) error {
	if p.free || p.done {
		return nil
	}
	p.done = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	came, err := p.cost(o.Usage)
	o.Absurd = o.Absurd || reported && (err != nil || came.Tokens > p.most)
	if reported && !o.Absurd {
		o.Came = came
		err = p.route.config.Accounts.Settle(ctx, p.id, o)
	} else {
		o.Usage = budget.Usage{}
		err = p.route.config.Accounts.Keep(ctx, p.id, o)
	}
	p.route.paying.Lock()
	defer p.route.paying.Unlock()
	p.route.open--
	close(p.route.changed)
	p.route.changed = make(chan struct{})
	if err != nil {
		return notRecorded
	}
	return nil
}

func (p *payment) cost(u budget.Usage) (budget.Amount, error) {
	return p.route.config.Prices.Cost(p.route.config.Route, p.model, u)
}

// within reports whether all that is reserved is within what a usage comes to.
func (p *payment) within(u budget.Usage) bool {
	if p.free {
		return false
	}
	came, err := p.cost(u)
	return err == nil && came.Tokens >= p.bound.Tokens && came.Spend >= p.bound.Spend
}

// A report is believed up to so many times what was reserved, because a bound can be wrong
// (a provider adds more by itself, or heeds no limit of output). What nothing bounds, an
// answer without a limit or what a server-side tool finds, is taken for so much.
const (
	mostMistaken = 16
	unbounded    = 1 << 20
)

// believed is the most tokens that a provider can report of a request: more of them is
// beyond mistakes, and beyond what the model takes and gives where the price list knows it.
func (r *Route) believed(q *request, bound budget.Amount) int64 {
	price, _ := r.config.Prices.Lookup(r.config.Route, q.model)
	of := r.budgetOf(q)
	if r.config.Prices.MostOutput(of) == 0 || len(q.terms.Permit.Tools) > 0 || len(q.terms.Permit.Fields) > 0 {
		bound = bound.Add(budget.Amount{Tokens: unbounded})
	}
	most := min(bound.Tokens, math.MaxInt64/mostMistaken) * mostMistaken
	of.Output = 0 // whatever it asks for
	if output := r.config.Prices.MostOutput(of); price.MaxInput > 0 && output > 0 {
		most = max(most, budget.Amount{Tokens: price.MaxInput}.Add(budget.Amount{Tokens: output}).Tokens)
	}
	return most
}
