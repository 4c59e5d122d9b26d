package leak

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A pattern is one way in which a secret may be written, as characters. Each of them may
// itself be written in any of its forms, one like this and the next like that.
type pattern struct {
	name string // of the secret
	text []byte
	wrap bool // a line may break between two characters
}

// patternsOf are the secret as it is, in hexadecimal digits of either case, and in
// base64 of either alphabet at each of the three places where it can lie in what is
// encoded with it.
func patternsOf(name string, secret []byte) []pattern {
	all := []pattern{
		{name, slices.Clone(secret), false},
		{name, hex.AppendEncode(nil, secret), false},
		{name, []byte(strings.ToUpper(hex.EncodeToString(secret))), false},
	}
	for ahead := range 3 {
		// The first and the last digit may have bits of what is beside the secret.
		first, end := (8*ahead+5)/6, 8*(ahead+len(secret))/6
		whole := append(make([]byte, ahead), secret...)
		std := base64.RawStdEncoding.AppendEncode(nil, whole)[first:end]
		all = append(all, pattern{name, std, true})
		if url := base64.RawURLEncoding.AppendEncode(nil, whole)[first:end]; string(url) != string(std) {
			all = append(all, pattern{name, url, true})
		}
		clear(whole)
	}
	return all
}

// longest is how many bytes the pattern may take.
func (p pattern) longest(forms *[256][]form) int {
	n := 0
	for _, c := range p.text {
		n += longestOf(forms[c])
		if p.wrap {
			n += longestOf(breaks)
		}
	}
	return n
}

// form is one way to write a character: at each place one of two bytes, which differ in
// case or not at all.
type form struct{ lower, upper string }

func (f *form) at(place int, c byte) bool { return f.lower[place] == c || f.upper[place] == c }

// exact are the forms of each byte: as it is; escaped in a URL (RFC 3986), in JSON
// (RFC 8259), in strings of C and many others, and in HTML by its number, which may have
// zeros before it and no semicolon after it, or by its names.
var exact = sync.OnceValue(func() *[256][]form {
	all := new([256][]form)
	for i := range all {
		own := []form{{string([]byte{byte(i)}), string([]byte{byte(i)})}}
		escapes := slices.Clone(names[byte(i)])
		for _, escape := range []string{"%%%02x", `\u00%02x`, `\x%02x`} {
			escapes = append(escapes, fmt.Sprintf(escape, i))
		}
		for digits := 1; digits <= mostDigits; digits++ {
			for _, reference := range []string{fmt.Sprintf("&#%0*d", digits, i), fmt.Sprintf("&#x%0*x", digits, i)} {
				escapes = append(escapes, reference, reference+";")
			}
		}
		for _, escape := range escapes {
			if f := (form{escape, strings.ToUpper(escape)}); !slices.Contains(own, f) {
				own = append(own, f)
			}
		}
		all[i] = own
	}
	return all
})

// folded are the forms where the case of a letter makes no difference: the exact ones of
// both.
var folded = sync.OnceValue(func() *[256][]form {
	all := *exact()
	for c := 'a'; c <= 'z'; c++ {
		both := slices.Concat(all[c], all[c-'a'+'A'])
		all[c], all[c-'a'+'A'] = both, both
	}
	return &all
})

// mostDigits is how many digits the number of a character has in HTML at most. There may
// be any number of zeros, and a bound of what is kept back needs one of them.
const mostDigits = 7

// names are the escapes of single characters: of JSON, of a query, and the named character
// references of HTML, some of which need no semicolon. Those of the hyphen stand for
// characters that look like one.
var names = map[byte][]string{
	' ': {"+"}, '!': {"&excl;"}, '"': {`\"`, "&quot;", "&quot"}, '#': {"&num;"}, '$': {"&dollar;"}, '%': {"&percnt;"},
	'&': {"&amp;", "&amp"}, '\'': {`\'`, "&apos;"}, '(': {"&lpar;"}, ')': {"&rpar;"}, '*': {"&ast;", "&midast;"},
	'+': {"&plus;"}, ',': {"&comma;"}, '-': {"&hyphen;", "&dash;", "&minus;"}, '.': {"&period;"}, '/': {`\/`, "&sol;"},
	':': {"&colon;"}, ';': {"&semi;"}, '<': {"&lt;", "&lt"}, '=': {"&equals;"}, '>': {"&gt;", "&gt"}, '?': {"&quest;"},
	'@': {"&commat;"}, '[': {"&lsqb;", "&lbrack;"}, '\\': {`\\`, "&bsol;"}, ']': {"&rsqb;", "&rbrack;"}, '^': {"&Hat;"},
	'_': {"&lowbar;", "&UnderBar;"}, '`': {"&grave;", "&DiacriticalGrave;"}, '{': {"&lcub;", "&lbrace;"},
	'|': {"&verbar;", "&vert;", "&VerticalLine;"}, '}': {"&rcub;", "&rbrace;"},
}

// breaks are the ways to write a line break, as MIME has one after 76 digits of base64
// (RFC 2045) and PEM after 64 (RFC 7468).
var breaks = []form{{"\n", "\n"}, {"\r\n", "\r\n"}, {`\n`, `\n`}, {`\r\n`, `\r\n`}}

func longestOf(forms []form) int {
	n := 0
	for _, f := range forms {
		n = max(n, len(f.lower))
	}
	return n
}
