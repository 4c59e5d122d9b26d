package model

import (
	"net/http"
	"slices"

	"tendril/budget"
	"tendril/fault"
)

const modelsPath = "/v1/models"

// listModels answers which models there are, or what one is: those that the grant names,
// otherwise those that have a price. The provider is not asked.
func (r *Route) listModels(w http.ResponseWriter, one string) {
	terms, err := r.terms()
	if err != nil {
		r.refuse(w, err)
		return
	}
	names := terms.Permit.Models
	if len(names) == 0 {
		names = r.config.Prices.Models(r.config.Route)
	}
	if one != "" {
		if !slices.Contains(names, one) {
			r.refuse(w, fault.New(fault.NotFound, "there is no model %s here", clip(one)))
			return
		}
		writeJSON(w, http.StatusOK, r.describe(one))
		return
	}
	list := make([]any, len(names))
	for i, name := range names {
		list[i] = r.describe(name)
	}
	if r.config.Route == budget.Anthropic {
		page := map[string]any{"data": list, "has_more": false, "first_id": nil, "last_id": nil}
		if len(names) > 0 {
			page["first_id"], page["last_id"] = names[0], names[len(names)-1]
		}
		writeJSON(w, http.StatusOK, page)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (r *Route) describe(name string) any {
	if r.config.Route == budget.Anthropic {
		return map[string]any{"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
	}
	return map[string]any{"object": "model", "id": name, "created": 0, "owned_by": "system"}
}
