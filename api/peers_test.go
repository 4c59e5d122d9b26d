//go:build linux

package api

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tendril/fault"
)

func TestConnectionsAreBounded(t *testing.T) {
	b := generous
	b.connections, b.kept, b.perUID = 4, 2, 3
	var calling sync.WaitGroup
	release := make(chan struct{})
	s := serve(t, func(ctx context.Context, caller Caller, name string, input []byte) Answer {
		calling.Done()
		<-release
		return yes(ctx, caller, name, input)
	}, b)
	open := func(clients ...*client) {
		t.Helper()
		calling.Add(len(clients))
		for _, c := range clients {
			c.call("a")
		}
		calling.Wait()
	}
	full := func(c *client, want string) {
		t.Helper()
		if got, err := c.hear(); err != nil || !strings.HasPrefix(got, `{"row":null,"error":{"kind":"unavailable","detail":"`+want) {
			t.Errorf("%s, %v", got, err)
		}
		c.expectEnd()
	}
	own := []*client{s.dial(), s.dial(), s.dial()}
	open(own...)
	full(s.dial(), fmt.Sprintf("3 calls of uid %d are under way", os.Geteuid()))
	close(release)
	for _, c := range own {
		c.expect(done)
		c.expectEnd()
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	s.stop()

	release = make(chan struct{})
	s = serve(t, func(ctx context.Context, caller Caller, name string, input []byte) Answer {
		calling.Done()
		<-release
		return yes(ctx, caller, name, input)
	}, b)
	others := []*client{s.dialAs(61234), s.dialAs(61235)}
	open(others...)
	full(s.dialAs(61236), "2 calls are under way")
	open(s.dial(), s.dial()) // room is kept for the Stem's own account
	full(s.dial(), "4 calls are under way")
	close(release)
}

// Refusals of callers who are nobody go out one by one, and hold their connections meanwhile.
func TestNobodyIsSlowedDown(t *testing.T) {
	b := generous
	b.denial, b.perUID = 5*time.Millisecond, 8
	var refused atomic.Int64
	s := serve(t, func(ctx context.Context, caller Caller, name string, input []byte) Answer {
		if name == "good" {
			return yes(ctx, caller, name, input)
		}
		refused.Add(1)
		return Answer{Err: fault.New(fault.Denied, "no")}
	}, b)
	began := time.Now()
	var clients []*client
	for range b.perUID {
		clients = append(clients, s.dial().call("bad"))
	}
	for _, c := range clients {
		c.expect(`{"row":null,"error":{"kind":"denied","detail":"no","rule":"","hint":""}}`)
		c.expectEnd()
	}
	if took, least := time.Since(began), time.Duration(b.perUID)*b.denial; took < least {
		t.Errorf("%d refusals took %v, less than %v", b.perUID, took, least)
	}
	if refused.Load() != int64(b.perUID) {
		t.Errorf("%d calls were refused", refused.Load())
	}
	s.dial().call("good").expect(done)
}

// Whoever closes its connection at once does not get round that.
func TestNobodyCannotLeaveTheQueue(t *testing.T) {
	b := generous
	b.denial, b.perUID = time.Hour, 4
	refused := make(chan struct{}, 100)
	s := serve(t, func(context.Context, Caller, string, []byte) Answer {
		refused <- struct{}{}
		return Answer{Err: fault.New(fault.Denied, "no")}
	}, b)
	for range b.perUID {
		c := s.dial().call("bad")
		<-refused
		c.conn.Close()
	}
	for range 10 {
		c := s.dial().call("bad")
		if got, err := c.hear(); err != nil || !strings.Contains(got, `"kind":"unavailable"`) {
			t.Errorf("%s, %v", got, err)
		}
	}
	if len(refused) != 0 {
		t.Error("the kernel was called once more")
	}
}
