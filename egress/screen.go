package egress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// screen stands between Go's resolver and a name server, and drops from each response
// what does not answer the question: Go takes every address of the answer section,
// whoever it belongs to (RFC 2181, section 5.4.1, and RFC 5452, section 6, say not
// to). To the resolver it is a stream, as TCP is, because it is no net.PacketConn; so
// both sides are framed alike (RFC 1035, section 4.2.2).
type screen struct {
	net.Conn
	datagrams bool
	query     []byte
	rest      []byte // of a framed response, not yet read
}

func newScreen(conn net.Conn, network string) *screen {
	return &screen{Conn: conn, datagrams: strings.HasPrefix(network, "udp")}
}

// Write takes one framed query.
func (s *screen) Write(framed []byte) (int, error) {
	if len(framed) < 2 {
		return 0, errors.New("a query without its length")
	}
	s.query = bytes.Clone(framed[2:])
	if !s.datagrams {
		return s.Conn.Write(framed)
	}
	n, err := s.Conn.Write(s.query)
	return n + 2, err
}

// Read gives a framed response, in pieces if need be.
func (s *screen) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		response, err := s.receive()
		if err != nil {
			return 0, err
		}
		screened, err := answering(s.query, response)
		if err != nil && s.datagrams {
			continue // anybody can send one; the right one may still come, until the deadline
		}
		if err != nil {
			return 0, err
		}
		s.rest = append(binary.BigEndian.AppendUint16(nil, uint16(len(screened))), screened...)
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// receive reads one response.
func (s *screen) receive() ([]byte, error) {
	if s.datagrams {
		datagram := make([]byte, 4096) // Go asks for 1232 at most
		n, err := s.Conn.Read(datagram)
		return datagram[:n], err
	}
	var length [2]byte
	if _, err := io.ReadFull(s.Conn, length[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(s.Conn, message)
	return message, err
}

// longestChain bounds how many aliases lead from a name to its addresses.
const longestChain = 16

// answering returns a response with nothing in it but the answers to the query: its
// aliases, each of which begins where the one before leads, and the addresses of the
// name at their end. Of one that was cut off it keeps none, so that the resolver asks
// again over TCP. It is an error if the response is not to this query.
func answering(query, response []byte) ([]byte, error) {
	var asked dnsmessage.Message
	if err := asked.Unpack(query); err != nil {
		return nil, fmt.Errorf("read the query: %w", err)
	}
	var p dnsmessage.Parser
	header, err := p.Start(response)
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	questions, err := p.AllQuestions()
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	if len(asked.Questions) != 1 || len(questions) != 1 || header.ID != asked.ID || !header.Response || !same(questions[0], asked.Questions[0]) {
		return nil, errors.New("a response to another query")
	}
	m := dnsmessage.Message{Header: header, Questions: asked.Questions}
	if header.Truncated {
		return m.Pack()
	}
	answers, err := p.AllAnswers()
	if err != nil {
		return nil, fmt.Errorf("read the answers: %w", err)
	}
	if err := p.SkipAllAuthorities(); err != nil {
		return nil, fmt.Errorf("read the authorities: %w", err)
	}
	additionals, err := p.AllAdditionals()
	if err != nil {
		return nil, fmt.Errorf("read the additional records: %w", err)
	}
	m.Answers = chosen(answers, asked.Questions[0])
	for _, r := range additionals {
		if r.Header.Type == dnsmessage.TypeOPT { // it holds half of the status (RFC 6891)
			m.Additionals = append(m.Additionals, r)
		}
	}
	packed, err := m.Pack()
	if err == nil && len(packed) > math.MaxUint16 {
		err = errors.New("a response that grew too long") // it was compressed in a way that ours is not
	}
	return packed, err
}

// chosen returns the answers that belong to a question.
func chosen(answers []dnsmessage.Resource, question dnsmessage.Question) []dnsmessage.Resource {
	var list []dnsmessage.Resource
	name := question.Name
	for range longestChain {
		next := alias(answers, name)
		if next == nil {
			break
		}
		list = append(list, *next)
		name = next.Body.(*dnsmessage.CNAMEResource).CNAME
	}
	for _, r := range answers {
		if r.Header.Type == question.Type && belongs(r, name) {
			list = append(list, r)
		}
	}
	return list
}

// alias returns the first CNAME record of a name, or nil.
func alias(answers []dnsmessage.Resource, name dnsmessage.Name) *dnsmessage.Resource {
	for i, r := range answers {
		if r.Header.Type == dnsmessage.TypeCNAME && belongs(r, name) {
			return &answers[i]
		}
	}
	return nil
}

func belongs(r dnsmessage.Resource, name dnsmessage.Name) bool {
	return r.Header.Class == dnsmessage.ClassINET && equal(r.Header.Name, name)
}

func same(a, b dnsmessage.Question) bool {
	return a.Type == b.Type && a.Class == b.Class && equal(a.Name, b.Name)
}

// equal compares names, in which the case of ASCII letters alone does not matter.
func equal(a, b dnsmessage.Name) bool {
	return slices.EqualFunc(a.Data[:a.Length], b.Data[:b.Length], func(x, y byte) bool { return lower(x) == lower(y) })
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
