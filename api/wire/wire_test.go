package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"tendril/capability"
	"tendril/fault"
)

func FuzzParseCall(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"version":1,"capability":"run.list"}`, `{"version":1,"capability":"run.list","token":"","input":{"limit":1}}`,
		`{"version":1,"capability":"a","token":null,"input":null}`, `{"version":1,"capability":"a","version":1}`, `{"Version":1}`,
		`{"version":1,"capability":"\ud800"}`, `{"version":1e0,"capability":"a"}`, "{\"version\":1,\"capability\":\"\xff\"}", `[[[[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		call, err := ParseCall(line)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", line, err)
			}
			return
		}
		if call.Version != Version || call.Capability == "" || len(call.Capability) > longestCapability || !json.Valid(call.Input) {
			t.Errorf("%q became %+v", line, call)
		}
		again, err := json.Marshal(call)
		if err != nil {
			t.Fatal(err)
		}
		second, err := ParseCall(again)
		if err != nil || second.Capability != call.Capability || (second.Token == nil) != (call.Token == nil) ||
			(call.Token != nil && *second.Token != *call.Token) {
			t.Errorf("%q became %+v and then %+v, %v", line, call, second, err)
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"stdin_b64":"eA=="}`, `{"stdin_b64":""}`, `{"stdin_end":true}`, `{"resize":{"rows":24,"cols":80}}`, `{"cancel":true}`,
		`{"cancel":true,"stdin_end":true}`, `{"resize":null}`, `{"cancel":null,"stdin_end":true}`, `{"stdin_b64":"e\nA=="}`, `{"resize":{"rows":1.0}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		message, err := ParseMessage(line)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", line, err)
			}
			return
		}
		if count(message.Stdin != nil, message.StdinEnd, message.Resize != nil, message.Cancel) != 1 || len(message.Stdin) > StdinChunk {
			t.Errorf("%q became %+v", line, message)
		}
	})
}

// What the client makes of a message, the server understands as the same.
func TestMessageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent Message
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			sent.Stdin = rapid.SliceOfN(rapid.Byte(), 1, 1000).Draw(t, "stdin")
		case 1:
			sent.StdinEnd = true
		case 2:
			sent.Resize = &capability.Size{Rows: rapid.Uint16().Draw(t, "rows"), Cols: rapid.Uint16().Draw(t, "cols")}
		case 3:
			sent.Cancel = true
		}
		line, err := json.Marshal(sent)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseMessage(line)
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(got)
		if err != nil || !bytes.Equal(line, again) {
			t.Fatalf("%s became %s, %v", line, again, err)
		}
	})
	line, err := json.Marshal(Message{Stdin: make([]byte, StdinChunk)})
	if err != nil || len(line) > LargestMessage {
		t.Errorf("a full chunk is a line of %d bytes, %v", len(line), err)
	}
}

func TestLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 50_000).Draw(t, "most")
		var input strings.Builder
		var want []string
		for range rapid.IntRange(0, 5).Draw(t, "lines") {
			// around the bound, and around the size of the buffer
			length := max(0, rapid.SampledFrom([]int{0, 1, most - 1, most, most + 1, 16<<10 - 1, 16 << 10}).Draw(t, "length"))
			line := strings.Repeat("x", length)
			input.WriteString(line + "\n")
			want = append(want, line)
		}
		rest := rapid.SampledFrom([]string{"", "y"}).Draw(t, "rest")
		var from io.Reader = strings.NewReader(input.String() + rest)
		if rapid.Bool().Draw(t, "byte by byte") {
			from = iotest.OneByteReader(from)
		}
		lines := NewLines(from)
		for _, line := range want {
			got, err := lines.Next(most)
			if len(line) > most {
				if !errors.Is(err, ErrTooLong) {
					t.Fatalf("a line of %d above %d: %v", len(line), most, err)
				}
				got, err = lines.Next(len(line)) // it goes on where it was
			}
			if err != nil || string(got) != line {
				t.Fatalf("got %d bytes, %v; want %d", len(got), err, len(line))
			}
		}
		_, err := lines.Next(most)
		switch {
		case rest == "" && err != io.EOF:
			t.Fatalf("at the end: %v", err)
		case rest != "" && most > 0 && err != io.ErrUnexpectedEOF:
			t.Fatalf("in a line: %v", err)
		}
	})
}

// A line without an end is not held.
func TestLinesBoundTheirMemory(t *testing.T) {
	endless := &counting{}
	if _, err := NewLines(endless).Next(100_000); !errors.Is(err, ErrTooLong) {
		t.Errorf("err = %v", err)
	}
	if endless.n > 100_000+2*16<<10 {
		t.Errorf("%d bytes were read", endless.n)
	}
}

type counting struct{ n int }

func (c *counting) Read(into []byte) (int, error) {
	c.n += len(into)
	for i := range into {
		into[i] = 'x'
	}
	return len(into), nil
}
