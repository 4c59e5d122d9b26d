//go:build linux

package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tendril/api"
	"tendril/api/client"
	"tendril/capability"
	"tendril/fault"
	"tendril/run"
)

// kernel answers calls as a test says.
type kernel func(ctx context.Context, caller api.Caller, name string, input []byte) api.Answer

func (k kernel) Call(ctx context.Context, caller api.Caller, name string, input []byte) api.Answer {
	return k(ctx, caller, name, input)
}

// serve serves the kernel until the test ends, and returns the socket's path.
func serve(t testing.TB, k kernel) string {
	t.Helper()
	socket := filepath.Join(privateDir(t), "s")
	listener, err := api.Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.NewServer(k, func(text string) { t.Log(text) }).Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return socket
}

// privateDir is short enough for the path of a socket.
func privateDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

var exampleRun = run.Run{ID: run.NewID(), State: run.Fruited, Pollen: "botanist", Substrate: run.Substrate{Path: "/src/\xff"}, Started: new(run.At(time.Unix(1, 0))), Egress: []run.Reach{}}

func TestCall(t *testing.T) {
	token := "not judged here"
	input := capability.ListInput{Limit: 7, State: run.Fruited}
	var got api.Caller
	var gotInput capability.ListInput
	socket := serve(t, func(_ context.Context, caller api.Caller, name string, data []byte) api.Answer {
		got = caller
		if err := capability.Decode(data, &gotInput); err != nil || name != "run.list" {
			t.Errorf("%s: %v", name, err)
		}
		return api.Answer{Row: new(int64(17)), Output: []run.Run{exampleRun}, Authenticated: true}
	})
	output, row, err := client.Call(t.Context(), client.Request{Socket: socket, Token: &token, Capability: "run.list", Input: input})
	if err != nil {
		t.Fatal(err)
	}
	if row == nil || *row != 17 {
		t.Errorf("row %v", row)
	}
	if got.UID != os.Geteuid() || got.Token == nil || *got.Token != token {
		t.Errorf("the caller is %+v", got)
	}
	if diff := cmp.Diff(input, gotInput); diff != "" {
		t.Error(diff)
	}
	want := exampleRun
	want.Flags, want.Boundary, want.Unenforced = []run.Flag{}, []run.Row{}, []run.Limit{}
	if diff := cmp.Diff([]run.Run{want}, output); diff != "" {
		t.Error(diff)
	}
}

func TestCallReturnsFaults(t *testing.T) {
	var answer api.Answer
	socket := serve(t, func(context.Context, api.Caller, string, []byte) api.Answer { return answer })
	for _, test := range []struct {
		answer api.Answer
		want   fault.Error
	}{
		{
			api.Answer{Row: new(int64(3)), Err: fault.New(fault.Denied, "no <%s>", "\x1b[31m").WithRule("r").WithHint("h")},
			fault.Error{Kind: fault.Denied, Detail: "no <\x1b[31m>", Rule: "r", Hint: "h"},
		},
		{api.Answer{Err: fault.New(fault.NotFound, "nothing")}, fault.Error{Kind: fault.NotFound, Detail: "nothing"}},
		{
			api.Answer{Err: fault.New(fault.Internal, "secret 42"), Authenticated: true, Botanist: true},
			fault.Error{Kind: fault.Internal, Detail: "secret 42"},
		},
		{
			api.Answer{Err: io.ErrNoProgress, Authenticated: true, Botanist: true},
			fault.Error{Kind: fault.Internal, Detail: io.ErrNoProgress.Error()},
		},
	} {
		answer = test.answer
		_, row, err := client.Call(t.Context(), client.Request{Socket: socket, Capability: "run.list", Input: capability.ListInput{}})
		var got *fault.Error
		if !errors.As(err, &got) {
			t.Errorf("err = %v", err)
			continue
		}
		if diff := cmp.Diff(test.want, *got); diff != "" {
			t.Error(diff)
		}
		if !reflect.DeepEqual(row, test.answer.Row) {
			t.Errorf("row %v, want %v", row, test.answer.Row)
		}
	}
}

