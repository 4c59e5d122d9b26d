//go:build linux

package source

import (
	"bytes"
	"io"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"tendril/credential"
	"tendril/fault"
)

// The most that the files of an age source may have, in bytes.
const (
	longestIdentity = 16 << 10
	longestSealed   = 64 << 10
)

// fromAge decrypts a file with an identity. What age says of a failure is not repeated:
// it may quote the identity.
func fromAge(path, identity string) (credential.Secret, error) {
	key, err := readFile(identity, toRead, longestIdentity)
	if err != nil {
		return credential.Secret{}, fault.New(fault.Unavailable, "the identity %s: %w", identity, err)
	}
	defer clear(key)
	identities, err := age.ParseIdentities(bytes.NewReader(key))
	if err != nil {
		return credential.Secret{}, fault.New(fault.Unavailable, "the identity %s is not one of age", identity).
			WithHint("it is what age-keygen writes; SSH keys, plugins and passphrases are not supported")
	}
	sealed, err := readFile(path, toWrite, longestSealed)
	if err != nil {
		return credential.Secret{}, err
	}
	var from io.Reader = bytes.NewReader(sealed)
	if strings.HasPrefix(string(sealed), armor.Header) {
		from = armor.NewReader(from)
	}
	opened, err := age.Decrypt(from, identities...)
	if err != nil {
		return credential.Secret{}, fault.New(fault.Unavailable, "it cannot be decrypted with the identity %s", identity).
			WithHint("encrypt it for that identity: age -r RECIPIENT -o FILE")
	}
	secret := make([]byte, credential.LongestSecret+3)
	switch n, err := io.ReadFull(opened, secret); err {
	case io.EOF, io.ErrUnexpectedEOF:
		return credential.NewSecret(withoutLineEnd(secret[:n]))
	case nil:
		clear(secret)
		return credential.Secret{}, fault.New(fault.Unavailable, "it holds more than %d bytes", credential.LongestSecret)
	default:
		clear(secret)
		return credential.Secret{}, fault.New(fault.Unavailable, "it was changed after it was encrypted, or is not whole")
	}
}
