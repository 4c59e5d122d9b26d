//go:build linux

package stem

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tendril/bench"
)

const (
	gibibyte = 1 << 30

	// inspectedAt and tunnelledAt are the same server; of the second the grant says that
	// nobody looks into its connections.
	inspectedAt = "127.0.0.2"
	tunnelledAt = "127.0.0.3"
	serverName  = "outside.example"
)

// server is an https server, with a certificate that it signed itself.
type server struct {
	port        string
	certificate []byte // PEM
}

// serveHTTPS answers /ok/small with some bytes and /ok/large with a gibibyte of zeros.
func serveHTTPS(b *testing.B) server {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outside"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(inspectedAt), net.ParseIP(tunnelledAt)}, DNSNames: []string{serverName}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		b.Fatal(err)
	}
	zeros := make([]byte, 64<<10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok/large" {
			fmt.Fprint(w, "hello")
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(gibibyte))
		for range gibibyte / len(zeros) {
			if _, err := w.Write(zeros); err != nil {
				return
			}
		}
	})
	s := httptest.NewUnstartedServer(handler)
	s.Listener.Close()
	if s.Listener, err = net.Listen("tcp4", ":0"); err != nil {
		b.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	b.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	return server{port, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// way is one way to the server.
type way struct {
	proxy *neturl.URL // nil: direct
	host  string
	port  string
	roots *x509.CertPool
	pid   int // of the proxy
}

// transport is a client of its own, which speaks HTTP/1.1 as most programs do to a proxy.
func (w way) transport() *http.Transport {
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.roots}, MaxIdleConnsPerHost: 2000, ReadBufferSize: 64 << 10}
	if w.proxy != nil {
		t.Proxy = http.ProxyURL(w.proxy)
		t.OnProxyConnectResponse = func(_ context.Context, _ *neturl.URL, _ *http.Request, answer *http.Response) error {
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("the proxy says %s: %v", answer.Status, answer.Header)
			}
			return nil
		}
	}
	return t
}

func (w way) url(path string) string { return "https://" + net.JoinHostPort(w.host, w.port) + path }

// get asks for what is small.
func (w way) get(t *http.Transport) error {
	_, err := w.read(t, "/ok/small")
	return err
}

func (w way) read(t *http.Transport, path string) (int64, error) {
	answer, err := (&http.Client{Transport: t}).Get(w.url(path))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		return 0, errors.Join(fmt.Errorf("%s: %s", answer.Status, body), err)
	}
	return io.CopyBuffer(struct{ io.Writer }{io.Discard}, answer.Body, make([]byte, 64<<10))
}

// getAnew asks on a connection of its own, and ends it.
func (w way) getAnew() error {
	t := w.transport()
	var conn net.Conn // closed here: the transport keeps one that is idle only after the answer was read
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		var dialer net.Dialer
		var err error
		conn, err = dialer.DialContext(ctx, network, address)
		return conn, err
	}
	err := w.get(t)
	if conn != nil {
		conn.Close()
	}
	return err
}

// each measures the road against each of the others; one that is not here is skipped.
func each(b *testing.B, do func(b *testing.B, ours, theirs way)) {
	b.Helper()
	for _, other := range []struct {
		name string
		host string // of the server
		open func(b *testing.B, s server) way
	}{
		{"direct", inspectedAt, direct},
		{"squid", inspectedAt, squid},
		{"smokescreen", inspectedAt, smokescreen},
		{"tunnel-against-smokescreen", tunnelledAt, smokescreen},
	} {
		b.Run(other.name, func(b *testing.B) {
			s := serveHTTPS(b)
			theirs := other.open(b, s)
			ours := road(b, s)
			ours.host = other.host
			do(b, ours, theirs)
		})
	}
}

// Row 6: one small request over a connection that is kept alive.
func BenchmarkRow6KeptAlive(b *testing.B) {
	each(b, func(b *testing.B, ours, theirs way) {
		mine, other := ours.transport(), theirs.transport()
		defer mine.CloseIdleConnections()
		defer other.CloseIdleConnections()
		bench.Added(b, func() error { return ours.get(mine) }, func() error { return theirs.get(other) })
	})
}

