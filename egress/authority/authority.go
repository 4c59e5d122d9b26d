// Package authority is the certificate authority of one run.
//
// It promises that its key is made in memory, signs for nobody but this process, and
// is gone with the run: nothing in this package writes a key anywhere, and there is
// no form of it that could be written. What the inside of a run is given to trust is
// the certificate alone.
//
// What it does not protect against: whoever can read the memory of this process can
// speak as any server to this one run.
package authority

import (
	"container/list"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"tendril/destination"
)

const (
	// Validity is how long certificates are valid from when the authority was made: no
	// run is longer.
	Validity = 48 * time.Hour

	// backdate is for a clock inside that is behind.
	backdate = time.Hour

	// cached is how many leaves are kept; a run that speaks to more names has some made
	// again.
	cached = 256
)

// Authority signs certificates for the servers that a run speaks to. Its methods are
// safe for concurrent use.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	leafKey     *ecdsa.PrivateKey // one for all names: none of them leaves this process

	mu     sync.Mutex
	leaves map[destination.Host]*list.Element // of *leaf
	recent *list.List                         // the most recently used first
}

type leaf struct {
	host        destination.Host
	certificate *tls.Certificate
}

// New makes an authority whose certificates are valid from an hour before now until
// [Validity] after it.
func New(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of a run's authority: %w", err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of a run's certificates: %w", err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "Tendril, one run"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(Validity),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of a run's authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of a run's authority: %w", err)
	}
	return &Authority{
		certificate: certificate,
		key:         key,
		leafKey:     leafKey,
		leaves:      map[destination.Host]*list.Element{},
		recent:      list.New(),
	}, nil
}

// CertificatePEM returns the authority's certificate for the trust stores inside.
func (a *Authority) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// Leaf returns a certificate for a server whose host is exactly this one. It is shared
// and must not be changed.
func (a *Authority) Leaf(host destination.Host) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.leaves[host]; ok {
		a.recent.MoveToFront(known)
		return known.Value.(*leaf).certificate, nil
	}
	certificate, err := a.sign(host)
	if err != nil {
		return nil, err
	}
	a.leaves[host] = a.recent.PushFront(&leaf{host, certificate})
	if a.recent.Len() > cached {
		oldest := a.recent.Remove(a.recent.Back()).(*leaf)
		delete(a.leaves, oldest.host)
	}
	return certificate, nil
}

func (a *Authority) sign(host destination.Host) (*tls.Certificate, error) {
	if host == (destination.Host{}) {
		return nil, fmt.Errorf("sign a certificate: there is no host")
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	// The subject is the same for all: a host's name may be longer than a common name
	// may be, and nobody has read it for twenty years (RFC 6125, section 6.4.4).
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "Tendril, one server"},
		NotBefore:             a.certificate.NotBefore,
		NotAfter:              a.certificate.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if address, ok := host.Address(); ok {
		template.IPAddresses = []net.IP{address.AsSlice()}
	} else {
		template.DNSNames = []string{host.String()}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, a.leafKey.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %s: %w", host, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey}, nil
}

// serialNumber returns 127 random bits (RFC 5280, section 4.1.2.2, allows 20 bytes and
// wants a positive number).
func serialNumber() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}
