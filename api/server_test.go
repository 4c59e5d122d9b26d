//go:build linux

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/api/wire"
	"tendril/capability"
	"tendril/fault"
	"tendril/run"
)

func yes(context.Context, Caller, string, []byte) Answer {
	return Answer{Row: new(int64(1)), Output: "done", Authenticated: true}
}

const done = `{"row":1,"output":"done"}`

func TestCallerIsWhatIsProven(t *testing.T) {
	var mu sync.Mutex
	var got Caller
	var gotName, gotInput string
	s := serve(t, func(ctx context.Context, caller Caller, name string, input []byte) Answer {
		mu.Lock()
		defer mu.Unlock()
		got, gotName, gotInput = caller, name, string(input)
		return yes(ctx, caller, name, input)
	}, generous)
	for _, test := range []struct{ line, name, token, input string }{
		{`{"version":1,"capability":"run.list"}`, "run.list", "none", "{}"},
		{`{"version":1,"capability":"run.list","token":null,"input":null}`, "run.list", "none", "{}"},
		{`{"version":1,"capability":"no.such.thing","token":"","input":[1]}`, "no.such.thing", `""`, "[1]"},
		{`{"input":{"uid":0,"pollen":"botanist"},"token":"t\n","capability":"a","version":1}`, "a", `"t\n"`, `{"uid":0,"pollen":"botanist"}`},
	} {
		c := s.dial().say(test.line + "\n")
		c.expect(done)
		c.expectEnd()
		mu.Lock()
		token := "none"
		if got.Token != nil {
			token = fmt.Sprintf("%q", *got.Token)
		}
		if got.UID != os.Geteuid() || gotName != test.name || token != test.token || gotInput != test.input {
			t.Errorf("%s: %d %s %s %s", test.line, got.UID, gotName, token, gotInput)
		}
		mu.Unlock()
	}
	c := s.dialAs(61234).call("run.list")
	c.expect(done)
	mu.Lock()
	defer mu.Unlock()
	if got.UID != 61234 {
		t.Errorf("uid 61234 was taken for %d", got.UID)
	}
}