// Row 6: one small request over a new connection: TCP, CONNECT where there is a proxy, TLS.
func BenchmarkRow6NewConnection(b *testing.B) {
	each(b, func(b *testing.B, ours, theirs way) { bench.Added(b, ours.getAnew, theirs.getAnew) })
}

// clients is how many ask at the same time for new connections.
const clients = 32

// BenchmarkRoadConnections is how many new connections a second, with a request on each,
// there can be. What the client does for them is part of it.
func BenchmarkRoadConnections(b *testing.B) {
	alone(b, func(b *testing.B, w way) {
		if err := w.getAnew(); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		inParallel(b, clients, b.N, func() error { return w.getAnew() })
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "connections/s")
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkRoadGibibyte is a download of a gibibyte, and the most memory that the proxy held
// meanwhile.
func BenchmarkRoadGibibyte(b *testing.B) {
	alone(b, func(b *testing.B, w way) {
		t := w.transport()
		defer t.CloseIdleConnections()
		if err := w.get(t); err != nil {
			b.Fatal(err)
		}
		w.forgetPeak(b)
		for b.Loop() {
			if n, err := w.read(t, "/ok/large"); err != nil || n != gibibyte {
				b.Fatalf("%d bytes, %v", n, err)
			}
		}
		b.ReportMetric(float64(b.N)*gibibyte/1e6/b.Elapsed().Seconds(), "MB/s")
		b.ReportMetric(0, "ns/op")
		if w.pid != 0 {
			b.ReportMetric(w.memory(b, "VmHWM"), "peak-MiB")
		}
	})
}

// BenchmarkRoadIdle is the memory that a thousand connections take, each of which has had
// one request and waits. Nothing of it is time.
func BenchmarkRoadIdle(b *testing.B) {
	alone(b, func(b *testing.B, w way) {
		if w.pid == 0 {
			b.Skip("there is no proxy")
		}
		before := w.memory(b, "VmRSS")
		const connections = 1000
		transports := make([]*http.Transport, connections)
		for i := range transports {
			transports[i] = w.transport()
		}
		var next atomic.Int64
		inParallel(b, clients, connections, func() error { return w.get(transports[next.Add(1)-1]) })
		after := w.memory(b, "VmRSS")
		for b.Loop() {
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(before, "before-MiB")
		b.ReportMetric(after, "after-MiB")
		b.ReportMetric((after-before)*1024/connections, "KiB/connection")
		for _, t := range transports {
			t.CloseIdleConnections()
		}
	})
}

// alone measures each way by itself.
func alone(b *testing.B, do func(b *testing.B, w way)) {
	b.Helper()
	for _, one := range []struct {
		name string
		open func(b *testing.B, s server) way
	}{
		{"direct", direct},
		{"tendril", road},
		{"tendril-tunnel", func(b *testing.B, s server) way {
			w := road(b, s)
			w.host = tunnelledAt
			return w
		}},
		{"squid", squid},
		{"smokescreen", smokescreen},
	} {
		b.Run(one.name, func(b *testing.B) { do(b, one.open(b, serveHTTPS(b))) })
	}
}

// inParallel does something n times, by so many at once.
func inParallel(b *testing.B, workers, n int, do func() error) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := do(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// memory is a value of proc_pid_status(5), in MiB.
func (w way) memory(b *testing.B, field string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				b.Fatal(err)
			}
			return float64(kib) / 1024
		}
	}
	b.Fatalf("there is no %s in\n%s", field, text)
	return 0
}

// forgetPeak makes VmHWM begin anew (proc_pid_clear_refs(5)).
func (w way) forgetPeak(b *testing.B) {
	b.Helper()
	if w.pid == 0 {
		return
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.pid), []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
}

// poolOf trusts the certificates.
func poolOf(certificates ...[]byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bytes.Join(certificates, nil))
	return pool
}

// answers waits until somebody listens at an address.
func answers(b *testing.B, address string, ended <-chan struct{}) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-ended:
			b.Fatal("the proxy has ended")
		case <-ctx.Done():
			b.Fatalf("nobody listens at %s: %v", address, err)
		case <-time.After(10 * time.Millisecond): // between two looks
		}
	}
}
