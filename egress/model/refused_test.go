package model_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"tendril/budget"
	"tendril/egress/model"
	"tendril/fault"
)

// Whatever a route refuses by itself is recorded, once, with what is known of the call.
func TestRefusalsAreRecorded(t *testing.T) {
	spend := budget.Limits{Run: budget.Limit{Spend: count(1 << 40)}}
	with := func(text string) string { return strings.Replace(ask, "{", "{"+text+",", 1) }
	says := func(content string) string { return strings.Replace(ask, `"hi"`, `[`+content+`]`, 1) }
	for _, c := range []struct {
		name   string
		route  budget.Route
		path   string
		ask    string
		change func(*model.Config)
		want   string
	}{
		{"an endpoint that is not served", budget.Anthropic, "/v1/messages/batches", ask, nil, "anthropic  : POST /v1/messages/batches is not served"},
		{"a URL", budget.Anthropic, messages, says(`{"type":"image","source":{"type":"url","url":"https://x"}}`), nil, "anthropic /v1/messages : source in the request "},
		{"a stored file", budget.Anthropic, messages, says(`{"type":"document","source":{"type":"file","file_id":"f"}}`), nil, `anthropic /v1/messages : source in the request holds "file"`},
		{"background", budget.OpenAI, responses, strings.Replace(askOpenAI, "{", `{"background":true,`, 1), nil, "openai /v1/responses : the request asks for background"},
		{"no JSON", budget.Anthropic, messages, "{", nil, "anthropic /v1/messages : "},
		{"strict", budget.Anthropic, messages, with(`"speed":"fast"`), func(c *model.Config) {
			c.Terms = fixed(model.Terms{Limits: limited, Permit: model.Permit{Strict: true}})
		}, "anthropic /v1/messages : the request has what would be taken out of it: request.speed"},
		{"a model that the grant does not name", budget.Anthropic, messages, ask, func(c *model.Config) {
			c.Terms = fixed(model.Terms{Limits: limited, Permit: model.Permit{Models: []string{"other"}}})
		}, "anthropic /v1/messages : the model m is not one that the grant names"},
		{"no price", budget.Anthropic, messages, strings.Replace(ask, `"m"`, `"new"`, 1), nil, `anthropic /v1/messages new: the model "new" of anthropic has no price`},
		{"no bound", budget.OpenAI, responses, `{"model":"new","input":"hi"}`, func(c *model.Config) {
			c.Terms = fixed(model.Terms{Limits: budget.Limits{Run: budget.Limit{Tokens: count(1 << 40)}}})
		}, `openai /v1/responses new: nothing bounds what the model "new" of openai may answer`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.route, spend, jsonAnswer(200, wholeHi), func(config *model.Config) {
				if c.change != nil {
					c.change(config)
				}
			})
			if got := w.post(c.path, c.ask); got.status/100 != 4 || len(w.received()) != 0 {
				t.Errorf("%+v, %d sent", got, len(w.received()))
			}
			if len(w.accounts.refused) != 1 || !strings.HasPrefix(w.accounts.refused[0], c.want) {
				t.Errorf("recorded %q", w.accounts.refused)
			}

			// Without a record nothing is said, and beyond what may be asked only that.
			w.accounts.lost = fault.New(fault.Unavailable, "the disk of /var/lib is full")
			if got := w.post(c.path, c.ask); got.status != 502 || !contains(got.body, "could not be recorded") || contains(got.body, "/var/lib") {
				t.Errorf("not recorded: %+v", got)
			}
			w.accounts.lost = fault.New(fault.Denied, "too much")
			if got := w.post(c.path, c.ask); got.status != 400 || !contains(got.body, "tendril: too much") {
				t.Errorf("too much: %+v", got)
			}
		})
	}
}

// What a limit refuses is recorded by the accounts themselves, and what passes is refused
// by nobody.
func TestWhatIsNotRefusedByTheRoute(t *testing.T) {
	for status, limits := range map[int]budget.Limits{200: limited, 402: {Run: budget.Limit{Tokens: count(500)}}} {
		w := newWorld(t, budget.Anthropic, limits, jsonAnswer(http.StatusOK, wholeHi))
		if got := w.post(messages, ask); got.status != status || !slices.Equal(w.accounts.refused, nil) {
			t.Errorf("%+v, recorded %q", got, w.accounts.refused)
		}
	}
}

// What a grant says holds from the next request on.
func TestTermsAreThoseOfNow(t *testing.T) {
	var terms model.Terms
	var ended error
	w := newWorld(t, budget.Anthropic, limited, jsonAnswer(http.StatusOK, wholeHi), func(c *model.Config) {
		c.Terms = func() (model.Terms, error) { return terms, ended }
	})
	searching := strings.Replace(ask, "{", `{"tools":[{"type":"web_search_20250305","name":"web_search"}],`, 1)
	for _, c := range []struct {
		terms  model.Terms
		ended  error
		status int
		says   string
	}{
		{terms: model.Terms{Permit: model.Permit{Tools: []string{"web_search_20250305"}}}, status: 200},
		{terms: model.Terms{Permit: model.Permit{Strict: true}}, status: 400, says: "the grant is strict"},
		{terms: model.Terms{Permit: model.Permit{Models: []string{"other"}}}, status: 400, says: "not one that the grant names"},
		{terms: model.Terms{Limits: budget.Limits{Run: budget.Limit{Tokens: count(500)}}}, status: 402, says: "used up"},
		{terms: model.Terms{Permit: model.Permit{Fields: []string{"a b"}}}, status: 400, says: "is not the name of a tool or a field"},
		{ended: fault.New(fault.Denied, "no grant any more"), status: 400, says: "no grant any more"},
		{status: 200},
	} {
		terms, ended = c.terms, c.ended
		if got := w.post(messages, searching); got.status != c.status || !contains(got.body, c.says) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	if sent := w.received(); len(sent) != 2 || !contains(sent[0].body, "web_search") || contains(sent[1].body, "web_search") {
		t.Errorf("sent %+v", sent)
	}
	if len(w.accounts.refused) != 4 {
		t.Errorf("recorded %q", w.accounts.refused)
	}
}