// What is wrong with the first line never reaches the kernel.
func TestFirstLinesThatAreRefused(t *testing.T) {
	s := serve(t, func(_ context.Context, _ Caller, name string, input []byte) Answer {
		t.Errorf("the kernel was called for %q with %.100q", name, input)
		return Answer{}
	}, generous)
	for _, line := range []string{
		"", "null", "[]", "1", "{", "{}", `{"version":1}`, `{"capability":"run.list"}`, `{"version":2,"capability":"run.list"}`,
		`{"version":"1","capability":"run.list"}`, `{"version":1,"capability":""}`, `{"version":1,"capability":null}`,
		`{"version":1,"capability":"` + strings.Repeat("x", 65) + `"}`,
		`{"version":1,"capability":"run.list","uid":0}`, `{"version":1,"capability":"run.list","Token":"x"}`,
		`{"version":1,"Capability":"run.list"}`, `{"version":1,"capability":"run.list","capability":"run.get"}`,
		`{"version":1,"capability":"run.list","input":{"a":1,"a":2}}`, `{"version":1,"capability":"run.list","token":7}`,
		`{"version":1,"capability":"run.list"} {}`, "{\"version\":1,\"capability\":\"\xff\"}", `{"version":1,"capability":"\ud800"}`,
		`{"version":1,"capability":"run.list","input":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
		"GET / HTTP/1.1\r", strings.Repeat("x", smallCall+1), strings.Repeat("{", wire.LargestCall+1),
	} {
		c := s.dial()
		go c.say(line + "\n")
		got, err := c.hear()
		if err != nil || !strings.HasPrefix(got, `{"row":null,"error":{"kind":"invalid",`) {
			t.Errorf("%.80q: %.200s, %v", line, got, err)
		}
		c.expectEnd()
	}
}

func TestLargeCallsAreTaken(t *testing.T) {
	s := serve(t, func(_ context.Context, _ Caller, _ string, input []byte) Answer {
		return Answer{Output: len(input), Authenticated: true}
	}, generous)
	frame := len(`{"version":1,"capability":"a","input":""}`)
	for _, size := range []int{smallCall - 1, smallCall, smallCall + 1, wire.LargestCall} {
		text := strings.Repeat("x", size-frame)
		c := s.dial()
		go c.say(`{"version":1,"capability":"a","input":"` + text + `"}` + "\n")
		c.expect(fmt.Sprintf(`{"row":null,"output":%d}`, len(text)+2))
	}
}

// Large first lines of one uid wait for each other; small ones do not.
func TestLargeCallsAreBounded(t *testing.T) {
	b := generous
	b.largeCalls = 1
	s := serve(t, yes, b)
	first := s.dial().say(strings.Repeat(" ", 2*smallCall)) // and no end of the line
	waiting := make(chan struct{})
	second := s.dial()
	go func() {
		defer close(waiting)
		second.say(strings.Repeat(" ", 2*smallCall) + `{"version":1,"capability":"a"}` + "\n")
	}()
	s.dial().call("a").expect(done)
	first.conn.Close()
	second.expect(done)
	<-waiting

	b.largeCalls, b.firstLine = 0, time.Second // as if others had all of them until the end
	s = serve(t, yes, b)
	third := s.dial()
	go third.say(strings.Repeat(" ", 2*smallCall) + `{"version":1,"capability":"a"}` + "\n")
	if got, err := third.hear(); err != nil || !strings.HasPrefix(got, `{"row":null,"error":{"kind":"unavailable"`) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestACallThatDoesNotCome(t *testing.T) {
	b := generous
	b.firstLine = time.Nanosecond
	s := serve(t, yes, b)
	for _, text := range []string{"", `{"version":1,`} {
		c := s.dial().say(text)
		if got, err := c.hear(); err != nil || !strings.HasPrefix(got, `{"row":null,"error":{"kind":"unavailable","detail":"no call came within`) {
			t.Errorf("%q: %s, %v", text, got, err)
		}
		c.expectEnd()
	}
}

// A client that is gone has cancelled its call, whatever it left behind.
func TestClientsThatLeave(t *testing.T) {
	for _, behind := range []string{"", `{"stdin_b64":"`, `{"stdin_b64":"eA=="}` + "\n", `{"stdin_end":true}` + "\n"} {
		ended := make(chan error)
		s := serve(t, func(ctx context.Context, caller Caller, name string, input []byte) Answer {
			<-ctx.Done()
			ended <- ctx.Err()
			return yes(ctx, caller, name, input)
		}, generous)
		c := s.dial().call("a").say(behind)
		c.conn.Close()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s.stop()
	}
}

// Lines after the first that nobody says end the call, and the answer says why.
func TestFurtherLinesThatAreRefused(t *testing.T) {
	s := serve(t, func(ctx context.Context, caller Caller, name string, input []byte) Answer {
		<-ctx.Done()
		return yes(ctx, caller, name, input)
	}, generous)
	full := `{"stdin_b64":"` + strings.Repeat("AAAA", wire.StdinChunk/3) + `"}` + "\n"
	for _, text := range []string{
		"\n", "{}\n", "null\n", "x\n", `{"cancel":false}` + "\n", `{"stdin_end":false}` + "\n", `{"cancel":true,"stdin_end":true}` + "\n",
		`{"Cancel":true}` + "\n", `{"cancel":true,"cancel":true}` + "\n", `{"resize":{"rows":-1,"cols":1}}` + "\n",
		`{"resize":{"rows":65536,"cols":1}}` + "\n", `{"resize":{"rows":1,"columns":1}}` + "\n", `{"stdin_b64":"!"}` + "\n", `{"stdin_b64":7}` + "\n",
		`{"version":1,"capability":"b"}` + "\n", `{"stdin_end":true}` + "\n" + `{"stdin_end":true}` + "\n",
		`{"stdin_end":true}` + "\n" + `{"stdin_b64":"eA=="}` + "\n",
		`{"stdin_b64":"` + strings.Repeat("AAAA", wire.StdinChunk/3+1) + `"}` + "\n",
		strings.Repeat(full, wire.StdinWindow/(wire.StdinChunk-1)+1), strings.Repeat("x", wire.LargestMessage+1) + "\n",
	} {
		c := s.dial().call("a")
		go c.say(text)
		got, err := c.hear()
		if err != nil || !strings.HasPrefix(got, `{"row":1,"error":{"kind":"invalid",`) {
			t.Errorf("%.80q: %.200s, %v", text, got, err)
		}
		c.expectEnd()
	}
}

func TestCancelIsSeenBehindStdinThatNobodyReads(t *testing.T) {
	s := serve(t, func(ctx context.Context, caller Caller, name string, input []byte) Answer {
		<-ctx.Done()
		capability.Emit(ctx, run.Event{ID: 1, Run: someRun, Data: run.StateChange{State: run.Collecting}})
		return yes(ctx, caller, name, input)
	}, generous)
	chunk := `{"stdin_b64":"` + strings.Repeat("AAAA", wire.StdinChunk/3) + `"}` + "\n"
	c := s.dial().call("a")
	go c.say(strings.Repeat(chunk, 4) + `{"cancel":true}` + "\n")
	if got, err := c.hear(); err != nil || !strings.Contains(got, `"state":"collecting"`) {
		t.Errorf("%s, %v", got, err)
	}
	c.expect(done)
}

var someRun = run.NewID()

// A client that reads nothing holds up its own call, and loses it in the end; nobody
// else waits for it.
func TestClientsThatDoNotRead(t *testing.T) {
	b := generous
	b.stall = 20 * time.Millisecond
	lost := make(chan struct{})
	s := serve(t, func(ctx context.Context, caller Caller, name string, input []byte) Answer {
		if name == "flood" {
			for id := int64(1); ctx.Err() == nil; id++ {
				capability.Emit(ctx, run.Event{ID: id, Run: someRun, Data: run.OutputChunk{FD: 1, Bytes: make([]byte, 32<<10)}})
			}
			close(lost)
		}
		return yes(ctx, caller, name, input)
	}, b)
	s.dial().call("flood")
	for range 10 {
		s.dial().call("a").expect(done)
	}
	<-lost
}

func TestResizesAreTheLatest(t *testing.T) {
	sent := make(chan struct{})
	s := serve(t, func(ctx context.Context, _ Caller, _ string, _ []byte) Answer {
		<-sent
		for size := range capability.Resizes(ctx) {
			if size.Rows == 1000 {
				break
			}
		}
		return Answer{Output: "done", Row: new(int64(1)), Authenticated: true}
	}, generous)
	c := s.dial().call("a")
	for rows := 1; rows <= 1000; rows++ {
		c.say(fmt.Sprintf(`{"resize":{"rows":%d,"cols":80}}`+"\n", rows))
	}
	close(sent)
	c.expect(done)
}

func TestInternalErrorsStayInside(t *testing.T) {
	var answer Answer
	var mu sync.Mutex
	var notices []string
	server := newServer(kernel(func(context.Context, Caller, string, []byte) Answer { return answer }), func(text string) {
		mu.Lock()
		defer mu.Unlock()
		notices = append(notices, text)
	}, generous)
	s := serveWith(t, server)
	for _, err := range []error{
		errors.New("secret 42"), fault.New(fault.Internal, "secret 42").WithHint("secret 42"),
		fmt.Errorf("wrapped: %w", fault.New(fault.Internal, "secret 42")), errors.Join(errors.New("secret 42"), io.EOF),
	} {
		answer = Answer{Row: new(int64(7)), Err: err, Authenticated: true}
		notices = nil
		got, hearErr := s.dial().call("a").hear()
		if hearErr != nil || strings.Contains(got, "42") || !strings.HasPrefix(got, `{"row":7,"error":{"kind":"internal",`) {
			t.Errorf("%s, %v", got, hearErr)
		}
		reference := regexp.MustCompile(`reference ([A-Z2-7]{26})`).FindStringSubmatch(got)
		mu.Lock()
		if reference == nil || len(notices) != 1 || !strings.Contains(notices[0], reference[1]) || !strings.Contains(notices[0], "secret 42") {
			t.Errorf("%s; notices %q", got, notices)
		}
		mu.Unlock()
	}
	answer = Answer{Err: errors.New("secret 42"), Authenticated: true, Botanist: true}
	s.dial().call("a").expect(`{"row":null,"error":{"kind":"internal","detail":"secret 42","rule":"","hint":""}}`)
	// A fault is for the caller; what was put around it is not.
	answer = Answer{Err: fmt.Errorf("secret 42: %w", fault.New(fault.NotFound, "no run")), Authenticated: true}
	s.dial().call("a").expect(`{"row":null,"error":{"kind":"not-found","detail":"no run","rule":"","hint":""}}`)
	answer = Answer{Output: make(chan int), Authenticated: true}
	if got, err := s.dial().call("a").hear(); err != nil || !strings.Contains(got, `"kind":"internal"`) {
		t.Errorf("an output that is no JSON: %s, %v", got, err)
	}
	answer = Answer{Output: json.RawMessage(`"` + strings.Repeat("x", wire.LargestReply) + `"`), Authenticated: true}
	if got, err := s.dial().call("a").hear(); err != nil || !strings.Contains(got, `"kind":"unavailable"`) {
		t.Errorf("an output that is too large: %.100s, %v", got, err)
	}
}

// When the server ends, calls are cancelled and still answered, and clients that have asked
// for nothing are turned away.
func TestServeEndsInOrder(t *testing.T) {
	called := make(chan struct{})
	s := serve(t, func(ctx context.Context, caller Caller, name string, input []byte) Answer {
		close(called)
		<-ctx.Done()
		return yes(ctx, caller, name, input)
	}, generous)
	busy, idle := s.dial().call("a"), s.dial()
	<-called
	s.stop()
	busy.expect(done)
	busy.expectEnd()
	if got, err := idle.hear(); err == nil && !strings.Contains(got, `"kind":"unavailable"`) { // or it was not accepted any more
		t.Errorf("%s, %v", got, err)
	}
	if _, err := os.Lstat(s.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// Events that come after the answer go nowhere.
func TestLateEvents(t *testing.T) {
	var late context.Context
	s := serve(t, func(ctx context.Context, caller Caller, name string, input []byte) Answer {
		late = ctx
		return yes(ctx, caller, name, input)
	}, generous)
	c := s.dial().call("a")
	c.expect(done)
	c.expectEnd()
	s.stop()
	capability.Emit(late, run.Event{ID: 1, Run: someRun, Data: run.StateChange{State: run.Running}})
	capability.Progress(late, "late", 1, 2)
	if n, err := capability.Input(late).Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
		t.Errorf("late stdin: %d, %v", n, err)
	}
}

func TestManyCallers(t *testing.T) {
	s := serve(t, func(ctx context.Context, _ Caller, name string, _ []byte) Answer {
		data, err := io.ReadAll(capability.Input(ctx))
		if err != nil {
			return Answer{Err: err, Authenticated: true}
		}
		for id := range int64(20) {
			capability.Emit(ctx, run.Event{ID: id + 1, Run: someRun, Data: run.OutputChunk{FD: 1, Bytes: data}})
			capability.Progress(ctx, name, id, 20)
		}
		return Answer{Output: name, Authenticated: true}
	}, generous)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			name := fmt.Sprintf("caller.%d", i)
			c := s.dial().call(name)
			go c.say(`{"stdin_b64":"` + strings.Repeat("AAAA", 10_000) + `"}` + "\n" + `{"stdin_end":true}` + "\n")
			for events := 0; ; {
				line, err := c.hear()
				switch {
				case err != nil:
					t.Error(err)
					return
				case strings.HasPrefix(line, `{"event":`):
					events++
					continue
				case strings.HasPrefix(line, `{"progress":{"what":"`+name+`"`):
					continue
				}
				if line != `{"row":null,"output":"`+name+`"}` || events != 20 {
					t.Errorf("%d events and %.200s", events, line)
				}
				return
			}
		})
	}
	wg.Wait()
}
