// Package budget is the arithmetic of what model requests may cost: prices, the most
// that a request can come to, what a reported usage came to, and whether limits hold.
//
// It promises that an amount is exact integer arithmetic that rounds up, that what does
// not fit is refused and never wraps, and that a request whose cost has no bound is
// refused where a limit asks for one. It touches nothing; package state holds what was
// reserved and spent.
//
// It believes the price list: who writes a price too low is billed more than he sees
// here. And it believes that a token is at least one byte of a request and that a model
// gives no more than it was told to.
package budget

import (
	"fmt"
	"math"
	"math/bits"

	"tendril/fault"
)

// Amount is what one or several requests cost or can cost.
type Amount struct {
	Tokens int64 // in and out, cached ones too
	Spend  int64 // micro-USD
}

// Add returns the sum. What does not fit becomes the largest number, which is beyond
// every limit but that number itself.
func (a Amount) Add(b Amount) Amount { return Amount{add(a.Tokens, b.Tokens), add(a.Spend, b.Spend)} }

// Less returns the difference, or nothing where that were negative.
func (a Amount) Less(b Amount) Amount {
	return Amount{max(a.Tokens-b.Tokens, 0), max(a.Spend-b.Spend, 0)}
}

// add is for counts, which are not negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// IsValid reports whether both counts are counts.
func (a Amount) IsValid() bool { return a.Tokens >= 0 && a.Spend >= 0 }

// Usage is what a provider reports of one request, each token counted once.
type Usage struct {
	Input      int64 // neither read from nor written to a cache
	Output     int64 // reasoning included
	CacheRead  int64
	CacheWrite int64
}

// Request is what a bound depends on.
type Request struct {
	Route  Route
	Model  string
	Input  int64 // the most tokens it can be: its bytes, and what its media can add
	Output int64 // the most tokens of each answer, as the request says; 0: it does not say
	Copies int64 // how many answers it asks for, at least 1
}

// Limit bounds what is spent. What is nil is not bounded.
type Limit struct {
	Tokens *int64
	Spend  *int64 // micro-USD
}

// Limits are in force at once.
type Limits struct {
	Run Limit // of one run
	Day Limit // of one Pollen on one day of UTC
}

func (l Limits) boundSpend() bool { return l.Run.Spend != nil || l.Day.Spend != nil }

func (l Limits) boundTokens() bool { return l.Run.Tokens != nil || l.Day.Tokens != nil }

// Bound returns the most that a request can come to, at the dearest price of its model.
//
// Refused as a fault of the kind denied are, under a spend limit, a model without a
// price, and under any limit a request that says no limit of its output where the price
// list says none either. Without limits, what is not known counts as nothing.
func (p Prices) Bound(r Request, l Limits) (Amount, error) {
	if r.Input < 0 || r.Output < 0 || r.Copies < 1 {
		return Amount{}, fault.New(fault.Internal, "a request has %d tokens and asks for %d times %d more", r.Input, r.Copies, r.Output)
	}
	price, known := p.Lookup(r.Route, r.Model)
	if !known && l.boundSpend() {
		return Amount{}, fault.New(fault.Denied, "the model %q of %s has no price", clip(r.Model), r.Route).
			WithRule("under a spend limit a model without a price is refused").
			WithHint("the Botanist can add it to %s", FileName)
	}
	output, high := r.mostOutput(price)
	if output == 0 && (l.boundTokens() || l.boundSpend()) {
		return Amount{}, fault.New(fault.Denied, "nothing bounds what the model %q of %s may answer", clip(r.Model), r.Route).
			WithRule("under a limit a request needs a bound of its own").
			WithHint("set the most output tokens in the request, or have the Botanist add max_output to the model in %s", FileName)
	}
	input := r.Input
	if price.MaxInput > 0 {
		input = min(input, price.MaxInput)
	}
	spend, fits := cost(pair{input, max(price.Input, price.CacheRead, price.CacheWrite)}, pair{output, price.Output})
	if high || !fits {
		return Amount{}, fault.New(fault.Denied, "a request for %d answers of the model %q has no bound that can be counted", r.Copies, clip(r.Model)).
			WithHint("ask for fewer or shorter answers")
	}
	return Amount{Tokens: add(input, output), Spend: spend}, nil
}

// MostOutput returns how many tokens all answers to a request can have together; 0: it is
// not known.
func (p Prices) MostOutput(r Request) int64 {
	price, _ := p.Lookup(r.Route, r.Model)
	most, high := r.mostOutput(price)
	if high {
		return 0
	}
	return most
}

