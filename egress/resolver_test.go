package egress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"tendril/corpora"
	"tendril/fault"
)

// cases are the rows of the table of name servers' tricks, by their id.
var cases = map[string]func(t *testing.T){
	"N01": func(t *testing.T) { // the second answer is another one
		queries := map[dnsmessage.Type]int{}
		server := newNameServer(t, func(_ string, query dnsmessage.Message) []dnsmessage.Message {
			question := query.Questions[0]
			text := "A 93.184.216.34"
			if queries[question.Type]++; queries[question.Type] > 1 {
				text = "A 127.0.0.1"
			}
			return []dnsmessage.Message{response(query, records(t, question, text)...)}
		})
		world := newInternet(t)
		d := Dialer{Resolver: server.resolver(), Connect: world.Connect}
		if _, err := dial(&d, authority(t, "example.com:443")); err != nil {
			t.Error(err)
		}
		wantCalls(t, world, "93.184.216.34:443")
		asked := server.questions()
		if len(asked) != 2 || asked[0].Type == asked[1].Type {
			t.Errorf("one dial asked %v, not for A and AAAA once", asked)
		}
		if _, err := dial(&d, authority(t, "example.com:443")); !fault.Is(err, fault.Denied) {
			t.Errorf("the second dial: %v", err)
		}
		wantCalls(t, world)
	},
	"N03": func(t *testing.T) { // a coin decides
		seed := rand.Uint64()
		coin := rand.New(rand.NewPCG(seed, 0))
		server := zone(t, func(string) string {
			return []string{"A 1.2.3.4", "A 169.254.169.254"}[coin.IntN(2)]
		})
		world := newInternet(t)
		d := Dialer{Resolver: server.resolver(), Connect: world.Connect}
		reached := 0
		for range 1000 {
			_, err := dial(&d, authority(t, "rebind.example.org:80"))
			if err == nil {
				reached++
			} else if !fault.Is(err, fault.Denied) {
				t.Fatal(err)
			}
		}
		for _, to := range world.calls() {
			if to != netip.MustParseAddrPort("1.2.3.4:80") {
				t.Errorf("%s was dialled (seed %d)", to, seed)
			}
		}
		if reached == 0 || reached == 1000 {
			t.Errorf("%d of 1000 reached it (seed %d)", reached, seed)
		}
	},
	"N05": func(t *testing.T) { // failover would lead inside
		wantRefused(t, "A 93.184.216.34; A 10.0.0.5", "Private-Use (RFC 1918)")
	},
	"N07": func(t *testing.T) { // the list is on the name that was asked for
		wantReached(t, "CNAME edge.cdn.net; A 93.184.216.34", "93.184.216.34:443")
	},
	"N09": func(t *testing.T) { // Linux connects to loopback
		wantRefused(t, "A 0.0.0.0", "This host on this network (RFC 1122, Section 3.2.1.3)")
	},
	"N11": func(t *testing.T) {
		wantRefused(t, "AAAA 64:ff9b::a00:5", "Private-Use (RFC 1918)")
	},
	"N13": func(t *testing.T) {
		for what, reply := range map[string]func(string, dnsmessage.Message) []dnsmessage.Message{
			"SERVFAIL": func(_ string, query dnsmessage.Message) []dnsmessage.Message {
				return []dnsmessage.Message{refusal(query, dnsmessage.RCodeServerFailure)}
			},
			"silence": func(string, dnsmessage.Message) []dnsmessage.Message { return nil },
		} {
			world := newInternet(t)
			d := Dialer{Resolver: newNameServer(t, reply).resolver(), Connect: world.Connect}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, _, err := d.Dial(ctx, authority(t, "x.example.org:443"), nil)
			cancel()
			if !fault.Is(err, fault.Unavailable) {
				t.Errorf("%s: %v", what, err)
			}
			wantCalls(t, world)
		}
	},
	"N15": func(*testing.T) {}, // TestHostsFile, which needs a process of its own
	"N17": func(t *testing.T) { // answers that nobody asked for
		stray := func(query dnsmessage.Message) []dnsmessage.Resource {
			other := dnsmessage.MustNewName("other.example.net.")
			return []dnsmessage.Resource{record(other, netip.MustParseAddr("6.6.6.6")), record(other, netip.MustParseAddr("2606:4700::6666"))}
		}
		for what, place := range map[string]func(m *dnsmessage.Message, list []dnsmessage.Resource){
			"answers":     func(m *dnsmessage.Message, list []dnsmessage.Resource) { m.Answers = slices.Concat(list, m.Answers) },
			"authorities": func(m *dnsmessage.Message, list []dnsmessage.Resource) { m.Authorities = list },
			"additional":  func(m *dnsmessage.Message, list []dnsmessage.Resource) { m.Additionals = list },
		} {
			for _, own := range []string{"A 93.184.216.34", "CNAME other.example.com"} {
				server := newNameServer(t, func(_ string, query dnsmessage.Message) []dnsmessage.Message {
					m := response(query, records(t, query.Questions[0], own)...)
					place(&m, stray(query))
					return []dnsmessage.Message{m}
				})
				list, err := server.resolver().Lookup(t.Context(), "x.example.org")
				want := addrs("93.184.216.34")
				if strings.HasPrefix(own, "CNAME") {
					want = nil
				}
				if !slices.Equal(list, want) {
					t.Errorf("%s beside %q: %v, %v", what, own, list, err)
				}
			}
		}
	},
	"N19": func(t *testing.T) { // what a name itself may carry out is for a limit on names
		server := zone(t, func(string) string { return "A 93.184.216.34" })
		world := newInternet(t)
		d := Dialer{Resolver: server.resolver(), Connect: world.Connect}
		if _, err := dial(&d, authority(t, strings.Repeat("x", 63)+".example.org:443")); err != nil {
			t.Error(err)
		}
		wantCalls(t, world, "93.184.216.34:443")
	},
}

