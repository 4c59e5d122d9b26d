package budget

import (
	"slices"
	"strings"

	"tendril/fault"
	"tendril/strictyaml"
)

// FileName is the name of the price list in the configuration directory.
const FileName = "prices.yaml"

// Route is the interface of a model provider, whose models have prices of their own.
type Route string

// The routes.
const (
	Anthropic Route = "anthropic"
	OpenAI    Route = "openai"
)

// UnmarshalText refuses every other word.
func (r *Route) UnmarshalText(text []byte) error {
	switch route := Route(text); route {
	case Anthropic, OpenAI:
		*r = route
		return nil
	}
	return fault.New(fault.Invalid, "%q is not a route", clip(string(text))).WithHint("write %s or %s", Anthropic, OpenAI)
}

// Price is what one model costs, in micro-USD per million tokens, and how much it can
// take and give at once, in tokens; 0: not known.
type Price struct {
	Route Route
	Model string // exactly as requests name it

	Input, Output, CacheRead, CacheWrite int64

	MaxInput, MaxOutput int64
}

// Prices is a price list. The zero Prices knows no model. It is safe for concurrent use.
type Prices struct{ list []Price }

// ParsePrices decodes a price list. file is the file's as errors give it; every refusal
// is a fault of the kind invalid with file and line.
func ParsePrices(file string, text []byte) (Prices, error) {
	decoded, err := strictyaml.Decode[priceFile](file, text)
	if err != nil {
		return Prices{}, err
	}
	var prices Prices
	lines := map[modelName]strictyaml.Line{}
	for _, row := range decoded.Prices {
		key := modelName{*row.Route, *row.Model}
		if first, ok := lines[key]; ok {
			return Prices{}, fault.New(fault.Invalid, "%s:%d: the model %s of %s comes twice; the first is on line %d", file, row.Line, *row.Model, *row.Route, first)
		}
		lines[key] = row.Line
		prices.list = append(prices.list, row.price())
	}
	return prices, nil
}

// modelName is what requests name a model by: two routes may use one word for two models.
type modelName struct {
	route Route
	model name
}

type priceFile struct {
	Version int   `yaml:"version"`
	Prices  []row `yaml:"prices"`
}

// row is a Price as it is written. Its keys are pointers, because a price that is not
// there is not a price of nothing.
type row struct {
	Line strictyaml.Line `yaml:"-"`

	Route      *Route `yaml:"route"`
	Model      *name  `yaml:"model"`
	Input      *micro `yaml:"input"`
	Output     *micro `yaml:"output"`
	CacheRead  *micro `yaml:"cache_read"`
	CacheWrite *micro `yaml:"cache_write"`
	MaxInput   tokens `yaml:"max_input"`
	MaxOutput  tokens `yaml:"max_output"`
}

// Validate refuses a row that leaves out what a bound on spend needs.
func (r row) Validate() error {
	for _, required := range []struct {
		key     string
		present bool
	}{
		{"route", r.Route != nil}, {"model", r.Model != nil}, {"input", r.Input != nil}, {"output", r.Output != nil},
		{"cache_read", r.CacheRead != nil}, {"cache_write", r.CacheWrite != nil},
	} {
		if !required.present {
			return fault.New(fault.Invalid, "the price has no %s", required.key).
				WithHint("write route, model, and the four prices in micro-USD per million tokens; where the provider has no price of its own for cached input, repeat input")
		}
	}
	return nil
}

func (r row) price() Price {
	return Price{
		Route: *r.Route, Model: string(*r.Model),
		Input: int64(*r.Input), Output: int64(*r.Output), CacheRead: int64(*r.CacheRead), CacheWrite: int64(*r.CacheWrite),
		MaxInput: int64(r.MaxInput), MaxOutput: int64(r.MaxOutput),
	}
}

// micro is a price: micro-USD per million tokens. A model that runs in one's own house
// costs 0.
type micro int64

// dearest is a dollar a token, far beyond every price there is.
const dearest = 1e12

// Validate refuses what is no price.
func (m micro) Validate() error {
	if m < 0 || m > dearest {
		return fault.New(fault.Invalid, "%d is not a price", int64(m)).
			WithHint("write micro-USD per million tokens: 3000000 is 3 USD per million tokens")
	}
	return nil
}

// tokens is a count that is known. Not known is said by leaving its key out.
type tokens int64

// largest is beyond the context of every model there is.
const largest = 1e9

// Validate refuses what is no count.
func (t tokens) Validate() error {
	if t < 1 || t > largest {
		return fault.New(fault.Invalid, "%d is not a number of tokens that a model can take or give", int64(t)).
			WithHint("leave the key out if it is not known")
	}
	return nil
}

// LongestModel is the most bytes of a model's name.
const LongestModel = 128

// name is a model's name.
type name string

// Validate refuses what [IsModel] refuses.
func (m name) Validate() error {
	if !IsModel(string(m)) {
		return fault.New(fault.Invalid, "%q is not the name of a model", clip(string(m))).
			WithHint("write it exactly as requests do, without wildcards")
	}
	return nil
}

// IsModel reports whether a name can be one of a model: 1 to [LongestModel] letters,
// digits and such marks as providers use.
func IsModel(name string) bool {
	return name != "" && len(name) <= LongestModel && !strings.ContainsFunc(name, func(c rune) bool {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		return !letter && !strings.ContainsRune("-._:/@+[]", c)
	})
}

// Lookup returns the price of a model, and whether there is one.
func (p Prices) Lookup(route Route, model string) (Price, bool) {
	i := slices.IndexFunc(p.list, func(one Price) bool { return one.Route == route && one.Model == model })
	if i < 0 {
		return Price{}, false
	}
	return p.list[i], true
}

// Models returns the names of the models of a route that have a price, in the order of
// the file.
func (p Prices) Models(route Route) []string {
	var names []string
	for _, one := range p.list {
		if one.Route == route {
			names = append(names, one.Model)
		}
	}
	return names
}

// clip bounds what an error repeats of a file or a request.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
