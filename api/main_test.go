//go:build linux

package api

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tendril/api/wire"
	"tendril/goroutines"
)

func TestMain(m *testing.M) { goroutines.Main(m, "tendril/api") }

// kernel answers calls as a test says.
type kernel func(ctx context.Context, caller Caller, name string, input []byte) Answer

func (k kernel) Call(ctx context.Context, caller Caller, name string, input []byte) Answer {
	return k(ctx, caller, name, input)
}

// generous are bounds that no test of something else meets.
var generous = bounds{
	connections: 512, kept: 32, perUID: 128, largeCalls: 4,
	firstLine: time.Minute, stall: time.Minute, denial: time.Millisecond,
}

// testServer is a server under test.
type testServer struct {
	t      testing.TB
	socket string
	stop   func() // ends the server and waits for it
}

func serve(t testing.TB, k kernel, b bounds) *testServer {
	t.Helper()
	return serveWith(t, newServer(k, func(text string) { t.Log(text) }, b))
}

func serveWith(t testing.TB, s *Server) *testServer {
	t.Helper()
	socket := filepath.Join(openDirectory(t), "s")
	listener, err := Listen(socket, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := s.Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	}()
	stop := func() {
		cancel()
		<-served
	}
	t.Cleanup(stop)
	return &testServer{t: t, socket: socket, stop: stop}
}

// openDirectory is a directory that everybody can look into, with a path short enough for a
// socket.
func openDirectory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// client is a peer that writes what it likes.
type client struct {
	t     testing.TB
	conn  net.Conn
	lines *wire.Lines
}

func (s *testServer) dial() *client {
	s.t.Helper()
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.client(conn)
}

func (s *testServer) client(conn net.Conn) *client {
	s.t.Cleanup(func() { conn.Close() })
	return &client{t: s.t, conn: conn, lines: wire.NewLines(conn)}
}

// dialAs connects as another account.
func (s *testServer) dialAs(uid int) *client {
	s.t.Helper()
	var conn net.Conn
	err := as(s.t, uid, func() (err error) {
		conn, err = net.Dial("unix", s.socket)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.client(conn)
}

// as runs do on a thread of another uid, and lets the thread end with it.
func as(t testing.TB, uid int, do func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		// The raw call changes this thread alone.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- errno
			return
		}
		done <- do()
	}()
	return <-done
}

// say writes, and does not care whether anybody reads.
func (c *client) say(text string) *client {
	io.WriteString(c.conn, text)
	return c
}

func (c *client) call(name string) *client {
	return c.say(`{"version":1,"capability":"` + name + `"}` + "\n")
}

// hear returns the server's next line, and what ended them.
func (c *client) hear() (string, error) {
	line, err := c.lines.Next(wire.LargestReply)
	return string(line), err
}

// expect fails the test if the server's next line is another one.
func (c *client) expect(want string) {
	c.t.Helper()
	if got, err := c.hear(); err != nil || got != want {
		c.t.Errorf("got  %.300s, %v\nwant %s", got, err, want)
	}
}

// expectEnd fails the test if the server says anything more.
func (c *client) expectEnd() {
	c.t.Helper()
	if got, err := c.hear(); err == nil {
		c.t.Errorf("the server goes on: %.300s", got)
	}
}
