package egress

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"tendril/fault"
)

// leading resolves every name to one address.
type leading netip.Addr

func (a leading) Lookup(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.Addr(a)}, nil
}

// A registry of this host is reached by the names that mean it; a name of somebody else's
// that leads here, or to a private network, is not.
func TestTransportDialsWhatWasNamed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "served") }))
	defer server.Close()
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	here, private := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.1.2.3")
	for _, c := range []struct {
		host   string
		leads  netip.Addr
		served bool
	}{
		{"127.0.0.1", here, true}, {"localhost", here, true},
		{"registry.example", here, false}, {"registry.example", private, false}, {"10.1.2.3", private, false}, {"127.0.0.2", here, false},
	} {
		client := http.Client{Transport: (&Dialer{Resolver: leading(c.leads)}).Transport()}
		response, err := client.Get("http://" + c.host + port)
		if err == nil {
			response.Body.Close()
		}
		if served := err == nil; served != c.served || !served && !fault.Is(err, fault.Denied) {
			t.Errorf("%s at %s: served %v, %v", c.host, c.leads, served, err)
		}
	}
}
