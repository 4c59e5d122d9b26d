package stoma

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"reflect"
	"testing"
	"time"

	"tendril/fault"
)

// expected reports whether err is one that a reader of hostile bytes may return.
func expected(err error) bool {
	return err == nil || err == io.EOF || err == io.ErrUnexpectedEOF || fault.Is(err, fault.BrokenBoundary)
}

func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(nil, frameOpen, 2, 3, []byte("abc")))
	f.Add(appendFrame(nil, frameCredit, 2, 1<<20, nil))
	f.Add(appendFrame(appendFrame(nil, frameData, 2, 1, []byte("x")), frameEOF, 2, 0, nil))
	f.Add(appendFrame(nil, frameReset, 2, 4, []byte{0, 1, 'h', 'i'}))
	f.Add([]byte{2, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := newFrameReader(bytes.NewReader(b))
		var again []byte
		for {
			fm, err := fr.next()
			if err != nil {
				if !expected(err) {
					t.Fatalf("unexpected error %v", err)
				}
				break
			}
			again = appendFrame(again, fm.kind, fm.stream, fm.length, fm.payload)
		}
		if !bytes.HasPrefix(b, again) {
			t.Error("what was read is not what was there")
		}
	})
}

func FuzzFields(f *testing.F) {
	f.Add(AppendList(AppendUint(AppendBytes(nil, "exec"), 300), []string{"a", "", "\xff"}))
	f.Add([]byte{0x80, 0x00})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		in := NewFields(b)
		text, n, list := in.Text(), in.Uint(), in.List()
		if in.End() != nil {
			return
		}
		// One value has one encoding.
		if again := AppendList(AppendUint(AppendBytes(nil, text), n), list); !bytes.Equal(again, b) {
			t.Errorf("%x reads as what is written as %x", b, again)
		}
	})
}

func FuzzExecHeader(f *testing.F) {
	f.Add(ExecRequest{Argv: []string{"sh", "-c", "\xff"}, Env: []string{"A=b"}, Dir: "/x", Timeout: time.Minute}.header())
	f.Add(ExecRequest{Argv: []string{"x"}, TTY: &Size{Rows: 24, Cols: 80}}.header())
	f.Fuzz(func(t *testing.T, b []byte) {
		in := NewFields(b)
		if in.Text() != StreamExec {
			return
		}
		r, err := ParseExec(in)
		if err != nil {
			return
		}
		again := NewFields(r.header())
		again.Text()
		if r2, err := ParseExec(again); err != nil || !reflect.DeepEqual(r, r2) {
			t.Errorf("%+v does not survive: %+v, %v", r, r2, err)
		}
	})
}

func FuzzHostRoot(f *testing.F) {
	f.Add(HostRoot{Dir: "/run", Bare: []string{"/etc/ssl/certs"}, Laid: []Laid{{"/a", "/b", true}, {"/c", "/d", false}}}.Message())
	f.Add(HostRoot{}.Message())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseHostRoot(NewFields(b))
		if err == nil && !bytes.Equal(r.Message(), b) {
			t.Errorf("%x reads as %+v", b, r)
		}
	})
}

func FuzzAnswers(f *testing.F) {
	code, signal := 3, 9
	f.Add(Started())
	f.Add((&ExecError{Reason: NotFound, Detail: "x"}).Message())
	f.Add(Exit{Code: &code}.Message())
	f.Add(Exit{Signal: &signal, Killed: KilledTimeout, Usage: Usage{User: time.Second, MaxRSS: 1 << 40}}.Message())
	f.Add(Stat{Processes: 3, ScratchSize: 1 << 60, OOMKills: 2, Memory: 1 << 30}.Message())
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := parseStart(NewFields(b), "x"); err != nil {
			_ = err.Error()
		}
		if e, err := parseExit(NewFields(b)); err == nil && (e.Code == nil) == (e.Signal == nil) {
			t.Errorf("exit %+v", e)
		}
		if s, err := parseStat(NewFields(b)); err == nil && (s.Processes < 0 || s.ScratchSize < 0 || s.ScratchUsed < 0 || s.OOMKills < 0 || s.Memory < 0) {
			t.Errorf("stat %+v", s)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(appendHello(nil, Hello{Version: "1", OS: "linux", Arch: "arm64"}))
	f.Add([]byte("stoma\x00\x01\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(b, appendHello(nil, h)) {
			t.Errorf("%q reads as %+v", b, h)
		}
	})
}

func FuzzRecords(f *testing.F) {
	file := concat(message(RecordMessage(File, "a/b", 3)), []byte("abc"))
	f.Add(concat(file, message(RecordMessage(Delete, "c", 0)), message(SummaryMessage(Summary{Records: 2, Ignored: 1}))))
	f.Add(file)
	f.Add(message(RecordMessage(File, "x", 1<<62)))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		s, err := readRecords(bytes.NewReader(b), func(r Record) error {
			n++
			if !wellFormed(r) {
				t.Errorf("record %+v", r)
			}
			if n%2 == 0 {
				return nil // skipped
			}
			got, err := io.Copy(io.Discard, r.Content)
			if err == nil && got != r.Size {
				t.Errorf("%d bytes of content, want %d", got, r.Size)
			}
			return err
		})
		if err == nil && s.Records != n {
			t.Errorf("summary of %d records, %d came", s.Records, n)
		}
		if !expected(err) {
			t.Errorf("unexpected error %v", err)
		}
	})
}

// FuzzSession plays arbitrary bytes to a client that is using everything it
// has, and looks that it ends, and ends with a reason.
func FuzzSession(f *testing.F) {
	conn := AppendBytes(AppendBytes(nil, StreamConn), "proxy")
	seed := func(frames ...[]byte) { f.Add(concat(frames...)) }
	seed(appendFrame(nil, frameOpen, 2, uint32(len(conn)), conn), appendFrame(nil, frameData, 2, 2, []byte("hi")), appendFrame(nil, frameEOF, 2, 0, nil))
	seed(appendFrame(nil, frameReset, 1, 6, []byte("\x00\x03none")), appendFrame(nil, frameReset, 3, 2, []byte{0, 1}))
	seed(appendFrame(nil, frameData, 5, uint32(len(message(Started()))), message(Started())), appendFrame(nil, frameCredit, 1, 1<<19, nil))
	stat := message(Stat{Processes: 1}.Message())
	seed(appendFrame(nil, frameData, 1, uint32(len(stat)), stat), appendFrame(nil, frameEOF, 1, 0, nil))
	seed([]byte("garbage that is no frame"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		// The bytes end, and the carrier with them.
		carrier := &flood{block: append(appendHello(nil, Hello{}), b...)}
		carrier.next = func() []byte { carrier.closed = true; return nil }
		c, err := Connect(ctx, carrier, Options{Conn: func(_ string, st *Stream) {
			_, _ = io.Copy(struct{ io.Writer }{st}, struct{ io.Reader }{st})
		}})
		if err != nil {
			return // the bytes were faster than the handshake
		}
		if p, err := c.Exec(ctx, ExecRequest{Argv: []string{"x"}}); err == nil {
			_ = p.Signal(ctx, 9)
			_, _ = io.Copy(io.Discard, p.Stdout)
			_, _ = p.Wait(ctx)
			_ = p.Close()
		}
		_, _ = c.Stat(ctx)
		_, _ = c.Collect(ctx, func(Record) error { return nil })
		_ = c.Close()
		if ctx.Err() != nil {
			t.Fatal("the client hung")
		}
		if c.Err() == nil {
			t.Error("the session ended without a reason")
		}
	})
}
