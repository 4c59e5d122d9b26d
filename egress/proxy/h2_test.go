package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// asks sends one request of HTTP/2 made of these fields, and returns the status of the
// answer, or what else came of it.
func asks(t *testing.T, s *site, host string, fields ...string) string {
	t.Helper()
	secure := s.through(host, "h2")
	defer secure.Close()
	_, _ = io.WriteString(secure, http2.ClientPreface)
	framer := http2.NewFramer(secure, secure)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = framer.WriteSettings()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return "reset"
		}
	}
}

func TestHTTP2HasOneServer(t *testing.T) {
	s := open(t)
	s.serve(says("a hole"), "api.example", "evil.example")
	request := func(more ...string) []string {
		return append([]string{":method", "GET", ":scheme", "https", ":authority", "api.example", ":path", "/"}, more...)
	}
	if got := asks(t, s, "api.example", request("x-a", "b")...); got != "200" {
		t.Fatalf("a request that is well: %s", got)
	}
	decided := len(s.gate.log())
	for name, fields := range map[string][]string{
		"another authority":  {":method", "GET", ":scheme", "https", ":authority", "evil.example", ":path", "/"},
		"another port":       {":method", "GET", ":scheme", "https", ":authority", "api.example:80", ":path", "/"},
		"no authority":       {":method", "GET", ":scheme", "https", ":path", "/"},
		"another host":       request("host", "evil.example"),
		"two authorities":    request(":authority", "evil.example"),
		"a URL":              {":method", "GET", ":scheme", "https", ":authority", "api.example", ":path", "https://evil.example/"},
		"an asterisk":        {":method", "OPTIONS", ":scheme", "https", ":authority", "api.example", ":path", "*"},
		"a user":             {":method", "GET", ":scheme", "https", ":authority", "a@api.example", ":path", "/"},
		"a CONNECT":          {":method", "CONNECT", ":authority", "evil.example:443"},
		"a CONNECT for more": {":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "api.example", ":path", "/"},
		"a coding":           request("transfer-encoding", "chunked"),
		"a connection":       request("connection", "upgrade"),
		"a line end":         request("x-a", "b\r\nhost: evil.example"),
		"a control":          {":method", "GET", ":scheme", "https", ":authority", "api.example", ":path", "/\x01"},
		"a space":            {":method", "GET", ":scheme", "https", ":authority", "api.example", ":path", "/ HTTP/1.1"},
	} {
		got := asks(t, s, "api.example", fields...)
		if got != "400" && got != "421" && got != "reset" {
			t.Errorf("%s: %s", name, got)
		}
	}
	many := request()
	for i := range mostFields + 1 {
		many = append(many, fmt.Sprintf("x-%d", i), "a")
	}
	if got := asks(t, s, "api.example", many...); got != "431" {
		t.Errorf("many fields: %s", got)
	}
	// What it says of the scheme decides nothing, nor does the length of no body.
	if got := asks(t, s, "api.example", ":method", "GET", ":scheme", "http", ":authority", "api.example", ":path", "/", "content-length", "5"); got != "200" {
		t.Errorf("another scheme: %s", got)
	}
	if got := asks(t, s, "api.example", request("x-a", strings.Repeat("a", 16<<10-1000))...); got != "200" {
		t.Errorf("a long field: %s", got)
	}
	for _, one := range s.gate.log()[decided:] {
		if !strings.HasPrefix(one, "CONNECT api.example:443") && one != "GET https://api.example/ true" {
			t.Errorf("decided: %s", one)
		}
	}
}

// A client of net/http that says another Host.
func TestAnotherHostByAClient(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := open(t)
		s.serve(says("a hole"), "api.example", "example.com")
		request, _ := http.NewRequest("GET", "https://api.example/", nil)
		request.Host = "example.com"
		response, err := s.client(h2).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 421 || response.Header.Get("Tendril-Denied") != "authority" {
			t.Errorf("%d %v", response.StatusCode, response.Header)
		}
	})
}