func TestCallStreams(t *testing.T) {
	sent := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // many windows
	sizes := make(chan capability.Size)
	resized, progressed := make(chan struct{}), make(chan struct{})
	socket := serve(t, func(ctx context.Context, _ api.Caller, _ string, _ []byte) api.Answer {
		if size := <-capability.Resizes(ctx); size != (capability.Size{Rows: 24, Cols: 80}) {
			t.Errorf("the size is %v", size)
		}
		close(resized)
		capability.Progress(ctx, "reading", 1, 2)
		<-progressed
		buffer := make([]byte, 100_000)
		for id := int64(1); ; id++ {
			n, err := capability.Input(ctx).Read(buffer)
			if n > 0 {
				capability.Emit(ctx, run.Event{ID: id, Run: exampleRun.ID, Data: run.OutputChunk{FD: 1, Bytes: bytes.Clone(buffer[:n])}})
			}
			if err == io.EOF {
				return api.Answer{Output: exampleRun, Authenticated: true}
			}
			if err != nil {
				return api.Answer{Err: err, Authenticated: true}
			}
		}
	})
	var echoed bytes.Buffer
	var progress []string
	var once sync.Once
	ctx := capability.WithEvents(t.Context(), func(e run.Event) { echoed.Write(e.Data.(run.OutputChunk).Bytes) })
	ctx = capability.WithInput(ctx, bytes.NewReader(sent))
	ctx = capability.WithResizes(ctx, sizes)
	ctx = capability.WithProgress(ctx, func(what string, done, total int64) {
		progress = append(progress, what)
		once.Do(func() { close(progressed) })
	})
	go func() {
		sizes <- capability.Size{Rows: 24, Cols: 80}
		<-resized
		close(sizes)
	}()
	output, _, err := client.Call(ctx, client.Request{Socket: socket, Capability: "sprout.grow", Input: growInput()})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(echoed.Bytes(), sent) {
		t.Errorf("%d bytes came back of %d", echoed.Len(), len(sent))
	}
	if output.(run.Run).ID != exampleRun.ID {
		t.Errorf("got %+v", output)
	}
	if diff := cmp.Diff([]string{"reading", ""}, progress); diff != "" {
		t.Error(diff)
	}
}

func growInput() capability.GrowInput {
	var in capability.GrowInput
	in.Substrate.Name = "handbook"
	in.Argv = []string{"cat"}
	return in
}

func TestCallWithoutStdinHasItsEnd(t *testing.T) {
	socket := serve(t, func(ctx context.Context, _ api.Caller, _ string, _ []byte) api.Answer {
		data, err := io.ReadAll(capability.Input(ctx))
		if err != nil || len(data) != 0 {
			t.Errorf("%q, %v", data, err)
		}
		return api.Answer{Output: exampleRun, Authenticated: true}
	})
	if _, _, err := client.Call(t.Context(), client.Request{Socket: socket, Capability: "sprout.grow", Input: growInput()}); err != nil {
		t.Fatal(err)
	}
}

// A call is cancelled also while nobody reads its stdin.
func TestCallIsCancelledInOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	socket := serve(t, func(ctx context.Context, _ api.Caller, _ string, _ []byte) api.Answer {
		cancel()
		<-ctx.Done()
		return api.Answer{Row: new(int64(1)), Output: exampleRun, Authenticated: true}
	})
	ctx = capability.WithInput(ctx, endless{})
	output, row, err := client.Call(ctx, client.Request{Socket: socket, Capability: "sprout.grow", Input: growInput()})
	if err != nil || row == nil || output.(run.Run).ID != exampleRun.ID {
		t.Errorf("%v, %v, %v", output, row, err)
	}
}

// A Stem that is stopped, or hangs, does not keep who wants to leave.
func TestAStemThatSaysNothingIsLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	socket := serve(t, func(context.Context, api.Caller, string, []byte) api.Answer {
		cancel()
		<-left
		return api.Answer{Output: exampleRun, Authenticated: true}
	})
	_, _, err := client.Call(ctx, client.Request{Socket: socket, Capability: "sprout.grow", Input: growInput(), Patience: time.Millisecond})
	close(left)
	if !fault.Is(err, fault.Internal) || !strings.Contains(err.Error(), "said nothing for 1ms, so what became of the call is not known") {
		t.Errorf("err = %v", err)
	}
}

