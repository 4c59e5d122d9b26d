//go:build linux

package firecracker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/fault"
)

// vsock stands in for Firecracker's: each connection is handled by the next of the peers,
// and the last of them handles all that follow.
func vsock(t *testing.T, peers ...func(net.Conn)) Socket {
	t.Helper()
	s := Socket{Dir: t.TempDir(), Name: "v.sock", PID: os.Getpid()}
	listener, err := net.Listen("unix", filepath.Join(s.Dir, s.Name))
	if err != nil {
		t.Fatal(err)
	}
	var peersDone sync.WaitGroup
	peersDone.Go(func() {
		for i := 0; ; i++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			peersDone.Go(func() {
				defer conn.Close()
				peers[min(i, len(peers)-1)](conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		peersDone.Wait()
	})
	return s
}

// speaks answers a request as Firecracker does (docs/vsock.md), and echoes from then on.
func speaks(conn net.Conn) {
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || line != "CONNECT 5000\n" {
		return
	}
	// In one piece with the guest's first bytes: those belong to the stream.
	_, _ = io.WriteString(conn, "OK 1073741824\nhello from the guest\n")
	_, _ = io.Copy(conn, r)
}

func hangsUp(net.Conn) {}

func TestDialSpeaksTheHandshake(t *testing.T) {
	// Nobody listens in the guest at first.
	conn, err := Dial(within(t), vsock(t, hangsUp, hangsUp, speaks), 5000)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "and back\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	for _, want := range []string{"hello from the guest\n", "and back\n"} {
		if got, err := r.ReadString('\n'); err != nil || got != want {
			t.Errorf("read %q (%v), want %q", got, err, want)
		}
	}
}

func TestHandshakeIsStrict(t *testing.T) {
	for _, answer := range []string{
		"OK\n", "OK \n", "ok 5\n", "OK -5\n", "OK 5 \n", "OK 0x5\n", "\n", "NO 5\n", "OK 12345678901\n", "HTTP/1.1 400 Bad Request\r\n",
		strings.Repeat("x", 1<<20), "OK 5", "OK 5\r\n", "\x00\n",
	} {
		conn, err := Dial(within(t), vsock(t, func(conn net.Conn) {
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_, _ = io.WriteString(conn, answer)
		}), 5000)
		if err == nil {
			conn.Close()
		}
		if !fault.Is(err, fault.BrokenBoundary) || len(err.Error()) > 200 {
			t.Errorf("%.40q was answered with %v", answer, err)
		}
	}
}

// TestSilenceEndsWithTheContext: a peer that says nothing, or one byte, is left at the
// deadline.
func TestSilenceEndsWithTheContext(t *testing.T) {
	for _, said := range []string{"", "OK 1"} {
		over := make(chan struct{})
		s := vsock(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, said)
			<-over
		})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		conn, err := Dial(ctx, s, 5000)
		if err == nil {
			conn.Close()
			t.Errorf("a peer that said %q was taken for a guest", said)
		}
		cancel()
		close(over)
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add([]byte("OK 1073741824\n"))
	f.Add([]byte("OK 1\nmore"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		peer := &scripted{left: answer}
		err := connect(peer, 5000)
		if peer.said != "CONNECT 5000\n" {
			t.Errorf("it said %q", peer.said)
		}
		if err == nil && !strings.HasPrefix(string(answer), "OK ") {
			t.Errorf("%q was accepted", answer)
		}
		if err == nil && string(peer.left) != string(answer[strings.IndexByte(string(answer), '\n')+1:]) {
			t.Errorf("of %q there is %q left", answer, peer.left)
		}
		if err != nil && !fault.Is(err, fault.BrokenBoundary) && !errors.Is(err, errNobodyListens) {
			t.Errorf("%q was answered with %v", answer, err)
		}
	})
}

type scripted struct {
	left []byte
	said string
}

func (s *scripted) Read(p []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *scripted) Write(p []byte) (int, error) {
	s.said += string(p)
	return len(p), nil
}
