package proxy

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"tendril/destination"
	"tendril/fault"
)

// greeting returns the ClientHello that crypto/tls sends.
func greeting(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, config).Handshake() // fails: nobody answers
		_ = theirs.Close()
	}()
	_ = ours.SetDeadline(time.Now().Add(10 * time.Second))
	raw, _, err := readHello(ours)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// extension is one of a ClientHello.
type extension struct {
	kind int
	data []byte
}

func serverName(names ...string) extension {
	var list []byte
	for _, name := range names {
		list = append(list, 0)
		list = binary.BigEndian.AppendUint16(list, uint16(len(name)))
		list = append(list, name...)
	}
	return extension{extensionServerName, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)}
}

// helloMessage is a ClientHello with these extensions.
func helloMessage(extensions ...extension) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0)                         // session
	body = append(body, 0, 2, 0x13, 0x01, 1, 0)    // a cipher suite, no compression
	all := []byte{0, 43, 0, 3, 2, 3, 4}            // supported_versions: TLS 1.3
	all = append(all, 0, 10, 0, 4, 0, 2, 0, 29)    // supported_groups: X25519
	all = append(all, 0, 13, 0, 4, 0, 2, 0x04, 03) // signature_algorithms
	for _, e := range extensions {
		all = binary.BigEndian.AppendUint16(all, uint16(e.kind))
		all = binary.BigEndian.AppendUint16(all, uint16(len(e.data)))
		all = append(all, e.data...)
	}
	body = binary.BigEndian.AppendUint16(body, uint16(len(all)))
	body = append(body, all...)
	return append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

// record puts a message into records of at most this size.
func record(message []byte, size int) []byte {
	var out []byte
	for len(message) > 0 {
		n := min(size, len(message))
		out = append(out, 22, 3, 1)
		out = binary.BigEndian.AppendUint16(out, uint16(n))
		out = append(out, message[:n]...)
		message = message[n:]
	}
	return out
}

func TestHello(t *testing.T) {
	name := serverName("example.com")
	longName := serverName(string(bytes.Repeat([]byte("a"), longestHello)))
	cut := record(helloMessage(name), 1<<14)
	for _, test := range []struct {
		what string
		host string
		raw  []byte
		good bool
	}{
		{"crypto/tls", "example.com", greeting(t, &tls.Config{ServerName: "example.com"}), true},
		{"crypto/tls before 1.3", "example.com", greeting(t, &tls.Config{ServerName: "example.com", MaxVersion: tls.VersionTLS12}), true},
		{"crypto/tls for an address", "192.0.2.1", greeting(t, &tls.Config{ServerName: "192.0.2.1"}), true},
		{"crypto/tls for an IPv6 address", "[2001:db8::1]", greeting(t, &tls.Config{ServerName: "2001:db8::1"}), true},
		{"crypto/tls without a name", "example.com", greeting(t, &tls.Config{InsecureSkipVerify: true}), false},
		{"another name", "example.com", greeting(t, &tls.Config{ServerName: "evil.example"}), false},
		{"a name below", "example.com", greeting(t, &tls.Config{ServerName: "www.example.com"}), false},
		{"a name where an address was asked for", "192.0.2.1", record(helloMessage(name), 1<<14), false},
		{"an address as a name", "192.0.2.1", record(helloMessage(serverName("192.0.2.1")), 1<<14), false},
		{"ours", "example.com", record(helloMessage(name), 1<<14), true},
		{"in upper case", "example.com", record(helloMessage(serverName("EXAMPLE.com")), 1<<14), true},
		{"in a few records", "example.com", record(helloMessage(name), 20), true},
		{"in many records", "example.com", record(helloMessage(name), 1), false},
		{"with ECH", "example.com", record(helloMessage(name, extension{extensionECH, []byte{1}}), 1<<14), false},
		{"with ECH first", "example.com", record(helloMessage(extension{extensionECH, nil}, name), 1<<14), false},
		{"with ESNI", "example.com", record(helloMessage(name, extension{extensionESNI, nil}), 1<<14), false},
		{"two extensions of names", "example.com", record(helloMessage(name, serverName("evil.example")), 1<<14), false},
		{"two extensions, the good one last", "example.com", record(helloMessage(serverName("evil.example"), name), 1<<14), false},
		{"two names", "example.com", record(helloMessage(serverName("example.com", "evil.example")), 1<<14), false},
		{"no name in the list", "example.com", record(helloMessage(serverName()), 1<<14), false},
		{"an empty name", "example.com", record(helloMessage(serverName("")), 1<<14), false},
		{"a trailing dot", "example.com", record(helloMessage(serverName("example.com.")), 1<<14), false},
		{"a NUL in the name", "example.com", record(helloMessage(serverName("example.com\x00.evil.example")), 1<<14), false},
		{"a U-label", "xn--bcher-kva.example", record(helloMessage(serverName("bücher.example")), 1<<14), false},
		{"a Kelvin sign", "kiwi.example", record(helloMessage(serverName("\u212aiwi.example")), 1<<14), false},
		{"a name of another kind", "example.com", record(helloMessage(extension{0, []byte{0, 5, 1, 0, 2, 'h', 'i'}}), 1<<14), false},
		{"too large a name", "example.com", record(helloMessage(longName), 1<<14), false},
		{"something after it in its record", "example.com", record(append(helloMessage(name), 0), 1<<14), false},
		{"HTTP", "example.com", []byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"), false},
		{"SSH", "example.com", []byte("SSH-2.0-OpenSSH_9.2p1\r\n"), false},
		{"SSLv2", "example.com", []byte{0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10, 1, 0, 0x80}, false},
		{"a record without content", "example.com", []byte{22, 3, 1, 0, 0, 22, 3, 1, 0, 0}, false},
		{"an alert", "example.com", []byte{21, 3, 1, 0, 2, 2, 0}, false},
		{"a ServerHello", "example.com", record([]byte{2, 0, 0, 1, 0}, 1<<14), false},
		{"a cut one", "example.com", cut[:len(cut)-1], false},
		{"nothing", "example.com", nil, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			host, err := destination.ParseHost(test.host)
			if err != nil {
				t.Fatal(err)
			}
			rest := bytes.NewReader(append(bytes.Clone(test.raw), "what follows"...))
			whole := test.what != "a cut one" && test.what != "nothing"
			if !whole {
				rest = bytes.NewReader(test.raw)
			}
			raw, h, err := readHello(iotest.HalfReader(rest))
			if err == nil {
				err = h.check(host)
			}
			if (err == nil) != test.good {
				t.Fatalf("%v", err)
			}
			if !test.good && whole && !fault.Is(err, fault.Denied) {
				t.Errorf("%v is not a refusal", err)
			}
			if test.good {
				if left, _ := io.ReadAll(rest); !bytes.Equal(raw, test.raw) || string(left) != "what follows" {
					t.Error("what was read is not what came, or more than that")
				}
			}
		})
	}
}