type endless struct{}

func (endless) Read(into []byte) (int, error) { return len(into), nil }

// An input that breaks off is not taken for one that ends.
func TestInputThatBreaksOff(t *testing.T) {
	socket := serve(t, func(ctx context.Context, _ api.Caller, _ string, _ []byte) api.Answer {
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(capability.Input(ctx))
			read <- err
		}()
		<-ctx.Done()
		select {
		case err := <-read:
			t.Errorf("the input ended with %v", err)
		default:
		}
		return api.Answer{Err: ctx.Err(), Authenticated: true}
	})
	ctx := capability.WithInput(t.Context(), io.MultiReader(strings.NewReader("half"), broken{}))
	_, _, err := client.Call(ctx, client.Request{Socket: socket, Capability: "sprout.grow", Input: growInput()})
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("err = %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestInputThatCannotBeSent(t *testing.T) {
	socket := serve(t, func(context.Context, api.Caller, string, []byte) api.Answer {
		t.Error("it was sent")
		return api.Answer{}
	})
	mended := growInput()
	mended.Argv = []string{"cat", "\xff"}
	large := growInput()
	large.Argv = []string{"cat", strings.Repeat("x", 5<<20)}
	for _, input := range []any{mended, large, func() {}} {
		_, _, err := client.Call(t.Context(), client.Request{Socket: socket, Capability: "sprout.grow", Input: input})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("err = %v", err)
		}
	}
	if _, _, err := client.Call(t.Context(), client.Request{Socket: socket, Capability: "run.lsit"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("err = %v", err)
	}
}

func TestNobodyServes(t *testing.T) {
	dir := privateDir(t)
	request := client.Request{Socket: filepath.Join(dir, "none"), Capability: "run.list", Input: capability.ListInput{}}
	if _, _, err := client.Call(t.Context(), request); !fault.Is(err, fault.Unavailable) {
		t.Errorf("no socket: %v", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: request.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	if _, _, err := client.Call(t.Context(), request); !fault.Is(err, fault.Unavailable) {
		t.Errorf("nobody listens: %v", err)
	}
}

// say has somebody who is no Stem answer one connection.
func say(t *testing.T, socket, text string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		io.WriteString(conn, text)
		conn.Close()
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
}

func TestAnswersThatAreNone(t *testing.T) {
	for _, text := range []string{
		"", "\n", `{"row":1,"output":[]}`, "{}\n", `{"row":1}` + "\n", `{"row":1,"output":{}}` + "\n",
		`{"row":1,"output":[],"error":{"kind":"denied"}}` + "\n", `{"row":1,"output":[{"run":"r","more":1}]}` + "\n",
		`{"event":{"id":1}}` + "\n", `{"output":[]} x` + "\n", `{"news":1,"output":[]}` + "\n", "null\n", "[]\n",
	} {
		socket := filepath.Join(privateDir(t), "s")
		say(t, socket, text)
		output, _, err := client.Call(t.Context(), client.Request{Socket: socket, Capability: "run.list", Input: capability.ListInput{}})
		// It may have been done: that is not the kind of what was not.
		if !fault.Is(err, fault.Internal) || !strings.Contains(err.Error(), "what became of the call is not known") || output != nil {
			t.Errorf("%q: %v, %v", text, output, err)
		}
	}
}

// The answer of a server that does not read the call is read all the same.
func TestAnswerBeforeTheCallIsRead(t *testing.T) {
	socket := filepath.Join(privateDir(t), "s")
	say(t, socket, `{"row":null,"error":{"kind":"unavailable","detail":"full","rule":"","hint":""}}`+"\n")
	input := growInput()
	for range 10 {
		input.Argv = append(input.Argv, strings.Repeat("x", 100_000)) // more than a socket's buffer
	}
	_, _, err := client.Call(t.Context(), client.Request{Socket: socket, Capability: "sprout.grow", Input: input})
	if !fault.Is(err, fault.Unavailable) || err.Error() != "full" {
		t.Errorf("err = %v", err)
	}
}

func yes(context.Context, api.Caller, string, []byte) api.Answer {
	return api.Answer{Output: []run.Run{}, Authenticated: true}
}
