package sprout

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestFit: the largest history that the bounds permit is made to fit, the newest
// exchange is shown, each call has its result, and each input is an object.
func TestFit(t *testing.T) {
	size := func(most int) *rapid.Generator[int] {
		return rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 500), rapid.Just(most))
	}
	rapid.Check(t, func(t *rapid.T) {
		h := history{system: system("/workspace"), ask: strings.Repeat("?", rapid.SampledFrom([]int{1, MaxAsk}).Draw(t, "ask"))}
		for range rapid.IntRange(1, 12).Draw(t, "exchanges") {
			x := exchange{note: strings.Repeat("n", rapid.SampledFrom([]int{0, 700}).Draw(t, "note"))}
			x.said.text = strings.Repeat("<", size(maxAnswer).Draw(t, "text"))
			for range rapid.SampledFrom([]int{0, 1, 3, maxCalls}).Draw(t, "calls") {
				input, _ := json.Marshal(map[string]any{
					"path":    strings.Repeat("p", size(maxAnswer/maxCalls/2).Draw(t, "path")),
					"content": strings.Repeat("\"", size(maxAnswer/maxCalls/2).Draw(t, "content")),
				})
				x.said.calls = append(x.said.calls, call{id: strings.Repeat("i", 64), name: strings.Repeat("n", 64), input: repeatable(string(input))})
				x.results = append(x.results, result{text: strings.Repeat("r", size(maxResult).Draw(t, "result"))})
			}
			h.exchanges = append(h.exchanges, x)
		}
		before, all := h.tokens(), len(h.exchanges)
		newest := h.exchanges[all-1]
		h.fit(MinContext)
		switch {
		case before <= MinContext && h.tokens() != before:
			t.Fatalf("%d tokens became %d without need", before, h.tokens())
		case h.tokens() > MinContext:
			t.Fatalf("%d tokens became %d, which is above %d", before, h.tokens(), MinContext)
		case len(h.exchanges) == 0 || h.dropped+len(h.exchanges) != all:
			t.Fatalf("of %d exchanges %d are left, and %d dropped", all, len(h.exchanges), h.dropped)
		case h.dropped > 0 && !strings.Contains(h.request(), "not shown any more"):
			t.Fatal("it does not say that something was dropped")
		}
		if last := h.exchanges[len(h.exchanges)-1]; last.note != newest.note || len(last.said.calls) != len(newest.said.calls) {
			t.Fatal("the newest exchange is another one")
		}
		for _, x := range h.exchanges {
			if len(x.results) != len(x.said.calls) {
				t.Fatal("a call has no result")
			}
			for _, c := range x.said.calls {
				if !c.object() {
					t.Fatalf("the input %.100s is no object", c.input)
				}
			}
		}
		again := h.tokens()
		if h.fit(MinContext); h.tokens() != again {
			t.Fatal("what fits is made shorter")
		}
	})
}

func TestRepeatable(t *testing.T) {
	for input, want := range map[string]string{
		`{"a":"<&>"}`:                    `{"a":"<&>"}`,
		`{"a":1,"a":2}`:                  `{"a":2}`,
		` {"a":12345678901234567890} `:   `{"a":12345678901234567890}`,
		`{"a":{"b":1},"c":[1],"d":null}`: `{"a":"[left out]","c":"[left out]","d":null}`,
		`{"a":"\ud800"}`:                 "{\"a\":\"\ufffd\"}",
		`null`:                           `{}`,
		`[1]`:                            `{}`,
		`{"a":`:                          `{}`,
		``:                               `{}`,
	} {
		if got := repeatable(input); got != want {
			t.Errorf("repeatable(%s) = %s, want %s", input, got, want)
		}
	}
	long := `{"path":"a.go","content":"` + strings.Repeat("x", 5000) + `"}`
	if got := shortenedInput(long); len(got) > 4*kept || !strings.Contains(got, `"path":"a.go"`) || !strings.Contains(got, "bytes left out") {
		t.Errorf("a long input became %s", got)
	}
	var many strings.Builder
	for i := range 500 {
		many.WriteString(`"` + strings.Repeat("k", i+1) + `":1,`)
	}
	if got := shortenedInput("{" + many.String() + `"z":1}`); len(got) > kept || !(call{input: got}).object() {
		t.Errorf("many fields became %s", got)
	}
}
