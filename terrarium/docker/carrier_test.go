//go:build linux

package docker

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"tendril/terrarium/confine"
)

func frame(kind byte, payload string) string {
	header := make([]byte, frameHeader)
	header[0] = kind
	binary.BigEndian.PutUint32(header[4:], uint32(len(payload)))
	return string(header) + payload
}

func TestCarrierTakesStreamsApart(t *testing.T) {
	text := frame(1, "one ") + frame(2, "aside") + frame(1, "") + frame(2, "") + frame(1, "two")
	for name, out := range map[string]io.Reader{"at once": strings.NewReader(text), "by bytes": iotest.OneByteReader(strings.NewReader(text))} {
		c := &carrier{out: out, stderr: &confine.Tail{}}
		got, err := io.ReadAll(c)
		if err != nil || string(got) != "one two" || c.stderr.String() != "aside" {
			t.Errorf("%s: %q, aside %q (%v)", name, got, c.stderr, err)
		}
	}
}

// What is no daemon's ends the stream and takes no memory.
func TestCarrierRefuses(t *testing.T) {
	for says, text := range map[string]string{
		"a stream 3":     frame(3, "x"),
		"a stream 72":    frame(72, "oops"),
		"no daemon":      "\x01\x00\x00\x00\xff\xff\xff\xff",
		"unexpected EOF": frame(1, "whole")[:10],
	} {
		if got, err := io.ReadAll(&carrier{out: strings.NewReader(text), stderr: &confine.Tail{}}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q was read as %q (%v)", text, got, err)
		}
	}
	c := &carrier{out: strings.NewReader(strings.Repeat(frame(2, strings.Repeat("x", 1<<20)), 16) + frame(2, "end")), stderr: &confine.Tail{}}
	if _, err := io.ReadAll(c); err != nil || len(c.stderr.String()) > 64<<10 || !strings.HasSuffix(c.stderr.String(), "xend") {
		t.Errorf("%d bytes of a diagnosis were kept (%v)", len(c.stderr.String()), err)
	}
}

// A reader that waits is ended by Close.
func TestCarrierCloses(t *testing.T) {
	ours, theirs := net.Pipe()
	c := &carrier{conn: ours, out: ours, stderr: &confine.Tail{}}
	ended := make(chan error)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a closed carrier was read from")
	}
	theirs.Close()
}

func FuzzCarrier(f *testing.F) {
	f.Add([]byte(frame(1, "x") + frame(2, "y")))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &carrier{out: bytes.NewReader(data), stderr: &confine.Tail{}}
		got, _ := io.ReadAll(c)
		if len(got)+len(c.stderr.String()) > len(data) {
			t.Errorf("%d bytes became %d and %d", len(data), len(got), len(c.stderr.String()))
		}
	})
}