func TestNameServers(t *testing.T) {
	for id, try := range cases {
		t.Run(id, try)
	}
	for _, row := range corpora.Rows(t, "dns_cases.tsv") {
		if cases[row["id"]] == nil {
			t.Errorf("%s is not tried: %s", row["id"], row["invariant"])
		}
	}
}

func wantCalls(t *testing.T, world *internet, want ...string) {
	t.Helper()
	if got := fmt.Sprint(world.calls()); got != fmt.Sprint(want) {
		t.Errorf("dialled %v, want %v", got, want)
	}
}

func wantRefused(t *testing.T, records, rule string) {
	t.Helper()
	server := zone(t, func(string) string { return records })
	world := newInternet(t)
	_, err := dial(&Dialer{Resolver: server.resolver(), Connect: world.Connect}, authority(t, "x.example.org:443"))
	wantDenied(t, err, rule)
	wantCalls(t, world)
}

func wantReached(t *testing.T, records, address string) {
	t.Helper()
	server := zone(t, func(string) string { return records })
	world := newInternet(t)
	to, err := dial(&Dialer{Resolver: server.resolver(), Connect: world.Connect}, authority(t, "x.example.org:443"))
	if err != nil || to.String() != address {
		t.Errorf("%s: %s, %v", records, to, err)
	}
	wantCalls(t, world, address)
}

func wantDenied(t *testing.T, err error, rule string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Denied || f.Rule != rule || f.Hint == "" {
		t.Errorf("%v (%+v); want denied by %s", err, f, rule)
	}
}

