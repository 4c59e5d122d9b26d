package budget_test

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tendril/budget"
	"tendril/fault"
)

const list = `
version: 1
prices:
  - {route: anthropic, model: big-1, input: 3000000, output: 15000000, cache_read: 300000, cache_write: 3750000, max_input: 200000, max_output: 64000}
  - {route: openai, model: small, input: 250000, output: 2000000, cache_read: 25000, cache_write: 250000}
  - {route: openai, model: "big-1", input: 1, output: 1, cache_read: 1, cache_write: 1}
  - {route: openai, model: at-home, input: 0, output: 0, cache_read: 0, cache_write: 0, max_output: 100}
`

func prices(t testing.TB, text string) budget.Prices {
	t.Helper()
	p, err := budget.ParsePrices(budget.FileName, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func limit(n int64) *int64 { return &n }

func TestPrices(t *testing.T) {
	p := prices(t, list)
	got, ok := p.Lookup(budget.Anthropic, "big-1")
	want := budget.Price{Route: budget.Anthropic, Model: "big-1", Input: 3e6, Output: 15e6, CacheRead: 3e5, CacheWrite: 375e4, MaxInput: 2e5, MaxOutput: 64e3}
	if !ok || got != want {
		t.Errorf("%+v", got)
	}
	for _, other := range []string{"BIG-1", "big-1 ", "big", ""} {
		if _, ok := p.Lookup(budget.Anthropic, other); ok {
			t.Errorf("%q has a price", other)
		}
	}
	if names := strings.Join(p.Models(budget.OpenAI), " "); names != "small big-1 at-home" {
		t.Errorf("%s", names)
	}
}

func TestPricesRefuse(t *testing.T) {
	row := "  - {route: openai, model: m, input: 1, output: 1, cache_read: 1, cache_write: 1}\n"
	for name, c := range map[string]struct{ from, to, says string }{
		"a missing price":            {"input: 1, ", "", "has no input"},
		"a missing output":           {"output: 1, ", "", "has no output"},
		"a missing read":             {"cache_read: 1, ", "", "has no cache_read"},
		"a missing write":            {", cache_write: 1", "", "has no cache_write"},
		"a missing route":            {"route: openai, ", "", "has no route"},
		"a missing model":            {"model: m, ", "", "has no model"},
		"another route":              {"openai", "gemini", "is not a route"},
		"a negative price":           {"input: 1", "input: -1", "is not a price"},
		"a price in dollars":         {"input: 1", "input: 0.25", "whole number"},
		"a price as text":            {"input: 1", `input: "1"`, "whole number"},
		"a price beyond reason":      {"input: 1", "input: 1000000000001", "is not a price"},
		"a wildcard":                 {"model: m", `model: "m*"`, "not the name of a model"},
		"a model with a line in it":  {"model: m", `model: "m\nx"`, "not the name of a model"},
		"an output of nothing":       {"input: 1", "input: 1, max_output: 0", "not a number of tokens"},
		"an unknown key":             {"input: 1", "input: 1, inptu: 1", "did you mean"},
		"a model that comes twice":   {row, row + row, "comes twice; the first is on line 3"},
		"a price without a currency": {"input: 1", "input: 1 USD", "whole number"},
	} {
		text := strings.Replace("version: 1\nprices:\n"+row, c.from, c.to, 1)
		_, err := budget.ParsePrices(budget.FileName, []byte(text))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), budget.FileName+":") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBound(t *testing.T) {
	p := prices(t, list)
	spend := budget.Limits{Run: budget.Limit{Spend: limit(1)}}
	tokens := budget.Limits{Day: budget.Limit{Tokens: limit(1)}}
	for name, c := range map[string]struct {
		request budget.Request
		limits  budget.Limits
		want    budget.Amount
		denied  bool
	}{
		"all input written to the cache":        {budget.Request{budget.Anthropic, "big-1", 1000, 100, 1}, spend, budget.Amount{1100, 3750 + 1500}, false},
		"no more than the context":              {budget.Request{budget.Anthropic, "big-1", 1 << 24, 100, 1}, spend, budget.Amount{200_100, 750_000 + 1500}, false},
		"no more than the model gives":          {budget.Request{budget.Anthropic, "big-1", 0, 1e9, 1}, spend, budget.Amount{64_000, 960_000}, false},
		"what the model gives, where not said":  {budget.Request{budget.Anthropic, "big-1", 0, 0, 1}, spend, budget.Amount{64_000, 960_000}, false},
		"each copy":                             {budget.Request{budget.OpenAI, "small", 8, 10, 3}, spend, budget.Amount{38, 2 + 60}, false},
		"rounded up":                            {budget.Request{budget.OpenAI, "small", 1, 0, 1}, budget.Limits{}, budget.Amount{1, 1}, false},
		"free":                                  {budget.Request{budget.OpenAI, "at-home", 5, 0, 1}, spend, budget.Amount{105, 0}, false},
		"a model without a price, spend":        {budget.Request{budget.OpenAI, "new", 5, 5, 1}, spend, budget.Amount{}, true},
		"a model without a price, tokens":       {budget.Request{budget.OpenAI, "new", 5, 5, 1}, tokens, budget.Amount{10, 0}, false},
		"a model without a price, no limit":     {budget.Request{budget.OpenAI, "new", 5, 0, 1}, budget.Limits{}, budget.Amount{5, 0}, false},
		"no bound of the output, spend":         {budget.Request{budget.OpenAI, "small", 5, 0, 1}, spend, budget.Amount{}, true},
		"no bound of the output, tokens":        {budget.Request{budget.OpenAI, "small", 5, 0, 1}, tokens, budget.Amount{}, true},
		"no bound of the output, no limit":      {budget.Request{budget.OpenAI, "small", 4, 0, 1}, budget.Limits{}, budget.Amount{4, 1}, false},
		"copies beyond counting":                {budget.Request{budget.OpenAI, "small", 4, math.MaxInt64, 2}, spend, budget.Amount{}, true},
		"copies whose product wraps to nothing": {budget.Request{budget.OpenAI, "small", 4, 1 << 62, 4}, spend, budget.Amount{}, true},
		"more money than can be counted":        {budget.Request{budget.OpenAI, "small", 4, math.MaxInt64, 1}, spend, budget.Amount{}, true},
	} {
		got, err := p.Bound(c.request, c.limits)
		if got != c.want || fault.Is(err, fault.Denied) != c.denied || (err != nil) != c.denied {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for _, wrong := range []budget.Request{{Input: -1, Copies: 1}, {Output: -1, Copies: 1}, {}} {
		if _, err := p.Bound(wrong, budget.Limits{}); !fault.Is(err, fault.Internal) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func TestCost(t *testing.T) {
	p := prices(t, list)
	got, err := p.Cost(budget.Anthropic, "big-1", budget.Usage{Input: 1000, Output: 100, CacheRead: 10, CacheWrite: 1})
	if want := (budget.Amount{1111, 3000 + 1500 + 3 + 4}); got != want || err != nil { // 3.75 are 4
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got, err := p.Cost(budget.Anthropic, "new", budget.Usage{Input: 7}); got != (budget.Amount{7, 0}) || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, absurd := range []budget.Usage{{Input: -1}, {Output: -1}, {CacheRead: -1}, {CacheWrite: -1}, {Output: 1<<40 + 1}, {Input: math.MaxInt64}} {
		if got, err := p.Cost(budget.Anthropic, "big-1", absurd); !fault.Is(err, fault.Invalid) || got != (budget.Amount{}) {
			t.Errorf("%+v: %+v, %v", absurd, got, err)
		}
	}
}

func TestCheck(t *testing.T) {
	limits := budget.Limits{
		Run: budget.Limit{Tokens: limit(100), Spend: limit(2_500_000)},
		Day: budget.Limit{Tokens: limit(1000), Spend: limit(9_000_000)},
	}
	for name, c := range map[string]struct {
		limits          budget.Limits
		run, day, asked budget.Amount
		unit            budget.Unit
		scope           budget.Scope
	}{
		"room":             {limits, budget.Amount{50, 0}, budget.Amount{500, 0}, budget.Amount{50, 2_500_000}, "", ""},
		"the run's tokens": {limits, budget.Amount{51, 0}, budget.Amount{51, 0}, budget.Amount{50, 0}, budget.Tokens, budget.OfRun},
		"the run's spend":  {limits, budget.Amount{}, budget.Amount{}, budget.Amount{1, 2_500_001}, budget.Spend, budget.OfRun},
		"the day's tokens": {limits, budget.Amount{}, budget.Amount{951, 0}, budget.Amount{50, 0}, budget.Tokens, budget.OfDay},
		"the day's spend":  {limits, budget.Amount{}, budget.Amount{0, 8_999_999}, budget.Amount{0, 2}, budget.Spend, budget.OfDay},
		"used beyond it":   {limits, budget.Amount{101, 0}, budget.Amount{}, budget.Amount{}, budget.Tokens, budget.OfRun},
		"no limit":         {budget.Limits{}, budget.Amount{1 << 60, 1 << 60}, budget.Amount{1 << 60, 1 << 60}, budget.Amount{1 << 60, 1 << 60}, "", ""},
		"beyond counting":  {budget.Limits{}, budget.Amount{1 << 62, 0}, budget.Amount{}, budget.Amount{1 << 62, 0}, budget.Tokens, budget.OfRun},
	} {
		err := c.limits.Check(c.run, c.day, c.asked)
		var exceeded *budget.Exceeded
		if !errors.As(err, &exceeded) {
			if exceeded = (&budget.Exceeded{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if exceeded.Unit != c.unit || exceeded.Scope != c.scope || (err != nil && !fault.Is(err, fault.Denied)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := limits.Check(budget.Amount{0, 1_000_000}, budget.Amount{}, budget.Amount{1, 2_000_000})
	const says = "of the 2.500000 USD for this run, 1.000000 USD are used or reserved, and the request can come to 2.000000 USD"
	if err == nil || err.Error() != says {
		t.Error(err)
	}
}

// counts are small ones and such at which arithmetic wraps.
var counts = rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 1<<40), rapid.Int64Range(math.MaxInt64-3, math.MaxInt64))

// No usage that a request allows costs more than its bound.
func TestNoUsageWithinARequestExceedsItsBound(t *testing.T) {
	p := prices(t, list)
	rapid.Check(t, func(t *rapid.T) {
		model := rapid.SampledFrom(p.Models(budget.OpenAI)).Draw(t, "model")
		r := budget.Request{budget.OpenAI, model, counts.Draw(t, "input"), counts.Draw(t, "output"), rapid.Int64Range(1, 8).Draw(t, "copies")}
		bound, err := p.Bound(r, budget.Limits{Run: budget.Limit{Spend: limit(1)}})
		if err != nil {
			return
		}
		price, _ := p.Lookup(budget.OpenAI, model)
		most := r.Output
		if price.MaxOutput > 0 && (most == 0 || most > price.MaxOutput) {
			most = price.MaxOutput
		}
		u := budget.Usage{Output: rapid.Int64Range(0, min(most*r.Copies, 1<<40)).Draw(t, "answered")}
		left := min(r.Input, 1<<40)
		u.CacheRead = rapid.Int64Range(0, left).Draw(t, "read")
		u.CacheWrite = rapid.Int64Range(0, left-u.CacheRead).Draw(t, "written")
		u.Input = rapid.Int64Range(0, left-u.CacheRead-u.CacheWrite).Draw(t, "plain")
		came, err := p.Cost(budget.OpenAI, model, u)
		if err != nil || came.Tokens > bound.Tokens || came.Spend > bound.Spend {
			t.Errorf("%+v came to %+v, %v; bound %+v", u, came, err, bound)
		}
	})
}

// An amount is the one of arithmetic without bounds, rounded up, or is refused.
func TestCostIsExact(t *testing.T) {
	p := prices(t, list)
	rapid.Check(t, func(t *rapid.T) {
		u := budget.Usage{counts.Draw(t, "in"), counts.Draw(t, "out"), counts.Draw(t, "read"), counts.Draw(t, "write")}
		price, _ := p.Lookup(budget.Anthropic, "big-1")
		sum := new(big.Int)
		for _, part := range [][2]int64{{u.Input, price.Input}, {u.Output, price.Output}, {u.CacheRead, price.CacheRead}, {u.CacheWrite, price.CacheWrite}} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
		}
		sum.Add(sum, big.NewInt(999_999)).Div(sum, big.NewInt(1_000_000))
		got, err := p.Cost(budget.Anthropic, "big-1", u)
		if err == nil && (!sum.IsInt64() || sum.Int64() != got.Spend) {
			t.Errorf("%+v comes to %d, want %s", u, got.Spend, sum)
		}
	})
}

// A bound is the one of arithmetic without bounds, or is refused.
func TestBoundIsExact(t *testing.T) {
	p := prices(t, list)
	rapid.Check(t, func(t *rapid.T) {
		r := budget.Request{budget.OpenAI, "small", counts.Draw(t, "input"), counts.Draw(t, "output"), rapid.Int64Range(1, 1000).Draw(t, "copies")}
		output := new(big.Int).Mul(big.NewInt(r.Output), big.NewInt(r.Copies))
		spend := new(big.Int).Mul(big.NewInt(r.Input), big.NewInt(250_000))
		spend.Add(spend, new(big.Int).Mul(output, big.NewInt(2_000_000)))
		spend.Add(spend, big.NewInt(999_999)).Div(spend, big.NewInt(1_000_000))
		got, err := p.Bound(r, budget.Limits{})
		if fits := output.IsInt64() && spend.IsInt64(); fits != (err == nil) || fits && spend.Int64() != got.Spend {
			t.Errorf("%+v is bounded by %+v, %v; want %s", r, got, err, spend)
		}
	})
}

func TestAmounts(t *testing.T) {
	most := budget.Amount{math.MaxInt64, math.MaxInt64}
	if got := most.Add(budget.Amount{1, math.MaxInt64}); got != most {
		t.Errorf("%+v", got)
	}
	if got := (budget.Amount{1, 5}).Less(budget.Amount{2, 2}); got != (budget.Amount{0, 3}) {
		t.Errorf("%+v", got)
	}
	if (budget.Amount{-1, 0}).IsValid() || (budget.Amount{0, -1}).IsValid() || !most.IsValid() {
		t.Error("validity")
	}
}
