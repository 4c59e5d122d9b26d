package stoma

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/fault"
)

// script is what a hostile guest sends.
type script struct{ bytes.Buffer }

func newScript() *script {
	s := &script{}
	s.Write(appendHello(nil, Hello{Version: "evil", OS: "linux", Arch: "amd64"}))
	return s
}

func (s *script) frame(kind frameType, stream, length uint32, payload string) *script {
	s.Write(appendFrame(nil, kind, stream, length, []byte(payload)))
	return s
}

// reading plays a script and swallows what the host sends.
type reading struct {
	io.Reader
	closed chan struct{}
	once   sync.Once
}

func play(r io.Reader) *reading { return &reading{Reader: r, closed: make(chan struct{})} }

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n == 0 && err == io.EOF {
		<-r.closed // the guest says nothing more, and stays
	}
	return n, err
}

func (r *reading) Write(p []byte) (int, error) { return len(p), nil }

func (r *reading) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}

func TestViolations(t *testing.T) {
	conn := string(AppendBytes(AppendBytes(nil, StreamConn), "proxy"))
	open := func(s *script, id uint32) *script { return s.frame(frameOpen, id, uint32(len(conn)), conn) }
	for _, tc := range []struct {
		rule string
		s    *script
	}{
		{"unknown frame type", newScript().frame(9, 2, 0, "")},
		{"stream 0", newScript().frame(frameOpen, 0, 0, "")},
		{"payload over 64 KiB", newScript().frame(frameData, 2, MaxPayload+1, "")},
		{"header over 64 KiB", newScript().frame(frameOpen, 2, 1<<31, "")},
		{"data frame without data", newScript().frame(frameData, 2, 0, "")},
		{"credit of nothing", newScript().frame(frameCredit, 2, 0, "")},
		{"end of stream with a payload", newScript().frame(frameEOF, 2, 1, "x")},
		{"reset of a wrong size", newScript().frame(frameReset, 2, 1, "x")},
		{"reset of a wrong size", newScript().frame(frameReset, 2, 3+MaxReason, strings.Repeat("x", 3+MaxReason))},
		{"stream id out of order", newScript().frame(frameOpen, 1, 0, "")},
		{"stream id out of order", open(open(newScript(), 4), 2)},
		{"stream id out of order", open(open(newScript(), 2), 2)},
		{"frame for a stream that was never opened", newScript().frame(frameData, 2, 1, "x")},
		{"frame for a stream that was never opened", newScript().frame(frameCredit, 1, 1, "")},
		{"credit overflow", open(newScript(), 2).frame(frameCredit, 2, MaxWindow, "")},
		{"credit overflow", open(newScript(), 2).frame(frameCredit, 2, 1<<32-1, "")},
		{"data after the end of a stream", open(newScript(), 2).frame(frameEOF, 2, 0, "").frame(frameData, 2, 1, "x")},
		{"data after the end of a stream", open(newScript(), 2).frame(frameEOF, 2, 0, "").frame(frameEOF, 2, 0, "")},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			c, err := Connect(t.Context(), play(tc.s), Options{Conn: func(_ string, st *Stream) { <-st.Over() }})
			if err == nil {
				<-c.Done()
				err = c.Err()
				_ = c.Close()
			}
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.BrokenBoundary || f.Rule != "stoma: "+tc.rule {
				t.Errorf("ended with %v (rule %q), want the rule %q", err, ruleOf(err), tc.rule)
			}
		})
	}
}

func ruleOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Rule
	}
	return ""
}

func TestDataBeyondCredit(t *testing.T) {
	conn := string(AppendBytes(AppendBytes(nil, StreamConn), "proxy"))
	s := newScript().frame(frameOpen, 2, uint32(len(conn)), conn)
	for range FirstWindow/MaxPayload + 1 {
		s.frame(frameData, 2, MaxPayload, strings.Repeat("x", MaxPayload))
	}
	c, err := Connect(t.Context(), play(s), Options{Conn: func(_ string, st *Stream) { <-st.Over() }})
	if err == nil { // otherwise it was seen before Connect returned
		<-c.Done()
		err = c.Err()
		_ = c.Close()
	}
	if rule := ruleOf(err); rule != "stoma: data beyond credit" {
		t.Errorf("ended with %v", err)
	}
}