func TestLookup(t *testing.T) {
	for _, test := range []struct {
		what  string
		reply func(network string, query dnsmessage.Message) []dnsmessage.Message
		want  string
	}{
		{"both families", answer(t, "A 1.1.1.1; A 1.0.0.1; AAAA 2606:4700:4700::1111"), "1.0.0.1 1.1.1.1 2606:4700:4700::1111"},
		{"a chain of aliases", answer(t, "CNAME a.example.net; CNAME b.example.net; A 1.1.1.1"), "1.1.1.1"},
		{"a chain without an end", answer(t, "CNAME y.example.org; CNAME x.example.org"), "not found"},
		{"a chain that is too long", answer(t, aliases(longestChain+1)+"A 1.1.1.1"), "not found"},
		{"a chain that is just not too long", answer(t, aliases(longestChain)+"A 1.1.1.1"), "1.1.1.1"},
		{"no such name", func(_ string, query dnsmessage.Message) []dnsmessage.Message {
			return []dnsmessage.Message{refusal(query, dnsmessage.RCodeNameError)}
		}, "not found"},
		{"no address", func(_ string, query dnsmessage.Message) []dnsmessage.Message {
			return []dnsmessage.Message{response(query)}
		}, "not found"},
		{"refused", func(_ string, query dnsmessage.Message) []dnsmessage.Message {
			return []dnsmessage.Message{refusal(query, dnsmessage.RCodeRefused)}
		}, "lookup x.example.org."},
		{"a mapped address is the one that it is dialled as", answer(t, "AAAA ::ffff:127.0.0.1"), "127.0.0.1"},
		{"responses to other queries come first", func(_ string, query dnsmessage.Message) []dnsmessage.Message {
			right := response(query, records(t, query.Questions[0], "A 1.1.1.1")...)
			id, name, kind, asks := right, right, right, right
			id.ID++
			name.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName("y.example.org."), Type: query.Questions[0].Type, Class: dnsmessage.ClassINET}}
			kind.Questions = []dnsmessage.Question{{Name: query.Questions[0].Name, Type: dnsmessage.TypeMX, Class: dnsmessage.ClassINET}}
			asks.Response = false
			for _, m := range []*dnsmessage.Message{&id, &name, &kind, &asks} {
				m.Answers = []dnsmessage.Resource{record(query.Questions[0].Name, netip.MustParseAddr("6.6.6.6"))}
			}
			two := right
			two.Questions = slices.Repeat(right.Questions, 2)
			return []dnsmessage.Message{id, name, kind, asks, two, right}
		}, "1.1.1.1"},
		{"another class, another type", func(_ string, query dnsmessage.Message) []dnsmessage.Message {
			chaos := record(query.Questions[0].Name, netip.MustParseAddr("6.6.6.6"))
			chaos.Header.Class = dnsmessage.ClassCHAOS
			return []dnsmessage.Message{response(query, chaos, record(query.Questions[0].Name, netip.MustParseAddr("1.1.1.1")))}
		}, "1.1.1.1"},
		{"the case of names does not matter", func(_ string, query dnsmessage.Message) []dnsmessage.Message {
			upper := dnsmessage.MustNewName(strings.ToUpper(query.Questions[0].Name.String()))
			m := response(query, record(upper, netip.MustParseAddr("1.1.1.1")))
			m.Questions = []dnsmessage.Question{{Name: upper, Type: query.Questions[0].Type, Class: dnsmessage.ClassINET}}
			return []dnsmessage.Message{m}
		}, "1.1.1.1"},
		{"cut off, and whole over TCP", func(network string, query dnsmessage.Message) []dnsmessage.Message {
			m := response(query, records(t, query.Questions[0], "A 1.1.1.1; A 1.0.0.1")...)
			if network == "udp" {
				m.Truncated, m.Answers = true, m.Answers[:min(1, len(m.Answers))]
			}
			return []dnsmessage.Message{m}
		}, "1.0.0.1 1.1.1.1"},
		{"the status is more than four bits", func(_ string, query dnsmessage.Message) []dnsmessage.Message {
			m := response(query, records(t, query.Questions[0], "A 1.1.1.1")...)
			var header dnsmessage.ResourceHeader
			if err := header.SetEDNS0(1232, dnsmessage.RCode(16), false); err != nil { // BADVERS
				t.Error(err)
			}
			m.Additionals = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.OPTResource{}}}
			return []dnsmessage.Message{m}
		}, "lookup x.example.org."},
	} {
		list, err := newNameServer(t, test.reply).resolver().Lookup(t.Context(), "x.example.org")
		var texts []string
		for _, address := range list {
			texts = append(texts, address.Unmap().String())
		}
		slices.Sort(texts) // the resolver orders them by this host's routes
		texts = slices.Compact(texts)
		got := strings.Join(texts, " ")
		var dns *net.DNSError
		if errors.As(err, &dns) && dns.IsNotFound {
			got = "not found"
		} else if err != nil {
			got = err.Error()
		}
		if got != test.want && (err == nil || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s: %s, want %s", test.what, got, test.want)
		}
	}
}

