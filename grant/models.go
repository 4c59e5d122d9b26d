package grant

import (
	"tendril/budget"
	"tendril/fault"
)

// Models are the model routes of a grant, each once.
type Models []ModelRoute

// Validate refuses an empty list, and a route that comes twice.
func (m Models) Validate() error {
	if len(m) == 0 {
		return emptyList()
	}
	seen := map[budget.Route]bool{}
	for _, one := range m {
		if seen[one.Route] {
			return fault.New(fault.Invalid, "the route %s comes twice", one.Route).WithHint("name all its models in one place")
		}
		seen[one.Route] = true
	}
	return nil
}

// ModelRoute lets a Sprout ask models, at an address of its loopback. What would reach or
// spend where nobody looks is not passed on unless it is named here.
type ModelRoute struct {
	Route  budget.Route   `yaml:"route" json:"route"`
	Models Set[ModelName] `yaml:"models" json:"models,omitzero"` // not set: each that has a price, or all if nothing is priced
	Tools  Set[Word]      `yaml:"tools" json:"tools,omitzero"`   // server-side tools, each by its type; not set: none
	Fields Set[Word]      `yaml:"fields" json:"fields,omitzero"` // of requests, beside those that are known
	Strict bool           `yaml:"strict" json:"strict,omitzero"` // refuse what would be taken out
}

// Validate refuses a list entry without a route.
func (m ModelRoute) Validate() error {
	if m.Route == "" {
		return fault.New(fault.Invalid, "the route is missing").WithHint("write `route: %s` or `route: %s`", budget.Anthropic, budget.OpenAI)
	}
	return nil
}

// ModelName is a model exactly as requests name it.
type ModelName string

// UnmarshalText refuses what can be no model's name.
func (m *ModelName) UnmarshalText(text []byte) error {
	if !budget.IsModel(string(text)) {
		return fault.New(fault.Invalid, "%q is not the name of a model", clip(string(text))).WithHint("write it as requests do; there is no wildcard")
	}
	*m = ModelName(text)
	return nil
}

// Word is the type of a tool or the name of a field.
type Word string

// UnmarshalText refuses what can be neither.
func (w *Word) UnmarshalText(text []byte) error {
	if len(text) == 0 || len(text) > 64 {
		return fault.New(fault.Invalid, "%q is not the name of a tool or a field", clip(string(text)))
	}
	for _, c := range text {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.') {
			return fault.New(fault.Invalid, "%q is not the name of a tool or a field", clip(string(text))).WithHint("letters, digits, _, - and . are allowed; there is no wildcard")
		}
	}
	*w = Word(text)
	return nil
}