var errHeard = errors.New("heard")

// heard is the name that crypto/tls reads of a ClientHello.
func heard(raw []byte) (name string, ok bool) {
	conn := &tape{from: bytes.NewReader(raw)}
	_ = tls.Server(conn, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = info.ServerName, true
		return nil, errHeard
	}}).Handshake()
	return name, ok
}

// tape is a connection of which everything was recorded.
type tape struct {
	net.Conn
	from io.Reader
}

func (t *tape) Read(p []byte) (int, error)         { return t.from.Read(p) }
func (t *tape) Write(p []byte) (int, error)        { return len(p), nil }
func (t *tape) Close() error                       { return nil }
func (t *tape) SetReadDeadline(_ time.Time) error  { return nil }
func (t *tape) SetWriteDeadline(_ time.Time) error { return nil }

// Whatever crypto/tls takes for a hello with a name has the same name for us, or none.
func FuzzHello(f *testing.F) {
	f.Add(greeting(f, &tls.Config{ServerName: "example.com"}))
	f.Add(greeting(f, &tls.Config{ServerName: "example.com", MaxVersion: tls.VersionTLS12}))
	f.Add(record(helloMessage(serverName("example.com")), 1<<14))
	f.Add(record(helloMessage(serverName("example.com"), serverName("evil.example")), 30))
	f.Add(record(helloMessage(extension{extensionECH, []byte{1, 2}}), 1<<14))
	host, err := destination.ParseHost("example.com")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		raw, h, err := readHello(bytes.NewReader(input))
		if err != nil {
			return
		}
		if !bytes.Equal(raw, input[:len(raw)]) {
			t.Fatal("it was changed")
		}
		if len(raw) > longestHello+5*mostRecords {
			t.Fatalf("%d bytes were taken", len(raw))
		}
		if name, ok := heard(raw); ok && name != h.name {
			t.Fatalf("crypto/tls hears %q, and we %q", name, h.name)
		} else if ok && h.check(host) == nil && name != "example.com" && len(name) != len("example.com") {
			t.Fatalf("%q passes for example.com", name)
		}
	})
}

func TestAHelloWithoutANameSaysSo(t *testing.T) {
	host, _ := destination.ParseHost("example.com")
	if err := (hello{}).check(host); err == nil || !strings.Contains(err.Error(), "does not name the server") {
		t.Error(err)
	}
}

// Of what follows a hello in its record, nothing more has to come for it to be refused.
func TestWhatFollowsAHelloIsRefusedAtOnce(t *testing.T) {
	raw := record(append(helloMessage(serverName("example.com")), 0), 1<<14)
	if _, _, err := readHello(bytes.NewReader(raw)); !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
}

func TestFuzzHelloSeesNames(t *testing.T) {
	if name, ok := heard(record(helloMessage(serverName("example.com")), 1<<14)); !ok || name != "example.com" {
		t.Errorf("crypto/tls hears %q %t", name, ok)
	}
}

// What is not the TLS that was asked for ends the connection, tunnel or not, and not a
// byte of it arrives.
func TestHelloIsCheckedOnTheWay(t *testing.T) {
	for _, host := range []string{"example.com", "tunnel.example"} {
		s := open(t)
		server, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		arrived := make(chan int, 10)
		go func() {
			for {
				conn, err := server.Accept()
				if err != nil {
					close(arrived)
					return
				}
				bytes, _ := io.ReadAll(conn)
				arrived <- len(bytes)
				_ = conn.Close()
			}
		}()
		s.know(host+":443", server.Addr().String())
		for _, opening := range [][]byte{
			record(helloMessage(serverName(host), extension{extensionECH, []byte{1}}), 1<<14),
			record(helloMessage(serverName("evil.example")), 1<<14),
			record(helloMessage(), 1<<14),
			[]byte("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"),
			[]byte("SSH-2.0-OpenSSH_9.2p1\r\n"),
		} {
			conn := s.raw()
			_, _ = io.WriteString(conn, "CONNECT "+host+":443 HTTP/1.1\r\nHost: "+host+":443\r\n\r\n")
			_, _ = io.ReadFull(conn, make([]byte, len(established)))
			_, _ = conn.Write(opening)
			if answer, _ := io.ReadAll(conn); !bytes.Equal(answer, alert) && len(answer) != 0 { // a reset may take it away
				t.Errorf("%s: %.20q was answered with %q", host, opening, answer)
			}
		}
		_ = server.Close()
		for n := range arrived {
			if n != 0 {
				t.Errorf("%s: %d bytes arrived", host, n)
			}
		}
	}
}
