package leak

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tendril/credential"
	"tendril/fault"
)

// naive finds the same with a regular expression that is written from the documentation.
func naive(secret string) *regexp.Regexp {
	character := func(c byte) string {
		ways := []string{regexp.QuoteMeta(string([]byte{c}))}
		if c >= 0x80 {
			ways[0] = fmt.Sprintf(`\x{%x}`, c)
		}
		for _, escape := range []string{"%%%02x", `\\u00%02x`, `\\x%02x`} {
			ways = append(ways, "(?i:"+fmt.Sprintf(escape, c)+")")
		}
		for base, number := range map[string]string{"": fmt.Sprintf("%d", c), "x": fmt.Sprintf("%x", c)} {
			ways = append(ways, fmt.Sprintf("(?i:&#%s0{0,%d}%s;?)", base, 7-len(number), number))
		}
		switch c {
		case '/', '"', '\\', '\'':
			ways = append(ways, `\\`+regexp.QuoteMeta(string(rune(c))))
		case ' ':
			ways = append(ways, `\+`)
		}
		for _, name := range referenceNames(c) {
			ways = append(ways, "&"+name, "&"+strings.ToUpper(name))
		}
		return "(?:" + strings.Join(ways, "|") + ")"
	}
	spelled := func(text, between string) string {
		var out []string
		for i := range len(text) {
			out = append(out, character(text[i]))
		}
		return strings.Join(out, between)
	}
	digits := hex.EncodeToString([]byte(secret))
	ways := []string{spelled(secret, ""), spelled(digits, ""), spelled(strings.ToUpper(digits), "")}
	for ahead := range 3 {
		for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			// Digits that differ with what is beside the secret are not of it alone.
			one := alphabet.EncodeToString([]byte(strings.Repeat("\x00", ahead) + secret + "\x00\x00"))
			other := alphabet.EncodeToString([]byte(strings.Repeat("\xff", ahead) + secret + "\xff\xff"))
			first, end := 0, 0
			for one[first] != other[first] {
				first++
			}
			for end = first; end < len(one) && one[end] == other[end]; end++ {
			}
			ways = append(ways, spelled(one[first:end], `(?:\r?\n|(?:\\r)?\\n)?`))
		}
	}
	return regexp.MustCompile("(?s:" + strings.Join(ways, "|") + ")")
}

// latin has a character for each byte, because regexp reads characters.
func latin(text []byte) string {
	runes := make([]rune, len(text))
	for i, c := range text {
		runes[i] = rune(c)
	}
	return string(runes)
}

func agrees(t tester, secret string, text []byte, next func() int) {
	t.Helper()
	s := scannerOf(t, secret)
	oracle := naive(secret)
	leaks := oracle.MatchString(latin(text))
	out, told, err := through(s, text, next)
	switch {
	case !leaks:
		if err != nil || len(told) > 0 || !bytes.Equal(out, text) {
			t.Fatalf("%q is not in %q: %q, %v", secret, text, out, err)
		}
	case !fault.Is(err, fault.Denied) || len(told) != 1:
		t.Fatalf("%q is in %q: %v, %q", secret, text, err, told)
	case !bytes.HasPrefix(text, out):
		t.Fatalf("%q became %q", text, out)
	default:
		end := 0
		for !oracle.MatchString(latin(text[:end])) {
			end++
		}
		start := len([]rune(latin(text)[:oracle.FindStringIndex(latin(text[:end]))[0]]))
		if len(out) > start || len(out) < end-s.longest {
			t.Fatalf("%q in %q, which begins at %d: %q came through", secret, text, start, out)
		}
	}
}

func TestAgreesWithTheOracle(t *testing.T) {
	secrets := rapid.OneOf(rapid.StringMatching(`[ab%41/ &"+\\]{8,12}`), rapid.StringMatching(`[!-~]{8,16}`), rapid.StringMatching(`(ab){4,6}`))
	names := make([]string, 0, len(encodings))
	for name := range encodings {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		secret := "x" + secrets.Draw(t, "secret") + "x"
		var text []byte
		for range rapid.IntRange(1, 6).Draw(t, "pieces") {
			written := encodings[rapid.SampledFrom(names).Draw(t, "encoding")](secret)
			from := rapid.IntRange(0, len(written)).Draw(t, "from")
			to := rapid.IntRange(from, len(written)).Draw(t, "to")
			if rapid.IntRange(0, 9).Draw(t, "all") == 0 {
				from, to = 0, len(written)
			}
			text = append(text, written[from:to]...)
			text = append(text, rapid.StringMatching(`[\nab%x]{0,2}`).Draw(t, "between")...)
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 5).Draw(t, "sizes")
		at := 0
		agrees(t, secret, text, func() int { at++; return sizes[at%len(sizes)] })
	})
}

func FuzzScan(f *testing.F) {
	for name, encode := range encodings {
		f.Add("secret+/"+name[:1], []byte("a "+encode("secret+/"+name[:1])), uint8(3))
	}
	f.Add("%61%61%61", []byte("%61%61%61%2561%2561"), uint8(1))
	f.Add("aaaaaaaa", bytes.Repeat([]byte("YWFh\n"), 6), uint8(2))
	f.Fuzz(func(t *testing.T, secret string, text []byte, size uint8) {
		if _, err := credential.NewSecret([]byte(secret)); err != nil || len(secret) > 20 || len(text) > 400 {
			return
		}
		agrees(t, secret, text, func() int { return 1 + int(size) })
	})
}
