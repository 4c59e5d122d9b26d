package egress

import (
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func question(t testing.TB) (dnsmessage.Message, []byte) {
	t.Helper()
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("x.example.org."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	packed, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return query, packed
}

func pack(t testing.TB, m dnsmessage.Message) []byte {
	t.Helper()
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// What cannot be read is no answer, wherever it breaks off.
func TestBrokenResponses(t *testing.T) {
	query, asked := question(t)
	m := response(query, records(t, query.Questions[0], "CNAME a.example.net; A 1.1.1.1")...)
	ns := resource(query.Questions[0].Name, &dnsmessage.NSResource{NS: dnsmessage.MustNewName("ns.example.org.")})
	ns.Header.Type = dnsmessage.TypeNS
	m.Authorities = []dnsmessage.Resource{ns}
	m.Additionals = []dnsmessage.Resource{record(query.Questions[0].Name, netip.MustParseAddr("6.6.6.6"))}
	whole := pack(t, m)
	if _, err := answering(asked, whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if screened, err := answering(asked, whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are a response: %x", n, len(whole), screened)
		}
	}
	// One that says itself that it is cut off breaks off anywhere behind the question; it
	// answers nothing, and the resolver asks again over TCP.
	m.Truncated = true
	whole = pack(t, m)
	for n := range whole {
		screened, err := answering(asked, whole[:n])
		if (err == nil) != (n >= len(asked)) || err == nil && len(screened) != len(asked) {
			t.Errorf("the first %d of %d bytes of what is cut off: %x, %v", n, len(whole), screened, err)
		}
	}
	for n := range asked {
		if _, err := answering(asked[:n], whole); err == nil {
			t.Errorf("the first %d of %d bytes are a query", n, len(asked))
		}
	}
}

// A pointer is two bytes, and a name of ours up to 255: a response can be made so that
// it grows beyond what its length can say. Pointers lead into the first 16 KiB only, so
// a name that comes up first after that is written in full each time; here it was hidden
// in a record that is dropped.
func TestResponsesDoNotGrow(t *testing.T) {
	query, _ := question(t)
	query.Questions[0].Name = dnsmessage.MustNewName(strings.Repeat("long-label.", 22))
	asked := pack(t, query)
	shouted := bytes.ToUpper(asked[12 : len(asked)-4])
	received := pack(t, response(query))
	at := len(received) + 12 // behind the header of the record that hides the name
	received = append(received, 0xc0, 12, 0, 99, 0, 1, 0, 0, 0, 0, byte(len(shouted)>>8), byte(len(shouted)))
	received = append(received, shouted...)
	before, after := 1100, 2500
	for i := range before + after {
		owner := []byte{0xc0, 12}
		if i >= before {
			owner = []byte{0xc0 | byte(at>>8), byte(at)}
		}
		received = append(append(received, owner...), 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 1, 1, 1, 1)
	}
	binary.BigEndian.PutUint16(received[6:], uint16(1+before+after))
	if len(received) > math.MaxUint16 {
		t.Fatalf("%d bytes cannot be received", len(received))
	}
	if screened, err := answering(asked, received); err == nil || !strings.Contains(err.Error(), "grew") {
		t.Errorf("%d bytes became %d: %v", len(received), len(screened), err)
	}
}

// Over TCP, a response that is not to the query ends the exchange, and so does one that
// is cut off.
func TestScreenOverTCP(t *testing.T) {
	query, asked := question(t)
	right := pack(t, response(query, records(t, query.Questions[0], "A 1.1.1.1")...))
	other := query
	other.ID++
	for what, test := range map[string]struct {
		framed []byte
		fine   bool
	}{
		"right":      {frame(right), true},
		"another":    {frame(pack(t, response(other))), false},
		"cut off":    {frame(right)[:len(right)], false},
		"half frame": {[]byte{0}, false},
		"empty":      {[]byte{0, 0}, false},
	} {
		ours, theirs := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			theirs.Read(make([]byte, 512))
			theirs.Write(test.framed)
			theirs.Close()
		}()
		s := newScreen(ours, "tcp")
		if n, err := s.Write(frame(asked)); n != len(asked)+2 || err != nil {
			t.Errorf("%s: wrote %d, %v", what, n, err)
		}
		var got []byte
		var err error
		for piece := make([]byte, 5); err == nil && len(got) < len(right)+2; {
			var n int
			n, err = s.Read(piece)
			got = append(got, piece[:n]...)
		}
		if (err == nil) != test.fine || test.fine && !slices.Equal(got, frame(right)) {
			t.Errorf("%s: %x, %v", what, got, err)
		}
		ours.Close()
		<-served
	}
	if _, err := newScreen(nil, "udp").Write([]byte{0}); err == nil {
		t.Error("one byte is a query")
	}
}

func frame(message []byte) []byte {
	return append([]byte{byte(len(message) >> 8), byte(len(message))}, message...)
}

// Of any bytes, what comes out is a response to the query that was asked, with nothing
// but its aliases and its addresses.
func FuzzAnswering(f *testing.F) {
	query, asked := question(f)
	for _, text := range []string{"A 1.1.1.1", "CNAME a.example.net; A 1.1.1.1", "CNAME x.example.org", "AAAA ::1"} {
		m := response(query, records(f, query.Questions[0], text)...)
		m.Additionals = []dnsmessage.Resource{record(dnsmessage.MustNewName("a.example.net."), netip.MustParseAddr("6.6.6.6"))}
		f.Add(pack(f, m))
		m.Truncated = true
		f.Add(pack(f, m))
	}
	f.Fuzz(func(t *testing.T, received []byte) {
		screened, err := answering(asked, received)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(screened); err != nil {
			t.Fatalf("%x: %v", screened, err)
		}
		if m.ID != query.ID || !m.Response || len(m.Questions) != 1 || m.Questions[0] != query.Questions[0] || len(m.Authorities) > 0 {
			t.Errorf("it answers %+v", m)
		}
		name := query.Questions[0].Name
		for _, r := range m.Answers {
			if !belongs(r, name) {
				t.Errorf("%s stands where %s is answered for", r.Header.Name, name)
			}
			switch body := r.Body.(type) {
			case *dnsmessage.CNAMEResource:
				name = body.CNAME
			case *dnsmessage.AResource:
			default:
				t.Errorf("a %s answers for an address", r.Header.Type)
			}
		}
		if again, err := answering(asked, screened); err != nil || !slices.Equal(again, screened) {
			t.Errorf("%x became %x: %v", screened, again, err)
		}
	})
}
