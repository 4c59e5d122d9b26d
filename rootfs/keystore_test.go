//go:build linux

package rootfs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Java's own tool finds the certificate in the store of a view, and the checksum right.
func TestJavaReadsTheKeyStore(t *testing.T) {
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		t.Skip("keytool is not here")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := HostView(nil, sprout)
	if err != nil {
		t.Fatal(err)
	}
	v = v.Trusting(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	store := filepath.Join(t.TempDir(), "cacerts")
	if err := os.WriteFile(store, v.Files[javaTrustStore], 0o600); err != nil {
		t.Fatal(err)
	}
	list := func(password string) (string, error) {
		out, err := exec.Command(keytool, "-J-Duser.language=en", "-list", "-keystore", store, "-storepass", password).CombinedOutput()
		return string(out), err
	}
	out, err := list(keyStorePassword)
	fingerprint := strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(der)), " ", ":")
	if err != nil || !strings.Contains(out, "contains 1 entry") || !strings.Contains(out, "trustedCertEntry") || !strings.Contains(out, fingerprint) {
		t.Errorf("%v; keytool said\n%s", err, out)
	}
	if out, err := list("another"); err == nil {
		t.Errorf("keytool does not look at the checksum, so this test says nothing about it:\n%s", out)
	}
}
