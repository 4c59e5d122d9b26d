package pollen

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tendril/fault"
)

func TestTokenForm(t *testing.T) {
	form := regexp.MustCompile(`\Atendril_pollen_[0-9A-Za-z]{49}\z`)
	seen := map[string]bool{}
	for range 1000 {
		token := NewToken()
		text := token.Reveal()
		if !form.MatchString(text) {
			t.Fatalf("a scanner would not find %q", text)
		}
		if seen[text] {
			t.Fatal("a token came twice")
		}
		seen[text] = true
		again, err := ParseToken(text)
		if err != nil {
			t.Fatal(err)
		}
		if again.Reveal() != text || !again.Digest().Equal(token.Digest()) {
			t.Fatal("the token changed on its way")
		}
		if token.Digest() != sha256.Sum256([]byte(text)) {
			t.Fatal("the digest is not the SHA-256 of the text")
		}
	}
}

// The checksum was computed with Python's zlib.crc32, so that what another program
// makes of docs/identities.md agrees.
func TestTokenVectors(t *testing.T) {
	for _, text := range []string{
		"tendril_pollen_00000000000000000000000000000000000000000004WqzvA",
		"tendril_pollen_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp11hOPXg", // 2²⁵⁶−1
	} {
		if _, err := ParseToken(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestTokenParseRefuses(t *testing.T) {
	good := NewToken().Reveal()
	past := tokenPrefix + strings.Repeat("z", secretDigits) // above 2²⁵⁶, with a right checksum
	past += checksum(past)
	bad := []string{
		"", "tendril_pollen_", good[1:], good[:len(good)-1], good + "0", good + "\n", " " + good, good + "\x00",
		strings.ToUpper(good), strings.Replace(good, "tendril", "Tendril", 1), strings.Replace(good, "_", "-", 1),
		strings.Repeat(good, 1000), past, "botanist",
	}
	for _, text := range bad {
		token, err := ParseToken(text)
		if !fault.Is(err, fault.Denied) || token.Reveal() != "" {
			t.Errorf("%.80q: %v", text, err)
		}
		if err != nil && strings.Contains(fmt.Sprintf("%+v", *err.(*fault.Error)), good[len(tokenPrefix)+2:len(tokenPrefix)+20]) {
			t.Error("the refusal repeats what was presented")
		}
	}
}

// Every slip of one character, and every swap of two neighbours, is found.
func TestTokenChecksumFindsSlips(t *testing.T) {
	good := NewToken().Reveal()
	for i := len(tokenPrefix); i < len(good); i++ {
		for _, c := range []byte(digits) {
			if c == good[i] {
				continue
			}
			if slip := good[:i] + string(c) + good[i+1:]; isToken(slip) {
				t.Errorf("%q was taken for %q", slip, good)
			}
		}
		if i+1 < len(good) && good[i] != good[i+1] {
			if slip := good[:i] + good[i+1:i+2] + good[i:i+1] + good[i+2:]; isToken(slip) {
				t.Errorf("%q was taken for %q", slip, good)
			}
		}
	}
}

func TestBase62RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SliceOfN(rapid.Byte(), secretBytes, secretBytes).Draw(t, "secret")
		text := base62(secret, secretDigits)
		back, ok := number(text)
		if !ok || back.Cmp(new(big.Int).SetBytes(secret)) != 0 || len(text) != secretDigits {
			t.Fatalf("%x became %q", secret, text)
		}
		text = tokenPrefix + text
		if token, err := ParseToken(text + checksum(text)); err != nil || token.Reveal() != text+checksum(text) {
			t.Fatal(err)
		}
	})
	if got := base62(bytes.Repeat([]byte{0xff}, secretBytes), secretDigits); len(got) != secretDigits {
		t.Errorf("the largest secret is %q", got)
	}
}

func TestNothingPrintsAToken(t *testing.T) {
	token := NewToken()
	secret := token.Reveal()[len(tokenPrefix):]
	type holder struct {
		Token  Token
		hidden Token
		Deep   []map[string]*Token
	}
	held := holder{token, token, []map[string]*Token{{"a": &token}}}
	check := func(how, text string) {
		t.Helper()
		for _, form := range []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))), fmt.Sprint([]byte(secret))} {
			if strings.Contains(text, form[:len(form)/2]) {
				t.Errorf("%s shows the token: %s", how, text)
			}
		}
	}
	for _, value := range []any{token, &token, held, &held, []Token{token}, map[string]Token{"a": token}, any(token), fault.New(fault.Denied, "no: %v", token)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%T", "%p", "%U", "%c", "%t", "%!"} {
			check(verb, fmt.Sprintf(verb, value))
		}
		check("Println", fmt.Sprintln(value))
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("call", "token", value)
		slog.New(slog.NewTextHandler(&log, nil)).Info("call", "token", value)
		check("slog", log.String())
	}
	for _, value := range []any{token, &token, held, []Token{token}, map[string]any{"a": token}} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		check("json", string(text))
	}
	check("String", token.String()+token.GoString())
	if got := fmt.Sprint(token); got != "tendril_pollen_(redacted)" {
		t.Errorf("a reader cannot see what was left out: %s", got)
	}
	if (Token{}).Reveal() != "" {
		t.Error("the zero Token is a token")
	}
}

func TestDigestEqual(t *testing.T) {
	a := NewToken().Digest()
	if !a.Equal(a) {
		t.Error("a digest differs from itself")
	}
	for i := range a {
		b := a
		b[i] ^= 1
		if a.Equal(b) {
			t.Errorf("byte %d is not compared", i)
		}
	}
	if got := (Digest{0xab}).String(); got != "ab"+strings.Repeat("0", 62) {
		t.Errorf("got %s", got)
	}
}

func FuzzParseToken(f *testing.F) {
	good := tokenPrefix + base62(make([]byte, secretBytes), secretDigits)
	good += checksum(good)
	for _, seed := range []string{"", good, good[1:], good + "\n", tokenPrefix, strings.Repeat("z", tokenLength)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		if err != nil {
			if !fault.Is(err, fault.Denied) || token.Reveal() != "" {
				t.Errorf("%q: %v", s, err)
			}
			if len(s) > 20 && strings.Contains(err.Error(), s) {
				t.Error("the refusal repeats what was presented")
			}
			return
		}
		if token.Reveal() != s || len(s) != tokenLength {
			t.Errorf("%q became %q", s, token.Reveal())
		}
	})
}
