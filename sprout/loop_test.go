package sprout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var routes = []string{RouteAnthropic, RouteOpenAI}

// eachRoute runs a test in both formats.
func eachRoute(t *testing.T, test func(t *testing.T, route string)) {
	for _, route := range routes {
		t.Run(route, func(t *testing.T) { test(t, route) })
	}
}

func options(t *testing.T, s *scripted, dir string) Options {
	t.Helper()
	base := s.URL
	if s.route == RouteOpenAI {
		base += "/v1"
	}
	return Options{Ask: "make the failing test pass", Model: "m", Route: s.route, BaseURL: base, Dir: dir,
		Turns: 20, Context: MinContext, Output: 1000, Log: &bytes.Buffer{}}
}

// outcome of a run in a test: pauses are noted instead of waited for.
type ended struct {
	last   string
	err    error
	log    string
	pauses []time.Duration
}

func grow(t *testing.T, s *scripted, dir string, change ...func(*Options)) ended {
	t.Helper()
	o := options(t, s, dir)
	for _, c := range change {
		c(&o)
	}
	var log bytes.Buffer
	o.Log = &log
	l, err := newLoop(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	var e ended
	l.pause = func(_ context.Context, d time.Duration) error {
		e.pauses = append(e.pauses, d)
		return nil
	}
	e.last, e.err = l.run(t.Context())
	e.log = log.String()
	return e
}

// repository is a small one with a test that fails.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, "add.sh", "add() { echo $(($1 - $2)); }\n")
	put(t, dir, "test.sh", ". ./add.sh\ngot=$(add 2 3)\n[ \"$got\" = 5 ] || { echo \"add 2 3 = $got, want 5\"; exit 1; }\necho PASS\n")
	return dir
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// mending is a script that makes the test pass, through all that may go wrong on the way.
func mending() []reply {
	return []reply{
		use("search", map[string]any{"pattern": `add\(`}),
		shell("sh test.sh"),
		{status: 429, kind: "rate_limit_error", retryAfter: "7"},
		use("read", map[string]any{"path": "missing.sh"}),
		use("read", map[string]any{"path": "add.sh"}),
		{text: "I replace the minus", calls: []call{{name: "edit", input: `{"path":"add.sh","old":"-","new":"+"}`}}, breaks: true},
		use("edit", map[string]any{"path": "add.sh", "old": "$1 - $2", "new": "$1 + $2"}),
		{status: 529, kind: "overloaded_error"},
		shell("sh test.sh"),
		words("The test passes: add subtracted. 木"),
	}
}

func TestFailingTestTurnsGreen(t *testing.T) {
	eachRoute(t, func(t *testing.T, route string) {
		dir := repository(t)
		s := serve(t, route, mending()...)
		e := grow(t, s, dir)
		if e.err != nil || e.last != "The test passes: add subtracted. 木" {
			t.Fatalf("it ended with %q, %v\n%s", e.last, e.err, e.log)
		}
		test := exec.Command("sh", "test.sh")
		test.Dir = dir
		if out, err := test.CombinedOutput(); err != nil {
			t.Errorf("the test still fails: %v\n%s", err, out)
		}
		if want := []time.Duration{7 * time.Second, time.Second, time.Second}; !slices.Equal(e.pauses, want) {
			t.Errorf("it paused for %v, want %v", e.pauses, want)
		}
		requests := s.seen()
		last := requests[len(requests)-1]
		for _, want := range []string{"add 2 3 = -1, want 5", "[exit status 1]", "PASS", "no such file", "add.sh:1: add()"} {
			if !strings.Contains(last, want) {
				t.Errorf("the model did not see %q", want)
			}
		}
		for _, want := range []string{"shell sh test.sh → [exit status 1]\n", "shell sh test.sh → [exit status 0]\n", "read missing.sh → failed:", "> now read\n"} {
			if !strings.Contains(e.log, want) {
				t.Errorf("the log does not have %q:\n%s", want, e.log)
			}
		}
	})
}

func TestGarbageIsEndedByAttempts(t *testing.T) {
	bad := map[string]map[string]reply{
		"both": {
			"an empty answer":       {},
			"white space":           words(" \n"),
			"an unknown tool":       {calls: []call{{name: "launch", input: "{}"}}},
			"input that is no JSON": {calls: []call{{name: "shell", input: `{"command":`}}},
			"input of another kind": {calls: []call{{name: "shell", input: `["ls"]`}}},
			"an unknown field":      {calls: []call{{name: "shell", input: `{"cmd":"ls"}`}}},
			"a timeout of zero":     {calls: []call{{name: "shell", input: `{"command":"ls","timeout_seconds":0}`}}},
			"a name with a line":    {calls: []call{{name: "she\nll", input: `{}`}}},
			"an unknown reason":     {text: "x", stop: "because"},
			"an answer cut off":     {text: "x", stop: "length"},
			"no JSON":               {raw: "data: {\"type\":\n\n"},
			"an endless event":      {raw: "data: " + strings.Repeat("x", maxEvent+1)},
			"two calls of one id":   {calls: []call{{id: "a", name: "shell", input: `{"command":"ls"}`}, {id: "a", name: "shell", input: `{"command":"ls"}`}}},
			"many calls":            {calls: slices.Repeat([]call{{name: "read", input: `{"path":"add.sh"}`}}, maxCalls+1)},
			"a long answer":         words(strings.Repeat("x", maxAnswer+1)),
		},
		RouteAnthropic: {
			"a call without a beginning": {raw: `data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{"}}` + "\n\n"},
		},
		RouteOpenAI: {
			"a call without a beginning": {raw: `data: {"choices":[{"delta":{"tool_calls":[{"index":1,"id":"a","function":{"name":"shell"}}]}}]}` + "\n\n"},
			"a call before the first":    {raw: `data: {"choices":[{"delta":{"tool_calls":[{"index":-1,"id":"a","function":{"name":"shell"}}]}}]}` + "\n\n"},
			"the end without a reason":   {raw: "data: [DONE]\n\n"},
		},
	}
	eachRoute(t, func(t *testing.T, route string) {
		for _, group := range []string{"both", route} {
			for name, answer := range bad[group] {
				t.Run(name, func(t *testing.T) {
					if route == RouteAnthropic && answer.stop == "length" {
						answer.stop = "max_tokens"
					}
					s := serve(t, route, answer)
					e := grow(t, s, repository(t))
					if !errors.Is(e.err, ErrStuck) || len(s.seen()) != maxUseless {
						t.Fatalf("after %d requests: %v", len(s.seen()), e.err)
					}
				})
			}
		}
	})
}

// TestGarbageIsForgiven: what counts is the number of useless answers in a row.
func TestGarbageIsForgiven(t *testing.T) {
	eachRoute(t, func(t *testing.T, route string) {
		var script []reply
		for i := range 3 {
			script = append(script, slices.Repeat([]reply{{}}, maxUseless-1)...)
			script = append(script, shell(fmt.Sprint("echo ", i)))
		}
		script = append(script, words("done"))
		if e := grow(t, serve(t, route, script...), repository(t)); e.err != nil || e.last != "done" {
			t.Errorf("it ended with %q, %v", e.last, e.err)
		}
	})
}

func TestGoingRound(t *testing.T) {
	eachRoute(t, func(t *testing.T, route string) {
		for name, test := range map[string]struct {
			circle   []reply
			requests int
		}{
			"one call":    {[]reply{shell("echo 1")}, 3},
			"two calls":   {[]reply{shell("echo 1"), shell("echo 2")}, 6},
			"three calls": {[]reply{shell("echo 1"), shell("echo 2"), shell("false")}, 9},
		} {
			t.Run(name, func(t *testing.T) {
				s := serve(t, route, slices.Repeat(test.circle, 5)...)
				e := grow(t, s, repository(t))
				if !errors.Is(e.err, ErrStuck) || len(s.seen()) != test.requests {
					t.Errorf("after %d requests: %v", len(s.seen()), e.err)
				}
			})
		}
	})
}

// TestForEver: a model that does something else each time is ended by its turns.
func TestForEver(t *testing.T) {
	eachRoute(t, func(t *testing.T, route string) {
		s := serve(t, route, shell("echo x >> log; cat log"))
		e := grow(t, s, repository(t))
		if !errors.Is(e.err, ErrStuck) || !strings.Contains(e.err.Error(), "20 turns") || len(s.seen()) != 20 {
			t.Errorf("after %d requests: %v", len(s.seen()), e.err)
		}
	})
}

// TestTheModelRefuses: that is no garbage, and asking again is no use.
func TestTheModelRefuses(t *testing.T) {
	for route, reason := range map[string]string{RouteAnthropic: "refusal", RouteOpenAI: "content_filter"} {
		s := serve(t, route, reply{text: "I", stop: reason})
		if e := grow(t, s, repository(t)); e.err == nil || errors.Is(e.err, ErrStuck) || len(s.seen()) != 1 {
			t.Errorf("%s: after %d requests: %v", route, len(s.seen()), e.err)
		}
	}
}

// TestManyCallsAtOnce: each has a result, and those that are too many are not done.
func TestManyCallsAtOnce(t *testing.T) {
	eachRoute(t, func(t *testing.T, route string) {
		dir := t.TempDir()
		calls := slices.Repeat([]call{{name: "shell", input: `{"command":"echo x >> log"}`}}, maxCalls)
		s := serve(t, route, reply{calls: calls}, words("done"))
		if e := grow(t, s, dir); e.err != nil {
			t.Fatal(e.err)
		}
		if log, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || string(log) != strings.Repeat("x\n", maxAtOnce) {
			t.Errorf("the log is %q, %v", log, err)
		}
		if n := strings.Count(s.seen()[1], "not done: at most"); n != maxCalls-maxAtOnce {
			t.Errorf("%d calls were not done", n)
		}
	})
}

func TestWordsAloneAreAskedAbout(t *testing.T) {
	eachRoute(t, func(t *testing.T, route string) {
		s := serve(t, route, words("I will look."), words("There is nothing to do."))
		e := grow(t, s, repository(t))
		if e.err != nil || e.last != "There is nothing to do." || !strings.Contains(s.seen()[1], "used no tool") {
			t.Errorf("it ended with %q, %v", e.last, e.err)
		}
	})
}

// TestHistoryStaysBounded: whatever the model does, no request is longer than the bound.
func TestHistoryStaysBounded(t *testing.T) {
	eachRoute(t, func(t *testing.T, route string) {
		var script []reply
		for i := range 12 {
			long := use("shell", map[string]any{"command": fmt.Sprintf("yes %d | head -c 1000000", i)})
			long.text = strings.Repeat("words ", 2000)
			script = append(script, long, use("write", map[string]any{"path": "big", "content": strings.Repeat(fmt.Sprint(i), 30_000)}))
		}
		script = append(script, words("done"))
		s := serve(t, route, script...)
		e := grow(t, s, repository(t), func(o *Options) { o.Turns = 40 })
		if e.err != nil {
			t.Fatal(e.err)
		}
		longest := 0
		for _, body := range s.seen() {
			longest = max(longest, len(body))
			if !strings.Contains(body, "make the failing test pass") {
				t.Error("the model does not see any more what it was asked for")
			}
		}
		// Escapes and field names are more than the bound counts.
		if limit := MinContext * bytesPerToken * 5 / 4; longest > limit {
			t.Errorf("a request has %d bytes, and the bound is %d", longest, limit)
		}
	})
}

// TestContextShrinks: a model whose context is smaller than was said gets less.
func TestContextShrinks(t *testing.T) {
	eachRoute(t, func(t *testing.T, route string) {
		long := shell("yes | head -c 20000")
		s := serve(t, route, long, shell("echo 1"), reply{status: 400, kind: "invalid_request_error", code: "context_length_exceeded"}, words("done"))
		if e := grow(t, s, repository(t)); e.err != nil {
			t.Fatal(e.err)
		}
		bodies := s.seen()
		if before, after := len(bodies[2]), len(bodies[3]); after > before/2 {
			t.Errorf("%d bytes were too long, and %d follow", before, after)
		}
	})
}

func TestEndsWithItsContext(t *testing.T) {
	eachRoute(t, func(t *testing.T, route string) {
		why := errors.New("told to end")
		ctx, cancel := context.WithCancelCause(t.Context())
		dir := repository(t)
		l, err := newLoop(options(t, serve(t, route, shell("echo $$ > pid; mkfifo wait; cat wait")), dir))
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		done := make(chan error)
		go func() {
			_, err := l.run(ctx)
			done <- err
		}()
		await(t, filepath.Join(dir, "wait"))
		cancel(why)
		if err := <-done; !errors.Is(err, why) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// await polls for a file that another process makes.
func await(t *testing.T, path string) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the test ended")
		case <-ticker.C:
		}
	}
}

func TestOptions(t *testing.T) {
	s := serve(t, RouteOpenAI, words("x"))
	for name, wrong := range map[string]func(*Options){
		"no ask":             func(o *Options) { o.Ask = "" },
		"a long ask":         func(o *Options) { o.Ask = strings.Repeat("x", MaxAsk+1) },
		"no model":           func(o *Options) { o.Model = "" },
		"no turns":           func(o *Options) { o.Turns = 0 },
		"no output":          func(o *Options) { o.Output = 0 },
		"a small context":    func(o *Options) { o.Context = MinContext - 1 },
		"no route":           func(o *Options) { o.Route = "" },
		"another host":       func(o *Options) { o.BaseURL = "http://example.com/v1" },
		"another scheme":     func(o *Options) { o.BaseURL = "https://127.0.0.1/v1" },
		"user information":   func(o *Options) { o.BaseURL = "http://user:secret@127.0.0.1/v1" },
		"no base URL":        func(o *Options) { o.BaseURL = "" },
		"a name that begins": func(o *Options) { o.BaseURL = "http://127.0.0.1.example.com/" },
	} {
		o := options(t, s, t.TempDir())
		wrong(&o)
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrUsage) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(s.seen()) > 0 {
		t.Error("the model was asked")
	}
}
