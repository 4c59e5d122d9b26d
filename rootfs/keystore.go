//go:build linux

package rootfs

import (
	"crypto/sha1"
	"encoding/binary"
	"unicode/utf16"
)

// javaTrustStore is where Debian's Java looks for the certificates that it trusts; any
// other has to be told.
const javaTrustStore = "/etc/ssl/certs/java/cacerts"

// keyStorePassword is the one that Java's tools assume. It keeps nothing secret: the store
// holds a certificate only, and Java reads it without any.
const keyStorePassword = "changeit"

// keyStore returns a Java key store that trusts one certificate, in DER: Java reads no PEM
// as a store. The format is JKS, as OpenJDK's sun.security.provider.JavaKeyStore describes
// it (engineStore). Java also reads it where its default is PKCS #12, unless its file
// java.security says otherwise (keystore.type.compat).
func keyStore(certificate []byte) []byte {
	const (
		magic, version, entries = 0xFEEDFEED, 2, 1
		trustedCertificate      = 2 // the other kind of entry is a private key
		created                 = 0 // milliseconds since 1970; nobody decides by it
	)
	text := func(b []byte, s string) []byte { // as DataOutput.writeUTF does
		return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
	}
	b := binary.BigEndian.AppendUint32(nil, magic)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, entries)
	b = binary.BigEndian.AppendUint32(b, trustedCertificate)
	b = text(b, "tendril")
	b = binary.BigEndian.AppendUint64(b, created)
	b = text(b, "X.509")
	b = binary.BigEndian.AppendUint32(b, uint32(len(certificate)))
	b = append(b, certificate...)

	// SHA-1 is the format's; whoever can change this file can also compute it.
	sum := sha1.New()
	for _, unit := range utf16.Encode([]rune(keyStorePassword)) {
		sum.Write(binary.BigEndian.AppendUint16(nil, unit))
	}
	sum.Write([]byte("Mighty Aphrodite"))
	sum.Write(b)
	return sum.Sum(b)
}
