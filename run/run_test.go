package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tendril/fault"
)

func TestARecordAlwaysHasEveryKey(t *testing.T) {
	got, err := json.Marshal(Run{ID: "r-01jd", State: Queued, Pollen: "botanist", Substrate: Substrate{Name: "handbook"}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"run":"r-01jd","state":"queued","pollen":"botanist","substrate":"handbook","base":null,` +
		`"branch":null,"commit":null,"provider":null,"exit":null,"stop":null,"partial":false,"verdict":null,` +
		`"changed":0,"ignored":0,"skipped":0,"dirty":false,"flags":[],"boundary":[],"unenforced":[],"egress":[],"usage":null,"review":null,` +
		`"error":null,"started":null,"duration_ms":null}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAFullRecord(t *testing.T) {
	id, err := ParseID("r-01jd0000000000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	record := Run{
		ID: id, State: Fruited, Pollen: "botanist",
		Substrate: Substrate{Path: "/src/h\xff"},
		Base:      new("0123"), Branch: new(id.Branch()), Commit: new("4567"), Provider: new("runsc"),
		Exit: &Exit{Code: new(0)}, Stop: &Stop{Limit: Memory}, Verdict: new(Inconclusive), Changed: 3,
		Flags:      []Flag{{Kind: "symlink", Path: "a/b", Note: "leaves the tree"}},
		Unenforced: []Limit{Memory}, Egress: []Reach{{"https://example.com:443", 2, 1, 3, 4, new("no rule")}}, Usage: &Usage{Tokens: 5, MicroUSD: 6},
		Error:      ErrorOf(fault.New(fault.Denied, "no").WithRule("grant")),
		Started:    new(At(time.Date(2026, 11, 5, 13, 0, 0, 123_999_999, time.FixedZone("", 3600)))),
		DurationMS: new(int64(812)),
	}
	got, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"substrate":{"path_b64":"L3NyYy9o/w=="}`,
		`"branch":"tendril/r-01jd0000000000000000000000"`,
		`"exit":{"code":0,"signal":null}`,
		`"stop":{"limit":"memory"}`,
		`"path":{"path":"a/b"}`,
		`"error":{"kind":"denied","detail":"no","rule":"grant","hint":null}`,
		`"started":"2026-11-05T12:00:00.123Z"`,
		`"duration_ms":812`,
	} {
		if !strings.Contains(string(got), part) {
			t.Errorf("%s is not in %s", part, got)
		}
	}
	var back Run
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	record.Boundary = []Row{} // printed as [], and read as that
	if diff := cmp.Diff(record, back); diff != "" {
		t.Error(diff)
	}
}

// A record that was stored before a key existed is read as one without a value.
func TestAnOlderReach(t *testing.T) {
	var r Run
	if err := json.Unmarshal([]byte(`{"run":"r-01jd0000000000000000000000","egress":[{"destination":"d","allowed":1,"refused":2,"sent":3,"received":4}]}`), &r); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Reach{{Destination: "d", Allowed: 1, Refused: 2, Sent: 3, Received: 4}}, r.Egress); diff != "" {
		t.Error(diff)
	}
	got, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(got), `"received":4,"refusal":null}`) {
		t.Errorf("printed as %s (%v)", got, err)
	}
}

func TestStopPrintsWhatItIs(t *testing.T) {
	for stop, want := range map[Stop]string{
		{Limit: Wall}:   `{"limit":"wall"}`,
		{Cancel: "ann"}: `{"cancel":"ann"}`,
	} {
		if got, err := json.Marshal(stop); err != nil || string(got) != want {
			t.Errorf("got %s, want %s (%v)", got, want, err)
		}
	}
}

func TestErrorOf(t *testing.T) {
	if ErrorOf(nil) != nil {
		t.Error("no error is an error")
	}
	f := fault.New(fault.Unavailable, "no room").WithHint("make some")
	wrapped := ErrorOf(fmt.Errorf("collect: %w", f))
	if wrapped.Kind != fault.Unavailable || wrapped.Detail != "collect: no room" || *wrapped.Hint != "make some" || wrapped.Rule != nil {
		t.Errorf("got %+v", wrapped)
	}
	if plain := ErrorOf(errors.New("oops")); plain.Kind != fault.Internal || plain.Detail != "oops" {
		t.Errorf("got %+v", plain)
	}
}

func TestPaths(t *testing.T) {
	for _, p := range []Path{"", "a", "a\nb\t\"", "ä", "a\xff", "\xed\xa0\x80", "\x00"} {
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Path
		if err := json.Unmarshal(data, &back); err != nil || back != p {
			t.Errorf("%q came back as %q by %s (%v)", p, back, data, err)
		}
	}
	for _, bad := range []string{`"a"`, `{}`, `{"path":null}`, `{"path":"a","path_b64":"YQ=="}`, `{"path":"a","x":1}`, `{"path_b64":"?"}`, `7`, `[]`} {
		var p Path
		if err := json.Unmarshal([]byte(bad), &p); err == nil {
			t.Errorf("%s was taken as %q", bad, p)
		}
	}
}

func TestSubstrates(t *testing.T) {
	for _, s := range []Substrate{{Name: "handbook"}, {Path: "/a"}, {Path: "/\xff"}} {
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Substrate
		if err := json.Unmarshal(data, &back); err != nil || back != s {
			t.Errorf("%v came back as %v by %s (%v)", s, back, data, err)
		}
	}
	for _, bad := range []string{`7`, `[]`, `true`, `{}`, `{"name":"a"}`} {
		var s Substrate
		if err := json.Unmarshal([]byte(bad), &s); err == nil {
			t.Errorf("%s was taken as %v", bad, s)
		}
	}
}

func TestIDs(t *testing.T) {
	at := time.UnixMilli(1_790_000_000_123)
	seen := map[ID]bool{}
	for range 1000 {
		id := newID(at)
		if seen[id] {
			t.Fatalf("%s came twice", id)
		}
		seen[id] = true
		if parsed, err := ParseID(string(id)); err != nil || parsed != id {
			t.Errorf("ParseID(%s) = %s, %v", id, parsed, err)
		}
		if !id.Time().Equal(at) {
			t.Errorf("%s was made at %v, want %v", id, id.Time(), at)
		}
		if !regexp.MustCompile(`^r-[0-7][0-9a-hjkmnp-tv-z]{25}$`).MatchString(string(id)) {
			t.Errorf("%s has another form", id)
		}
	}
	if now := NewID(); time.Since(now.Time()).Abs() > time.Hour {
		t.Errorf("%s was made at %v", now, now.Time())
	}
}

func TestIDsSortByTime(t *testing.T) {
	var ids []ID
	for _, ms := range []int64{0, 1, 31, 32, 1 << 20, 1_790_000_000_000, 1_790_000_000_001, 1<<48 - 1} {
		ids = append(ids, newID(time.UnixMilli(ms)))
	}
	if !slices.IsSorted(ids) {
		t.Errorf("%v is not in order", ids)
	}
}

func TestParseIDRefuses(t *testing.T) {
	good := string(newID(time.UnixMilli(1_790_000_000_000)))
	for _, bad := range []string{
		"", "r-", good[2:], good[:27], good + "0", "R" + good[1:], "r_" + good[2:],
		strings.ToUpper(good), good[:27] + "i", good[:27] + "l", good[:27] + "o", good[:27] + "u",
		"r-8" + good[3:], good[:27] + "\x00", good[:27] + "/", " " + good, good + "\n", good[:26] + "é",
	} {
		if id, err := ParseID(bad); !fault.Is(err, fault.Invalid) || id != "" {
			t.Errorf("ParseID(%q) = %q, %v", bad, id, err)
		}
		data, _ := json.Marshal(bad)
		var id ID
		if err := json.Unmarshal(data, &id); err == nil {
			t.Errorf("%s was decoded as %q", data, id)
		}
		if !ID(bad).Time().IsZero() {
			t.Errorf("%q has a time", bad)
		}
	}
	if _, err := ParseID(strings.Repeat("x", 1<<20)); len(err.Error()) > 200 {
		t.Errorf("the error repeats %d bytes", len(err.Error()))
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("r-01jd0000000000000000000000")
	f.Add("r-7zzzzzzzzzzzzzzzzzzzzzzzzz")
	f.Add("r-8zzzzzzzzzzzzzzzzzzzzzzzzz")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err == nil && (string(id) != s || len(s) != 28 || strings.ContainsAny(s, "/.\x00ilou")) {
			t.Errorf("%q was taken as %q", s, id)
		}
	})
}

func TestTransitions(t *testing.T) {
	states := States()
	if len(states) != len(transitions) {
		t.Fatalf("%d states, %d rows", len(states), len(transitions))
	}
	for _, from := range states {
		if !from.Valid() {
			t.Errorf("%s is not valid", from)
		}
		ends := 0
		for _, next := range states {
			err := Transition(from, next)
			if from.Ended() && err == nil {
				t.Errorf("%s follows the end %s", next, from)
			}
			if from == next && err == nil {
				t.Errorf("%s follows itself", from)
			}
			if err == nil && slices.Index(states, next) < slices.Index(states, from) {
				t.Errorf("%s goes back to %s", from, next)
			}
			if err == nil && next.Ended() {
				ends++
			}
			if err != nil && !fault.Is(err, fault.Internal) {
				t.Errorf("%s to %s: %v", from, next, err)
			}
		}
		// Whatever happens, a living run can be told to have broken, been
		// stopped or been lost.
		if !from.Ended() && (ends < 3 || Transition(from, Withered) != nil || Transition(from, Stopped) != nil || Transition(from, Lost) != nil) {
			t.Errorf("%s can get stuck", from)
		}
	}
	for _, no := range [][2]State{{Collecting, Refused}, {Running, Fruited}, {Queued, Running}, {Preparing, Unchanged}, {"", Queued}, {Queued, "done"}} {
		if Transition(no[0], no[1]) == nil {
			t.Errorf("%q may become %q", no[0], no[1])
		}
	}
	for _, word := range []State{"", "done", "Fruited"} {
		if word.Valid() || word.Ended() {
			t.Errorf("%q is a state", word)
		}
	}
}

func TestExitStatus(t *testing.T) {
	zero, one := &Exit{Code: new(0)}, &Exit{Code: new(1)}
	killed := &Exit{Signal: new(9)}
	for _, test := range []struct {
		state       State
		exit        *Exit
		verdict     Verdict
		plain, want int // want is with requireClean
	}{
		{Fruited, zero, Clean, 0, 0},
		{Fruited, zero, Inconclusive, 0, 5},
		{Fruited, zero, "", 0, 5},
		{Fruited, zero, Touched, 5, 5},
		{Fruited, one, Clean, 3, 3},
		{Fruited, one, Inconclusive, 3, 5},
		{Fruited, killed, Clean, 3, 3},
		{Unchanged, zero, Clean, 0, 0},
		{Unchanged, zero, "", 0, 5},
		{Passed, zero, Clean, 0, 0},
		{Passed, one, Clean, 3, 3},
		{Unchanged, one, "", 3, 5},
		{Stopped, nil, Clean, 4, 4},
		{Stopped, one, Clean, 4, 4},
		{Stopped, nil, Touched, 5, 5},
		{Stopped, nil, "", 4, 5},
		{Withered, nil, Clean, 1, 1},
		{Withered, one, Clean, 1, 1},
		{Withered, nil, "", 1, 5},
		{Withered, nil, Touched, 5, 5},
		{Lost, nil, "", 1, 5},
		{Refused, nil, "", 2, 2},
		{Refused, nil, Touched, 5, 5},
		{Queued, nil, "", 1, 1},
		{Running, nil, "", 1, 1},
		{"", nil, "", 1, 1},
	} {
		r := Run{State: test.state, Exit: test.exit}
		if test.verdict != "" {
			r.Verdict = &test.verdict
		}
		if got := ExitStatus(r, false); got != test.plain {
			t.Errorf("%s, %+v, %q: %d, want %d", test.state, test.exit, test.verdict, got, test.plain)
		}
		if got := ExitStatus(r, true); got != test.want {
			t.Errorf("%s, %+v, %q, clean required: %d, want %d", test.state, test.exit, test.verdict, got, test.want)
		}
	}
}

func TestEvents(t *testing.T) {
	at := At(time.UnixMilli(1_790_000_000_123))
	for want, data := range map[string]Data{
		`"kind":"state","data":{"state":"running"}`:    StateChange{Running},
		`"kind":"output","data":{"fd":1,"b64":"AP8="}`: OutputChunk{1, []byte("\x00\xff")},
		`"kind":"output","data":{"fd":2,"b64":""}`:     OutputChunk{2, []byte{}},
		`"kind":"egress","data":{"destination":"https://example.com:443","method":"GET","allowed":true,"rule":"grants.yaml:3","status":200,"sent":1,"received":2,"failure":""}`: EgressDecision{
			Destination: "https://example.com:443", Method: "GET", Allowed: true, Rule: "grants.yaml:3", Status: 200, Sent: 1, Received: 2},
		`"kind":"limit","data":{"limit":"disk"}`:                      LimitReached{Disk},
		`"kind":"warning","data":{"detail":"d","hint":null}`:          Warning{Detail: "d"},
		`"kind":"verdict","data":{"verdict":"clean","reasons":["r"]}`: VerdictGiven{Clean, []string{"r"}},
	} {
		e := Event{ID: 17, Run: "r-01jd0000000000000000000000", Time: at, Data: data}
		got, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		whole := `{"id":17,"run":"r-01jd0000000000000000000000","time":"2026-09-21T14:13:20.123Z",` + want + `}`
		if string(got) != whole {
			t.Errorf("got  %s\nwant %s", got, whole)
		}
		var back Event
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Error(diff)
		}
	}
	for _, bad := range []string{
		`{"id":1,"run":"r-01jd0000000000000000000000","time":"2026-09-21T14:13:20Z","kind":"gossip","data":{}}`,
		`{"id":1,"run":"r-01jd0000000000000000000000","time":"2026-09-21T14:13:20Z","kind":"limit","data":{"limit":"disk","x":1}}`,
		`{"id":1,"run":"r-01jd0000000000000000000000","time":"2026-09-21T14:13:20Z","kind":"limit","data":{"limit":"disk"},"x":1}`,
		`{"id":1,"run":"../x","time":"2026-09-21T14:13:20Z","kind":"limit","data":{"limit":"disk"}}`,
		`{"id":1,"run":"r-01jd0000000000000000000000","time":"yesterday","kind":"limit","data":{"limit":"disk"}}`,
		`{"id":1,"run":"r-01jd0000000000000000000000","time":"2026-09-21T14:13:20Z","kind":"limit"}`,
	} {
		if err := json.Unmarshal([]byte(bad), new(Event)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if _, err := json.Marshal(Event{ID: 1}); err == nil {
		t.Error("an event without data was printed")
	}
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"id":1,"run":"r-01jd0000000000000000000000","time":"2026-09-21T14:13:20Z","kind":"output","data":{"fd":1,"b64":"AP8="}}`))
	f.Add([]byte(`{"id":1,"run":"r-01jd0000000000000000000000","time":"2026-09-21T14:13:20Z","kind":"verdict","data":{"verdict":"clean","reasons":[]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Event
		if json.Unmarshal(data, &e) != nil {
			return
		}
		printed, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back Event
		if err := json.Unmarshal(printed, &back); err != nil {
			t.Fatalf("%s was printed and is refused: %v", printed, err)
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Error(diff)
		}
	})
}
