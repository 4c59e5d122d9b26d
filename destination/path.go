package destination

import (
	"slices"
	"strings"
	"unicode/utf8"

	"tendril/fault"
)

// normalPath returns a path in its one form: absolute, escapes in upper case and only
// where they are needed, no dot segments (RFC 3986, section 6.2.2).
func normalPath(path string) (string, error) {
	escaped, err := escape(path, isPath, true)
	if err != nil {
		return "", err
	}
	return removeDotSegments(escaped), nil
}

// escape escapes what is not plain, takes escapes as they are, and refuses a percent
// sign that begins none. With normal, escapes are put in their one form, and an
// escape of a character that never needs one is undone.
func escape(text string, plain func(byte) bool, normal bool) (string, error) {
	const digits = "0123456789ABCDEF"
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '%':
			value, ok := unescape(text[i:])
			if !ok {
				return "", fault.New(fault.Invalid, "a percent sign does not begin an escape").WithHint("write %%25 where a percent sign is meant")
			}
			switch {
			case !normal:
				out.WriteString(text[i : i+3])
			case isUnreserved(value):
				out.WriteByte(value)
			default:
				out.WriteString(strings.ToUpper(text[i : i+3]))
			}
			i += 2
		case plain(c):
			out.WriteByte(c)
		default:
			out.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return out.String(), nil
}

// unescape returns the byte whose escape text begins with.
func unescape(text string) (byte, bool) {
	if len(text) < 3 || text[0] != '%' {
		return 0, false
	}
	high, low := strings.IndexByte(hexDigits, text[1]), strings.IndexByte(hexDigits, text[2])
	if high < 0 || low < 0 {
		return 0, false
	}
	return hexValue(high)<<4 | hexValue(low), true
}

const hexDigits = "0123456789abcdefABCDEF"

func hexValue(position int) byte {
	if position >= 16 {
		position -= 6
	}
	return byte(position)
}

// removeDotSegments is RFC 3986, section 5.2.4, for an absolute path. What would
// climb above the root stays there.
func removeDotSegments(path string) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	var kept []string
	for i, segment := range segments {
		switch segment {
		case ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, segment)
			continue
		}
		if i == len(segments)-1 {
			kept = append(kept, "") // what is meant is the directory
		}
	}
	return "/" + strings.Join(kept, "/")
}

// climbs reports whether some server may take a path for one elsewhere: when it
// undoes escapes of slashes and dots, also of escapes; takes a backslash for a slash;
// drops what follows a semicolon, as servlet containers do, or spaces; or folds
// dots that are not ASCII. Also when it is not text: overlong forms of a dot.
// The path is in its one form, so what is plain has been removed already.
func climbs(path string) bool {
	const rounds = 8 // of escaped escapes; nobody means as many
	for range rounds {
		if !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return true
		}
		segments := strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '\\' })
		if slices.ContainsFunc(segments, isDots) {
			return true
		}
		decoded := unescapeAll(path)
		if decoded == path {
			return false
		}
		path = decoded
	}
	return true
}

// isDots reports whether some server may take a segment for . or ..
func isDots(segment string) bool {
	segment, _, _ = strings.Cut(segment, ";")
	const spaces, dots = " \u00a0\u3000", ".\u2024\u2025\uff0e" // the latter fold to dots (NFKC)
	return strings.ContainsAny(segment, dots) && strings.Trim(segment, spaces+dots) == ""
}

func unescapeAll(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if value, ok := unescape(text[i:]); ok {
			out.WriteByte(value)
			i += 2
			continue
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// The classes of characters are those of RFC 3986, appendix A.

func isUnreserved(c byte) bool {
	return isLower(c) || 'A' <= c && c <= 'Z' || isDigit(c) || strings.IndexByte("-._~", c) >= 0
}

func isPath(c byte) bool { return isUnreserved(c) || strings.IndexByte("!$&'()*+,;=:@/", c) >= 0 }

func isQuery(c byte) bool { return isPath(c) || c == '?' }
