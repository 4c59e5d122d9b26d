package pollen

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"math/big"
	"strings"

	"tendril/fault"
)

// A token is the prefix, 256 random bits and a checksum over both:
//
//	tendril_pollen_ 43 digits 6 digits
//
// Digits are of base 62 (0-9, A-Z, a-z), the most significant first, of fixed width.
// The checksum is the CRC-32 of IEEE 802.3 over everything before it. It finds slips of
// the hand and false alarms of a scanner; it proves nothing.
const (
	tokenPrefix    = "tendril_pollen_"
	secretBytes    = 32
	secretDigits   = 43 // 62⁴³ > 2²⁵⁶ > 62⁴²
	checksumDigits = 6  // 62⁶ > 2³²
	tokenLength    = len(tokenPrefix) + secretDigits + checksumDigits
)

// Token is what a Pollinator presents. It cannot be compared with ==, and nothing
// prints it by accident: the text is in a closure, because fmt shows the unexported
// fields of a struct around a Token without asking its methods.
type Token struct{ reveal func() string }

// NewToken returns a token that nobody has seen.
func NewToken() Token {
	secret := make([]byte, secretBytes)
	rand.Read(secret) // never fails: it ends the program instead
	text := tokenPrefix + base62(secret, secretDigits)
	return token(text + checksum(text))
}

// ParseToken returns the token with exactly that text. What is none is a fault of the
// kind denied, which does not repeat it.
func ParseToken(s string) (Token, error) {
	if isToken(s) {
		return token(strings.Clone(s)), nil
	}
	refused := fault.New(fault.Denied, "what was presented is not the token of a Pollen").
		WithRule("a token is exactly as it was issued")
	if isToken(strings.TrimSpace(s)) {
		return Token{}, refused.WithHint("white space surrounds it: remove that")
	}
	return Token{}, refused.WithHint("a token is %q and %d letters and digits; check that it was copied whole", tokenPrefix, secretDigits+checksumDigits)
}

func isToken(s string) bool {
	if len(s) != tokenLength || !strings.HasPrefix(s, tokenPrefix) {
		return false
	}
	text, sum := s[:tokenLength-checksumDigits], s[tokenLength-checksumDigits:]
	secret, ok := number(text[len(tokenPrefix):])
	// 62⁴³ is a little more than 2²⁵⁶: digits beyond it are of no token.
	return ok && secret.BitLen() <= 8*secretBytes && sum == checksum(text)
}

func token(text string) Token { return Token{func() string { return text }} }

// Reveal returns the token's text. It is the only way to it.
func (t Token) Reveal() string {
	if t.reveal == nil {
		return ""
	}
	return t.reveal()
}

// Digest is what is kept of the token: 256 random bits need no salt and no slow hash.
func (t Token) Digest() Digest { return sha256.Sum256([]byte(t.Reveal())) }

const redacted = tokenPrefix + "(redacted)"

// String does not show the token.
func (Token) String() string { return redacted }

// GoString does not show the token.
func (Token) GoString() string { return redacted }

// Format does not show the token, whatever the verb.
func (Token) Format(to fmt.State, _ rune) { io.WriteString(to, redacted) }

// MarshalText does not show the token, in JSON and elsewhere.
func (Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Digest is the SHA-256 of a token's text.
type Digest [sha256.Size]byte

// Equal compares in constant time.
func (d Digest) Equal(other Digest) bool { return subtle.ConstantTimeCompare(d[:], other[:]) == 1 }

// String is the digest in lower case hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// base62 writes a big-endian number in digits of fixed width, which must suffice.
func base62(number []byte, width int) string {
	text := make([]byte, width)
	n, base, digit := new(big.Int).SetBytes(number), big.NewInt(int64(len(digits))), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		text[i] = digits[digit.Int64()]
	}
	return string(text)
}

func number(text string) (*big.Int, bool) {
	n, base := new(big.Int), big.NewInt(int64(len(digits)))
	for _, c := range []byte(text) {
		digit := strings.IndexByte(digits, c)
		if digit < 0 {
			return nil, false
		}
		n.Mul(n, base).Add(n, big.NewInt(int64(digit)))
	}
	return n, true
}

func checksum(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	return base62([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}, checksumDigits)
}