// mostOutput also reports whether it does not fit.
func (r Request) mostOutput(price Price) (most int64, high bool) {
	each := r.Output
	if each == 0 || price.MaxOutput > 0 && price.MaxOutput < each {
		each = price.MaxOutput
	}
	over, product := bits.Mul64(uint64(each), uint64(r.Copies))
	return int64(product), over != 0 || product > math.MaxInt64
}

// mostReported is beyond what any one request can use; a report of more is none.
const mostReported = 1 << 40

// Cost returns what a reported usage comes to; a model without a price costs nothing.
// A report of a negative or an absurd count is a fault of the kind invalid.
func (p Prices) Cost(route Route, model string, u Usage) (Amount, error) {
	for _, count := range []int64{u.Input, u.Output, u.CacheRead, u.CacheWrite} {
		if count < 0 || count > mostReported {
			return Amount{}, fault.New(fault.Invalid, "a usage of %d tokens was reported", count)
		}
	}
	price, _ := p.Lookup(route, model)
	spend, fits := cost(pair{u.Input, price.Input}, pair{u.Output, price.Output}, pair{u.CacheRead, price.CacheRead}, pair{u.CacheWrite, price.CacheWrite})
	if !fits {
		return Amount{}, fault.New(fault.Invalid, "the usage that was reported costs more than can be counted")
	}
	return Amount{Tokens: u.Input + u.Output + u.CacheRead + u.CacheWrite, Spend: spend}, nil
}

// pair is a count of tokens and their price in micro-USD per million.
type pair struct{ tokens, price int64 }

const million = 1_000_000

// cost is the sum in micro-USD, rounded up once; it takes at most four pairs, whose sum
// fits into 128 bits, and reports whether the result fits.
func cost(pairs ...pair) (int64, bool) {
	high, low := uint64(0), uint64(million-1)
	for _, p := range pairs {
		h, l := bits.Mul64(uint64(p.tokens), uint64(p.price))
		var carry uint64
		low, carry = bits.Add64(low, l, 0)
		high, _ = bits.Add64(high, h, carry)
	}
	if high >= million {
		return 0, false
	}
	quotient, _ := bits.Div64(high, low, million)
	return int64(quotient), quotient <= math.MaxInt64
}

// Unit is what a limit counts. The words are those of a run's limits.
type Unit string

// The units.
const (
	Tokens Unit = "tokens"
	Spend  Unit = "spend"
)

// Scope is whom a limit bounds.
type Scope string

// The scopes.
const (
	OfRun Scope = "run"
	OfDay Scope = "day"
)

// Exceeded is the error of a limit that does not hold. It is the cause of the fault
// that [Limits.Check] returns: use errors.As.
type Exceeded struct {
	Unit  Unit
	Scope Scope
	Most  int64 // tokens, or micro-USD
	Used  int64 // settled and reserved
	Asked int64 // what a request could come to
}

func (e *Exceeded) Error() string {
	of := map[Scope]string{OfRun: "this run", OfDay: "this Pollen today"}[e.Scope]
	return fmt.Sprintf("of the %s for %s, %s are used or reserved, and the request can come to %s",
		e.amount(e.Most), of, e.amount(e.Used), e.amount(e.Asked))
}

func (e *Exceeded) amount(n int64) string {
	if e.Unit == Spend {
		return fmt.Sprintf("%d.%06d USD", n/million, n%million)
	}
	return fmt.Sprintf("%d tokens", n)
}

// Check refuses a request of the amount asked where run, which its run has used, or day,
// which its Pollen has used today, leave no room for it: a fault of the kind denied
// whose cause is an [*Exceeded].
func (l Limits) Check(run, day, asked Amount) error {
	for _, one := range []struct {
		most        *int64
		unit        Unit
		scope       Scope
		used, asked int64
	}{
		{l.Run.Tokens, Tokens, OfRun, run.Tokens, asked.Tokens},
		{l.Run.Spend, Spend, OfRun, run.Spend, asked.Spend},
		{l.Day.Tokens, Tokens, OfDay, day.Tokens, asked.Tokens},
		{l.Day.Spend, Spend, OfDay, day.Spend, asked.Spend},
	} {
		most := int64(math.MaxInt64) // what can be counted bounds every sum
		if one.most != nil {
			most = *one.most
		}
		if one.used <= most && one.asked <= most-one.used {
			continue
		}
		exceeded := &Exceeded{one.unit, one.scope, most, one.used, one.asked}
		return fault.New(fault.Denied, "%w", exceeded).WithRule(string(one.unit) + " of the grant, per " + string(one.scope)).
			WithHint("ask the Botanist for more, or set a smaller limit of output in the request")
	}
	return nil
}
