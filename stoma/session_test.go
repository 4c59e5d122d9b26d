package stoma

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/fault"
)

// pair connects two sessions. accept belongs to the guest's.
func pair(t *testing.T, accept func(*Stream, *Fields)) (host, guest *Session) {
	t.Helper()
	a, b := net.Pipe()
	host = NewSession(a, Host, "h", nil)
	guest = NewSession(b, Guest, "g", accept)
	t.Cleanup(func() {
		_ = host.Close()
		_ = guest.Close()
	})
	for _, s := range []*Session{host, guest} {
		if _, err := s.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return host, guest
}

func openStream(t *testing.T, s *Session, header string) *Stream {
	t.Helper()
	st, err := s.Open([]byte(header))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestHello(t *testing.T) {
	host, guest := pair(t, nil)
	h, _ := host.Ready(t.Context())
	g, _ := guest.Ready(t.Context())
	if h.Version != "g" || g.Version != "h" || h.OS == "" || h.Arch == "" {
		t.Errorf("hellos %+v and %+v", h, g)
	}
}

func TestEcho(t *testing.T) {
	host, _ := pair(t, func(st *Stream, _ *Fields) {
		go func() {
			_, _ = io.Copy(struct{ io.Writer }{st}, struct{ io.Reader }{st})
			_ = st.CloseWrite()
		}()
	})
	want := bytes.Repeat([]byte("0123456789abcdef"), 5<<16) // 5 MiB: the window turns over
	st := openStream(t, host, "echo")
	var writing sync.WaitGroup
	writing.Go(func() {
		if _, err := st.Write(want); err != nil {
			t.Error(err)
		}
		_ = st.CloseWrite()
	})
	got, err := io.ReadAll(st)
	writing.Wait()
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("echo of %d bytes gave %d bytes, %v", len(want), len(got), err)
	}
	if n := openCount(host, Host); n != 0 {
		t.Errorf("%d streams are still open", n)
	}
}

func openCount(s *Session, by Side) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[by]
}

func TestStalledReaderDelaysNoOther(t *testing.T) {
	host, _ := pair(t, func(st *Stream, f *Fields) {
		if f.Text() == "flood" {
			go func() {
				for {
					if _, err := st.Write(make([]byte, MaxPayload)); err != nil {
						return
					}
				}
			}()
			return
		}
		_ = st.CloseWrite()
	})
	flood := openStream(t, host, string(AppendBytes(nil, "flood")))
	if _, err := io.ReadFull(flood, make([]byte, FirstWindow)); err != nil {
		t.Fatal(err)
	}
	// Nobody reads flood any more. Other streams go on.
	for range 3 * MaxStreams {
		st := openStream(t, host, string(AppendBytes(nil, "quick")))
		_ = st.CloseWrite()
		if _, err := st.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err)
		}
	}
	host.mu.Lock()
	held := flood.in.Len()
	host.mu.Unlock()
	if held > MaxWindow {
		t.Errorf("a stalled stream holds %d bytes", held)
	}
}

// TestControlOvertakesData looks at what is sent, in order: whatever one stream
// has to send, an opening comes first.
func TestControlOvertakesData(t *testing.T) {
	s := &Session{streams: map[uint32]*Stream{}, side: Host, done: make(chan struct{})}
	s.wake.L = &s.mu
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := uint32(1); id <= 5; id += 2 {
		st := s.add(id, Host)
		st.out = make([]byte, 1<<20)
		s.queueData(st)
	}
	st := s.add(7, Host)
	st.mustOpen = true
	s.queueControl(st)
	fr := newFrameReader(bytes.NewReader(s.batch(nil)))
	if f, err := fr.next(); err != nil || f.kind != frameOpen {
		t.Fatalf("frame of type %d, %v, want the opening", f.kind, err)
	}
	// Data goes round: each stream gets one frame before any gets two.
	var seen []uint32
	for {
		f, err := fr.next()
		if err != nil {
			break
		}
		seen = append(seen, f.stream)
	}
	if want := []uint32{1, 3, 5, 1}; !slices.Equal(seen, want) {
		t.Errorf("data went to streams %v, want %v", seen, want)
	}
}

func TestReset(t *testing.T) {
	host, guest := pair(t, func(st *Stream, f *Fields) {
		switch f.Text() {
		case "refuse":
			st.Reset(CodeRefused, strings.Repeat("x\x1b", MaxReason))
		case "hold":
		}
	})
	st := openStream(t, host, string(AppendBytes(nil, "refuse")))
	_, err := st.Read(make([]byte, 1))
	var reset *ResetError
	if !errors.As(err, &reset) || !reset.Peer || reset.Code != CodeRefused || len(reset.Text) != MaxReason {
		t.Fatalf("read: %#v", err)
	}
	if strings.ContainsRune(err.Error(), '\x1b') {
		t.Error("the peer's text is shown unescaped")
	}
	if _, err := st.Write([]byte("x")); !errors.As(err, &reset) {
		t.Errorf("write: %v", err)
	}
	<-st.Over()

	hold := openStream(t, host, string(AppendBytes(nil, "hold")))
	hold.Reset(CodeCanceled, "")
	if _, err := hold.Read(make([]byte, 1)); !errors.As(err, &reset) || reset.Peer {
		t.Errorf("read after our own reset: %v", err)
	}
	settle(t, host, guest)
}

// settle waits until both sides have agreed that every stream is over: an
// exchange on a new stream comes after everything before it.
func settle(t *testing.T, host, guest *Session) {
	t.Helper()
	for range 3 {
		st := openStream(t, host, string(AppendBytes(nil, "refuse")))
		_, _ = st.Read(make([]byte, 1))
	}
	if n := openCount(host, Host); n > 1 {
		t.Errorf("the host has %d open streams", n)
	}
	if n := openCount(guest, Host); n > 1 {
		t.Errorf("the guest has %d open streams", n)
	}
}

func TestCloseDeliversWhatWasWritten(t *testing.T) {
	host, _ := pair(t, func(st *Stream, _ *Fields) {
		go func() {
			_, _ = st.Write([]byte("last words"))
			_ = st.Close()
		}()
	})
	st := openStream(t, host, "x")
	b, err := io.ReadAll(st)
	if err != nil || string(b) != "last words" {
		t.Fatalf("read %q, %v", b, err)
	}
	// The other direction is told that nobody reads.
	for {
		if _, err := st.Write(make([]byte, MaxPayload)); err != nil {
			break
		}
	}
}

func TestStreamLimit(t *testing.T) {
	host, _ := pair(t, func(st *Stream, _ *Fields) {})
	for range MaxStreams {
		openStream(t, host, "x")
	}
	if _, err := host.Open([]byte("x")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("stream %d: %v", MaxStreams+1, err)
	}
	if _, err := host.Open(make([]byte, MaxHeader+1)); !fault.Is(err, fault.Invalid) {
		t.Errorf("a header that is too long: %v", err)
	}
}

func TestEndOfCarrierEndsEverything(t *testing.T) {
	host, guest := pair(t, func(st *Stream, _ *Fields) {})
	st := openStream(t, host, "x")
	_ = guest.Close()
	if _, err := st.Read(make([]byte, 1)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("read: %v", err)
	}
	<-host.Done()
	if _, err := host.Open(nil); !fault.Is(err, fault.Unavailable) {
		t.Errorf("open: %v", err)
	}
}

func TestReadyGivesUp(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	s := NewSession(a, Host, "", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ready: %v", err)
	}
	<-s.Done()
	_ = s.Close()
}
