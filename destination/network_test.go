package destination

import (
	"testing"

	"tendril/fault"
)

func TestParseNetwork(t *testing.T) {
	for _, text := range []string{"10.0.0.0/8", "10.1.0.0/16", "192.168.7.9/32", "127.0.0.0/8", "fd12:3456::/32", "fc00::/16", "::1/128"} {
		n, err := ParseNetwork(text)
		if err != nil || n.String() != text {
			t.Errorf("%s is %v, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "10.0.0.0", "10.0.0.1/8", "0.0.0.0/0", "10.0.0.0/7", "::/0", "fc00::/7", "10.0.0.0/08", "010.0.0.0/8",
		"10.0.0.0/8 ", "::ffff:10.0.0.0/104", "fe80::%eth0/64", "FD12:3456::/32", "a/b"} {
		if _, err := ParseNetwork(text); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func network(t *testing.T, text string) Network {
	t.Helper()
	n, err := ParseNetwork(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A rule covers another one only with its networks and its WebSocket.
func TestCoversNetworksAndWebSockets(t *testing.T) {
	host, err := ParsePattern("example.org")
	if err != nil {
		t.Fatal(err)
	}
	wide, narrow, other := network(t, "10.0.0.0/8"), network(t, "10.1.0.0/16"), network(t, "192.168.0.0/16")
	for _, c := range []struct {
		a, b   Rule
		covers bool
	}{
		{Rule{}, Rule{}, true},
		{Rule{Networks: []Network{wide}}, Rule{}, true},
		{Rule{Networks: []Network{wide}}, Rule{Networks: []Network{narrow}}, true},
		{Rule{Networks: []Network{narrow}}, Rule{Networks: []Network{wide}}, false},
		{Rule{}, Rule{Networks: []Network{narrow}}, false},
		{Rule{Networks: []Network{wide}}, Rule{Networks: []Network{narrow, other}}, false},
		{Rule{Networks: []Network{wide, other}}, Rule{Networks: []Network{narrow, other}}, true},
		{Rule{WebSocket: true}, Rule{}, true},
		{Rule{}, Rule{WebSocket: true}, false},
		{Rule{WebSocket: true}, Rule{WebSocket: true}, true},
		{Rule{Methods: Methods{Any}}, Rule{WebSocket: true}, true},
		{Rule{Methods: Methods{Any}}, Rule{Networks: []Network{narrow}}, false},
	} {
		c.a.Host, c.b.Host = host, host
		if got := c.a.Covers(c.b); got != c.covers {
			t.Errorf("%+v covers %+v: %v", c.a, c.b, got)
		}
	}
}