func TestWrongHello(t *testing.T) {
	good := appendHello(nil, Hello{})
	for name, b := range map[string][]byte{
		"magic":      append([]byte("stomA"), good[5:]...),
		"version":    append([]byte("stoma\x00\x02"), good[7:]...),
		"too long":   append(append([]byte{}, good[:7]...), 0xff, 0xff, 0x7f),
		"overlong":   append(append([]byte{}, good[:7]...), 0x83, 0x00, 0, 0, 0),
		"extra":      append(append([]byte{}, good[:7]...), 4, 0, 0, 0, 0),
		"incomplete": append(append([]byte{}, good[:7]...), 1, 0),
	} {
		_, err := Connect(t.Context(), play(bytes.NewReader(b)), Options{})
		if !fault.Is(err, fault.BrokenBoundary) {
			t.Errorf("%s: %v, want broken-boundary", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, play(strings.NewReader("sto")), Options{}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("silence: %v, want unavailable", err)
	}
}

// answer is a guest that answers every stream the host opens with the bytes and,
// when end is set, the end.
func answer(t *testing.T, b []byte, end bool) *Client {
	t.Helper()
	a, g := net.Pipe()
	guest := NewSession(g, Guest, "", func(st *Stream, _ *Fields) {
		go func() {
			_, _ = st.Write(b)
			if end {
				_ = st.CloseWrite()
			}
		}()
	})
	c, err := Connect(t.Context(), a, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = guest.Close()
	})
	return c
}

func message(fields []byte) []byte { return AppendBytes(nil, fields) }

func concat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestLyingCollection(t *testing.T) {
	file := message(RecordMessage(File, "a", 3))
	end := message(SummaryMessage(Summary{Records: 1}))
	for name, b := range map[string][]byte{
		"nothing":                 nil,
		"no summary":              concat(file, []byte("abc")),
		"a wrong count":           concat(file, []byte("abc"), message(SummaryMessage(Summary{Records: 2}))),
		"data after the summary":  concat(file, []byte("abc"), end, []byte("x")),
		"an absolute path":        concat(message(RecordMessage(File, "/a", 0)), end),
		"a path upwards":          concat(message(RecordMessage(File, "a/../../b", 0)), end),
		"an empty component":      concat(message(RecordMessage(File, "a//b", 0)), end),
		"a NUL":                   concat(message(RecordMessage(File, "a\x00b", 0)), end),
		"a path that is too long": concat(message(RecordMessage(File, strings.Repeat("a", MaxPath+1), 0)), end),
		"an unknown kind":         concat(message(RecordMessage("socket", "a", 0)), end),
		"a delete with content":   concat(message(RecordMessage(Delete, "a", 1)), []byte("x"), end),
		"a negative size":         concat(message(AppendUint(AppendBytes(AppendBytes(nil, File), "a"), 1<<63)), end),
		"a link without target":   concat(message(RecordMessage(Symlink, "a", 0)), end),
		"a huge message":          {0xff, 0xff, 0xff, 0x7f},
	} {
		t.Run(name, func(t *testing.T) {
			c := answer(t, b, true)
			_, err := c.Collect(t.Context(), func(Record) error { return nil })
			if !fault.Is(err, fault.BrokenBoundary) {
				t.Errorf("collect: %v, want broken-boundary", err)
			}
			<-c.Done()
			if !fault.Is(c.Err(), fault.BrokenBoundary) {
				t.Errorf("the session goes on: %v", c.Err())
			}
		})
	}
	// Content that ends early is an error too, and so is a sink's.
	c := answer(t, concat(file, []byte("ab")), true)
	if _, err := c.Collect(t.Context(), func(Record) error { return nil }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("short content: %v", err)
	}
	c = answer(t, message(RecordMessage(File, "sparse", 1<<63-1)), false)
	refuse := errors.New("too big")
	if _, err := c.Collect(t.Context(), func(r Record) error { return refuse }); !errors.Is(err, refuse) {
		t.Errorf("refusing sink: %v", err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("a sink that refuses ends the session: %v", err)
	}
	c = answer(t, concat(file, []byte("abc"), end), true)
	n := 0
	s, err := c.Collect(t.Context(), func(r Record) error { n++; return nil }) // the content is skipped
	if err != nil || s.Records != 1 || n != 1 {
		t.Errorf("an honest collection: %+v, %d records, %v", s, n, err)
	}
}

func TestLyingAnswers(t *testing.T) {
	started := message(Started())
	one := 1
	exit := Exit{Code: &one}
	long := AppendBytes(AppendBytes(AppendBytes(nil, waitFailed), NotFound), strings.Repeat("x", MaxReason+1))
	for name, b := range map[string][]byte{
		"nothing":         nil,
		"an unknown kind": message(AppendBytes(nil, "maybe")),
		"a strange fail":  message(AppendBytes(AppendBytes(AppendBytes(nil, waitFailed), "tired"), "")),
		"a long detail":   message(long),
	} {
		_, err := answer(t, b, true).Exec(t.Context(), ExecRequest{Argv: []string{"x"}})
		if !fault.Is(err, fault.BrokenBoundary) {
			t.Errorf("exec answered with %s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"nothing":           started,
		"neither":           concat(started, message(Exit{}.Message())),
		"both":              concat(started, message(Exit{Code: &one, Signal: &one}.Message())),
		"a strange reason":  concat(started, message(Exit{Code: &one, Killed: "bored"}.Message())),
		"more than an exit": concat(started, message(exit.Message()), []byte("x")),
		"started twice":     concat(started, started),
	} {
		p, err := answer(t, b, true).Exec(t.Context(), ExecRequest{Argv: []string{"x"}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := p.Wait(t.Context()); !fault.Is(err, fault.BrokenBoundary) {
			t.Errorf("wait answered with %s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "garbage": message([]byte{1}), "more": concat(message(Stat{}.Message()), []byte("x")),
	} {
		if _, err := answer(t, b, true).Stat(t.Context()); !fault.Is(err, fault.BrokenBoundary) {
			t.Errorf("stat answered with %s: %v", name, err)
		}
	}
	if err := answer(t, []byte("x"), true).Quiesce(t.Context()); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("quiesce answered with data: %v", err)
	}
}

// flood repeats a block for ever, or until it is closed.
type flood struct {
	block  []byte
	at     int
	next   func() []byte
	mu     sync.Mutex
	closed bool
}

func (f *flood) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, io.EOF
	}
	if f.at == len(f.block) {
		f.block, f.at = f.next(), 0
	}
	n := copy(p, f.block[f.at:])
	f.at += n
	return n, nil
}

func (f *flood) Write(p []byte) (int, error) { return len(p), nil }

func (f *flood) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// blocked is a carrier that never takes what is written to it.
type blocked struct {
	io.Reader
	io.Closer
	hold chan struct{}
	once sync.Once
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.hold
	return 0, io.ErrClosedPipe
}

func (b *blocked) Close() error {
	b.once.Do(func() { close(b.hold) })
	return b.Closer.Close()
}

// TestFloodIsBounded has a guest flood the host with every kind of frame that is
// legal for ever, while it reads nothing, and looks at what the host holds.
func TestFloodIsBounded(t *testing.T) {
	conn := AppendBytes(AppendBytes(nil, StreamConn), strings.Repeat("x", MaxHeader-20))
	id := uint32(0)
	opens := func() []byte {
		id += 2
		return appendFrame(nil, frameOpen, id, uint32(len(conn)), conn)
	}
	for name, next := range map[string]func() []byte{
		"opens": opens,
		"opens and resets": func() []byte {
			b := opens()
			return appendFrame(b, frameReset, id, 2, []byte{0, 1})
		},
		"opens and data": func() []byte {
			b := opens()
			for range FirstWindow / MaxPayload {
				b = appendFrame(b, frameData, id, MaxPayload, make([]byte, MaxPayload))
			}
			return b
		},
		"credit for what is over": func() []byte {
			if id == 0 {
				b := opens()
				return appendFrame(b, frameReset, id, 2, []byte{0, 1})
			}
			return bytes.Repeat(appendFrame(nil, frameCredit, id, 1, nil), 1000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			id = 0
			f := &flood{block: appendHello(nil, Hello{}), next: next}
			b := &blocked{Reader: f, Closer: f, hold: make(chan struct{})}
			c, err := Connect(t.Context(), b, Options{Conn: func(_ string, st *Stream) { <-st.Over() }})
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			select {
			case <-c.Done(): // the limit of streams was reached
			case <-ctx.Done():
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			// 128 connections of one first window, and what 1024 streams cost.
			const most = 128*2*FirstWindow + 32<<20
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > most {
				t.Errorf("the host holds %d MiB more", grown>>20)
			}
			_ = c.Close()
		})
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	a, g := net.Pipe()
	guest := NewSession(g, Guest, "", nil)
	defer guest.Close()
	c, err := Connect(t.Context(), a, Options{MaxConns: 2, Conn: func(name string, st *Stream) {
		_, _ = st.Write([]byte(name))
		<-st.Over()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 3 {
		st, err := guest.Open(ConnHeader("proxy"))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		_, err = io.ReadFull(st, b)
		if i < 2 && (err != nil || string(b) != "proxy") {
			t.Errorf("connection %d: %q, %v", i, b, err)
		}
		var reset *ResetError
		if i == 2 && (!errors.As(err, &reset) || reset.Code != CodeRefused) {
			t.Errorf("connection %d: %v, want a refusal", i, err)
		}
	}
	st, err := guest.Open(AppendBytes(nil, "exec"))
	if err != nil {
		t.Fatal(err)
	}
	var reset *ResetError
	if _, err := st.Read(make([]byte, 1)); !errors.As(err, &reset) || reset.Code != CodeUnsupported {
		t.Errorf("an exec from inside: %v", err)
	}
}
