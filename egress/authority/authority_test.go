package authority

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	"tendril/destination"
)

func host(t *testing.T, text string) destination.Host {
	t.Helper()
	h, err := destination.ParseHost(text)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func made(t *testing.T, now time.Time) *Authority {
	t.Helper()
	a, err := New(now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// verify says what a client that trusts the authority's certificate says.
func verify(t *testing.T, a *Authority, of, asked string, at time.Time) error {
	t.Helper()
	leaf, err := a.Leaf(host(t, of))
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(leaf.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.CertificatePEM()) {
		t.Fatal("the authority's certificate is none")
	}
	_, err = certificate.Verify(x509.VerifyOptions{DNSName: asked, Roots: roots, CurrentTime: at})
	return err
}

func TestALeafIsForExactlyItsHost(t *testing.T) {
	now := time.Now()
	a := made(t, now)
	long := fmt.Sprintf("%060d.%060d.%060d.example.org", 1, 2, 3)
	for _, name := range []string{"example.com", "xn--bcher-kva.example", "192.0.2.7", "[2001:db8::1]", long} {
		if err := verify(t, a, name, name, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, other := range []string{"example.org", "www." + name, "192.0.2.8"} {
			if verify(t, a, name, other, now) == nil {
				t.Errorf("the leaf of %s is good for %s", name, other)
			}
		}
	}
	if _, err := a.Leaf(destination.Host{}); err == nil {
		t.Error("there is a leaf for no host")
	}
}

func TestCertificatesEndWithTheRun(t *testing.T) {
	now := time.Now()
	a := made(t, now)
	for _, test := range []struct {
		after time.Duration
		good  bool
	}{{-2 * time.Hour, false}, {-30 * time.Minute, true}, {0, true}, {47 * time.Hour, true}, {49 * time.Hour, false}} {
		if err := verify(t, a, "example.com", "example.com", now.Add(test.after)); (err == nil) != test.good {
			t.Errorf("%s after it was made: %v", test.after, err)
		}
	}
}

func TestAnotherRunIsNotTrusted(t *testing.T) {
	now := time.Now()
	a, b := made(t, now), made(t, now)
	leaf, err := b.Leaf(host(t, "example.com"))
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(leaf.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CertificatePEM())
	if _, err := certificate.Verify(x509.VerifyOptions{DNSName: "example.com", Roots: roots}); err == nil {
		t.Error("one run's authority vouches for another's")
	}
	if certificate.IsCA {
		t.Error("a leaf can sign")
	}
}

func TestNoKeyIsInWhatIsGivenAway(t *testing.T) {
	a := made(t, time.Now())
	block, rest := pem.Decode(a.CertificatePEM())
	if block == nil || block.Type != "CERTIFICATE" || len(rest) != 0 {
		t.Fatal("what is given away is not one certificate")
	}
	secret, err := a.key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(block.Bytes, secret) {
		t.Error("it holds the key")
	}
}

func TestLeavesAreKeptAndBounded(t *testing.T) {
	a := made(t, time.Now())
	first, err := a.Leaf(host(t, "first.example"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * cached {
		if _, err := a.Leaf(host(t, fmt.Sprintf("n%d.example", i))); err != nil {
			t.Fatal(err)
		}
		if again, _ := a.Leaf(host(t, "first.example")); again != first {
			t.Fatal("a leaf that is in use was made again")
		}
	}
	if len(a.leaves) != cached || a.recent.Len() != cached {
		t.Errorf("%d leaves are kept in %d places, want %d", len(a.leaves), a.recent.Len(), cached)
	}
}
