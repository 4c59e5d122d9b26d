package egress

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is a name server on loopback, over UDP and TCP.
type nameServer struct {
	udp *net.UDPConn
	tcp *net.TCPListener

	// reply returns what is sent back to one query, in order; nothing is silence. It is
	// called for one query at a time.
	reply func(network string, query dnsmessage.Message) []dnsmessage.Message

	mu    sync.Mutex
	asked []dnsmessage.Question
}

func newNameServer(t testing.TB, reply func(network string, query dnsmessage.Message) []dnsmessage.Message) *nameServer {
	t.Helper()
	s := &nameServer{reply: reply}
	for range 16 { // until both have the same port
		tcp, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		at := tcp.Addr().(*net.TCPAddr)
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: at.IP, Port: at.Port})
		if err == nil {
			s.udp, s.tcp = udp, tcp
			break
		}
		tcp.Close()
	}
	if s.udp == nil {
		t.Fatal("no port is free for both UDP and TCP")
	}
	var serving sync.WaitGroup
	serving.Go(s.serveUDP)
	serving.Go(s.serveTCP)
	t.Cleanup(func() {
		s.udp.Close()
		s.tcp.Close()
		serving.Wait()
	})
	return s
}

func (s *nameServer) serveUDP() {
	datagram := make([]byte, 4096)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(datagram)
		if err != nil {
			return
		}
		for _, response := range s.responses("udp", datagram[:n]) {
			s.udp.WriteToUDPAddrPort(response, from)
		}
	}
}

func (s *nameServer) serveTCP() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err == nil {
			query := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(conn, query); err == nil {
				for _, response := range s.responses("tcp", query) {
					conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(response))), response...))
				}
			}
		}
		conn.Close()
	}
}

func (s *nameServer) responses(network string, packed []byte) [][]byte {
	var query dnsmessage.Message
	if query.Unpack(packed) != nil || len(query.Questions) != 1 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, query.Questions[0])
	var list [][]byte
	for _, m := range s.reply(network, query) {
		response, err := m.Pack()
		if err != nil {
			panic(err)
		}
		list = append(list, response)
	}
	return list
}

// questions returns what was asked, and forgets it.
func (s *nameServer) questions() []dnsmessage.Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.asked
	s.asked = nil
	return list
}

// resolver is the real one, but for where its servers are.
func (s *nameServer) resolver() System {
	return System{dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, s.tcp.Addr().String())
	}}
}

// response is an answer to a query, as a resolver that recurses gives it.
func response(query dnsmessage.Message, answers ...dnsmessage.Resource) dnsmessage.Message {
	return dnsmessage.Message{
		Header:    dnsmessage.Header{ID: query.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: query.Questions,
		Answers:   answers,
	}
}

func refusal(query dnsmessage.Message, code dnsmessage.RCode) dnsmessage.Message {
	m := response(query)
	m.RCode = code
	return m
}

// records reads "CNAME edge.cdn.net; A 192.0.2.1; AAAA ::1" as what a server answers to
// a question: the aliases, and then the addresses of the type that is asked for.
func records(t testing.TB, question dnsmessage.Question, text string) []dnsmessage.Resource {
	t.Helper()
	owner := question.Name
	var list []dnsmessage.Resource
	for one := range strings.SplitSeq(text, ";") {
		kind, value, _ := strings.Cut(strings.TrimSpace(one), " ")
		switch kind {
		case "CNAME":
			target := dnsmessage.MustNewName(value + ".")
			list = append(list, resource(owner, &dnsmessage.CNAMEResource{CNAME: target}))
			owner = target
		case "A", "AAAA":
			if address := netip.MustParseAddr(value); kind == strings.TrimPrefix(question.Type.String(), "Type") {
				list = append(list, record(owner, address))
			}
		default:
			t.Fatalf("what is the record %q?", one)
		}
	}
	return list
}

func record(owner dnsmessage.Name, address netip.Addr) dnsmessage.Resource {
	if address.Is4() {
		return resource(owner, &dnsmessage.AResource{A: address.As4()})
	}
	return resource(owner, &dnsmessage.AAAAResource{AAAA: address.As16()})
}

func resource(owner dnsmessage.Name, body dnsmessage.ResourceBody) dnsmessage.Resource {
	header := dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET}
	switch body.(type) {
	case *dnsmessage.AResource:
		header.Type = dnsmessage.TypeA
	case *dnsmessage.AAAAResource:
		header.Type = dnsmessage.TypeAAAA
	case *dnsmessage.CNAMEResource:
		header.Type = dnsmessage.TypeCNAME
	}
	return dnsmessage.Resource{Header: header, Body: body}
}

// zone answers every name with what the function says of it.
func zone(t testing.TB, of func(name string) string) *nameServer {
	return newNameServer(t, func(_ string, query dnsmessage.Message) []dnsmessage.Message {
		name := strings.TrimSuffix(query.Questions[0].Name.String(), ".")
		return []dnsmessage.Message{response(query, records(t, query.Questions[0], of(name))...)}
	})
}
