package model

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"tendril/budget"
	"tendril/fault"
)

// MostBody is the most bytes of a request: those that both providers take.
const MostBody = 32 << 20

// request is what is sent in the place of what a client asked for.
type request struct {
	body      []byte
	model     string
	output    int64 // most tokens of each answer; 0: not said
	copies    int64
	stream    bool
	wantUsage bool // the client itself asked for the usage of a stream
	removed   []string
	input     int64 // most tokens that the body can be
	terms     Terms // under which it was read
}

// overhead is what providers add to a request by themselves: what tells a model how to
// use tools, and the marks between messages.
const overhead = 4096

// mostOutput and mostCopies are beyond what any model gives.
const (
	mostOutput = 1e9
	mostCopies = 128
)

// form is how an endpoint spells what all requests have.
type form struct {
	output  []string // the fields that bound the output; the largest counts
	copies  bool     // n asks for several answers
	usage   bool     // streams report their usage only where stream_options asks for it
	store   bool     // answers are kept unless store says otherwise
	counted bool     // it generates, and so has a price
}

// read makes the request that is sent out of a client's, by what a dialect and a grant
// know. removed is what was taken out of it already. A fault says what is wrong with it, or
// what is not passed on.
func read(body []byte, d dialect, e form, p Permit, removed []string) (*request, error) {
	if err := document(body); err != nil {
		return nil, err
	}
	s := scanner{data: body}
	if s.next() != '{' {
		return nil, fault.New(fault.Invalid, "the request is not an object")
	}
	members, err := s.object(0)
	if err != nil {
		return nil, err
	}
	f := &filter{dialect: d, in: body, taken: map[string]bool{}}
	for _, name := range removed {
		f.remove(name)
	}
	q := &request{copies: 1}
	if members, err = q.settings(f, members, e, p); err != nil {
		return nil, err
	}
	if err := f.request(members); err != nil {
		return nil, err
	}
	if p.Strict && len(f.removed) > 0 {
		return nil, fault.New(fault.Denied, "the request has what would be taken out of it: %s", strings.Join(f.removed, ", ")).
			WithRule("the grant is strict: a request is passed on as it is or not at all").
			WithHint("leave it out, or have the Botanist permit it in the grant or in %s", FieldsFileName)
	}
	q.body, q.removed = f.out.Bytes(), f.removed
	q.input = int64(len(q.body)) - f.media.bytes + f.media.tokens + overhead
	return q, nil
}

// request writes the members of a request. The tools come first: what is said about them
// depends on which of them are left.
func (f *filter) request(members []member) error {
	slices.SortStableFunc(members, func(a, b member) int {
		return map[bool]int{true: -1}[a.name == "tools"] - map[bool]int{true: -1}[b.name == "tools"]
	})
	f.out.WriteByte('{')
	none := false // there were tools, and none is left
	for _, m := range members {
		mark := f.out.Len()
		switch m.name {
		case "tools":
			if err := f.member("request", m); err != nil {
				return err
			}
			if none = len(f.taken) > 0 && bytes.HasSuffix(f.out.Bytes(), []byte("[]")); none {
				f.out.Truncate(mark)
			}
			continue
		case "tool_choice":
			if none || len(f.taken) > 0 && f.mentions(m.value) {
				f.remove("request", m.name)
				continue
			}
		case "parallel_tool_calls":
			if none { // refused by providers where there are no tools
				continue
			}
		}
		if err := f.member("request", m); err != nil {
			return err
		}
	}
	f.out.WriteByte('}')
	return nil
}

// settings reads the members that decide about a request and returns what is written:
// some of them in another form than they came in.
func (q *request) settings(f *filter, members []member, e form, p Permit) ([]member, error) {
	var written []member
	for _, m := range members {
		raw := f.in[m.value.from:m.value.to]
		var err error
		switch {
		case m.name == "model":
			q.model, _ = f.text(m.value)
		case m.name == "stream":
			q.stream, err = flag(m.name, raw)
		case slices.Contains(e.output, m.name):
			var output int64
			output, err = count(m.name, raw, mostOutput)
			q.output = max(q.output, output)
		case m.name == "n" && e.copies:
			q.copies, err = count(m.name, raw, mostCopies)
			q.copies = max(q.copies, 1)
		case m.name == "stream_options" && e.usage:
			if q.wantUsage, err = wantsUsage(raw); err == nil {
				continue
			}
		case m.name == "store" && e.store:
			if string(raw) != "false" && string(raw) != "null" {
				f.remove("request", m.name)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		written = append(written, m)
	}
	if e.store {
		written = append(written, member{name: "store", written: "false"})
	}
	if e.usage && q.stream {
		written = append(written, member{name: "stream_options", written: `{"include_usage":true}`})
	}
	return written, q.checkModel(p)
}

func (q *request) checkModel(p Permit) error {
	if !budget.IsModel(q.model) {
		return fault.New(fault.Invalid, "%q is not the name of a model", clip(q.model))
	}
	if len(p.Models) > 0 && !slices.Contains(p.Models, q.model) {
		return fault.New(fault.Denied, "the model %s is not one that the grant names", q.model).
			WithRule("models of the grant").WithHint("use %s", strings.Join(p.Models, ", "))
	}
	return nil
}

func flag(name string, raw []byte) (bool, error) {
	switch string(raw) {
	case "true":
		return true, nil
	case "false", "null":
		return false, nil
	}
	return false, fault.New(fault.Invalid, "%s is neither true nor false", name)
}

// count reads a whole number in digits: a bound that two readers could take for two
// numbers is none.
func count(name string, raw []byte, most int64) (int64, error) {
	if string(raw) == "null" {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(raw[:min(len(raw), 20)]), 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != string(raw) || n < 0 || n > most {
		return 0, fault.New(fault.Invalid, "%s is not a whole number from 0 to %d", name, most)
	}
	return n, nil
}

func wantsUsage(raw []byte) (bool, error) {
	var options struct {
		Usage bool `json:"include_usage"`
	}
	if len(raw) > 1<<10 || json.Unmarshal(raw, &options) != nil {
		return false, fault.New(fault.Invalid, "stream_options is not {include_usage: true} or {include_usage: false}")
	}
	return options.Usage, nil
}