func aliases(n int) string {
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "CNAME a%d.example.net; ", i)
	}
	return list.String()
}

func answer(t *testing.T, text string) func(string, dnsmessage.Message) []dnsmessage.Message {
	return func(_ string, query dnsmessage.Message) []dnsmessage.Message {
		return []dnsmessage.Message{response(query, records(t, query.Questions[0], text)...)}
	}
}

// Nothing is appended to a name, whatever the host's search domains are.
func TestNamesAreWhole(t *testing.T) {
	if !onAnotherHost(t, map[string]string{"/etc/resolv.conf": "nameserver 127.0.0.1\nsearch search.example.net\noptions ndots:3\n"}) {
		return
	}
	server := newNameServer(t, func(_ string, query dnsmessage.Message) []dnsmessage.Message {
		return []dnsmessage.Message{refusal(query, dnsmessage.RCodeNameError)}
	})
	for _, host := range []string{"intranet", "x.example.org"} {
		server.resolver().Lookup(t.Context(), host)
		asked := server.questions()
		if len(asked) != 2 {
			t.Errorf("for %s, %v was asked", host, asked)
		}
		for _, question := range asked {
			if question.Name.String() != host+"." {
				t.Errorf("%s was asked for as %s", host, question.Name)
			}
		}
	}
}

func TestLocalhostIsAskedOfNobody(t *testing.T) {
	server := zone(t, func(string) string { return "A 93.184.216.34" })
	for host, want := range map[string]string{
		"localhost":      "[127.0.0.1 ::1]",
		"a.localhost":    "[127.0.0.1 ::1]",
		"notlocalhost":   "[93.184.216.34]",
		"localhost.test": "[93.184.216.34]",
	} {
		list, err := server.resolver().Lookup(t.Context(), host)
		if fmt.Sprint(list) != want {
			t.Errorf("%s: %v, %v", host, list, err)
		}
		if asked := len(server.questions()) > 0; asked != (want == "[93.184.216.34]") {
			t.Errorf("%s: a server was asked: %t", host, asked)
		}
	}
}

// An answer of /etc/hosts is looked at like one of a name server.
func TestHostsFile(t *testing.T) {
	if !onAnotherHost(t, map[string]string{"/etc/hosts": "127.0.0.1 hosts.example.com\n"}) {
		return
	}
	world := newInternet(t)
	server := zone(t, func(string) string { return "A 93.184.216.34" })
	_, err := dial(&Dialer{Resolver: server.resolver(), Connect: world.Connect}, authority(t, "hosts.example.com:443"))
	wantDenied(t, err, "Loopback (RFC 1122, Section 3.2.1.3)")
	wantCalls(t, world)
}

// elsewhere holds the directory of the files of another host, in a child of onAnotherHost.
const elsewhere = "TENDRIL_TEST_FILES"

// onAnotherHost runs the test again in a mount namespace in which files of this host
// are others, and is true there.
func onAnotherHost(t *testing.T, files map[string]string) bool {
	t.Helper()
	if dir := os.Getenv(elsewhere); dir != "" {
		for path := range files {
			if err := syscall.Mount(filepath.Join(dir, filepath.Base(path)), path, "", syscall.MS_BIND, ""); err != nil {
				t.Skipf("no mount over %s: %v", path, err)
			}
		}
		return true
	}
	dir := t.TempDir()
	for path, text := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), elsewhere+"="+dir)
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := child.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		t.Skipf("no mount namespace: %v", err)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()):
		t.Skipf("%s", out)
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("%v\n%s", err, out)
	}
	return false
}
