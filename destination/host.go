package destination

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"tendril/fault"
)

// Host is a host in its one form: a name in lower case ASCII (letters, digits and
// hyphens; an internationalised label as its A-label), an IPv4 address as four
// decimal numbers, or an IPv6 address in brackets as RFC 5952 writes it. The zero
// Host is none. Hosts can be compared with ==.
type Host struct{ text string }

func (h Host) String() string { return h.text }

// MarshalText returns the host's one form.
func (h Host) MarshalText() ([]byte, error) { return []byte(h.text), nil }

// Address returns the address that the host is, if it is one and not a name.
func (h Host) Address() (netip.Addr, bool) {
	address, err := netip.ParseAddr(strings.Trim(h.text, "[]"))
	return address, err == nil
}

const (
	longestName  = 253 // of the text of a name, RFC 1035 section 2.3.4
	longestLabel = 63
)

// ParseHost returns a host in its one form. It refuses, as a fault of the kind
// invalid, every spelling of which two parsers may make two hosts. Upper case ASCII
// is lowered; nothing else is folded.
func ParseHost(text string) (Host, error) {
	switch {
	case text == "":
		return Host{}, fault.New(fault.Invalid, "the host is missing")
	case len(text) > 4*longestName: // no name of that length has an ASCII form that fits
		return Host{}, fault.New(fault.Invalid, "the host is longer than %d bytes", longestName)
	case text[0] == '[':
		return parseIPv6(text)
	case strings.Contains(text, ":"):
		return Host{}, hostFault(text, "holds a colon").WithHint("an IPv6 address stands in brackets")
	case strings.Contains(text, "%"):
		return Host{}, hostFault(text, "holds a percent sign").WithHint("write the name itself")
	}
	name, err := asciiName(lowerASCII(text))
	if err != nil {
		return Host{}, err
	}
	if len(name) > longestName {
		return Host{}, hostFault(text, "is longer than the %d bytes of a name", longestName)
	}
	labels := strings.Split(name, ".")
	for i, label := range labels {
		if problem := labelProblem(label, i == len(labels)-1); problem != "" {
			return Host{}, hostFault(text, "%s", problem)
		}
	}
	if isNumber(labels[len(labels)-1]) {
		// So says the URL standard (WHATWG, "ends in a number checker"); older
		// parsers (inet_aton) also read 127.1, 0177.0.0.1 and 0x7f000001.
		if address, err := netip.ParseAddr(name); err != nil || address.String() != name {
			return Host{}, hostFault(text, "ends in a number and is not an IPv4 address").WithHint("write four decimal numbers, as in 192.0.2.1")
		}
	}
	return Host{name}, nil
}

func hostFault(text, format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "the host %q "+format, append([]any{clip(text)}, args...)...)
}

func parseIPv6(text string) (Host, error) {
	inner, closed := strings.CutSuffix(text[1:], "]")
	address, err := netip.ParseAddr(inner)
	switch {
	case !closed || err != nil || !address.Is6():
		return Host{}, hostFault(text, "is not an IPv6 address in brackets")
	case address.Zone() != "":
		return Host{}, hostFault(text, "names a zone, which means something on one host only")
	case address.Is4In6():
		return Host{}, hostFault(text, "is an IPv4 address in IPv6 clothes").WithHint("write %s", address.Unmap())
	case address.String() != inner:
		return Host{}, hostFault(text, "is not in the form of RFC 5952").WithHint("write [%s]", address)
	}
	return Host{text}, nil
}

// profile takes a name as it is or refuses it: nothing is mapped, so no two
// spellings become one name (IDNA2008, RFC 5891 section 4.2, with the rules for
// right-to-left names of RFC 5893).
var profile = idna.New(idna.ValidateForRegistration(), idna.CheckHyphens(false))

// deviations are the characters that IDNA2003 maps away and IDNA2008 keeps: with
// them, two clients look up two names (UTS 46, section 7).
const deviations = "ßς\u200c\u200d"

// isSign reports whether a character beyond ASCII is none that IDNA2008 permits
// everywhere (RFC 5892, section 2.1). Lookup rules (UTS 46) are laxer: they know signs
// that look like a slash or a dot.
func isSign(r rune) bool {
	return r >= utf8.RuneSelf && !unicode.In(r, unicode.Ll, unicode.Lo, unicode.Lm, unicode.Mn, unicode.Mc, unicode.Nd)
}

// asciiName returns the ASCII form of a name that is in lower case.
func asciiName(name string) (string, error) {
	if isASCII(name) && !strings.HasPrefix(name, "xn--") && !strings.Contains(name, ".xn--") {
		return name, nil
	}
	switch {
	case !utf8.ValidString(name):
		return "", hostFault(name, "is not UTF-8")
	case strings.ContainsAny(name, deviations):
		return "", hostFault(name, "holds a character that is looked up in two ways").WithHint("write the A-label (xn--…) that is meant")
	case strings.ContainsFunc(name, isSign):
		return "", hostFault(name, "holds a character that is no lower case letter, mark or digit").WithHint("write the A-label (xn--…) that is meant")
	}
	converted, err := profile.ToASCII(name)
	if err != nil {
		return "", hostFault(name, "is not an internationalised name in its normal form").WithHint("write it in lower case, or as A-labels (xn--…)")
	}
	return converted, nil
}

// labelProblem says why a label of a name is none: RFC 1123 section 2.1, and nothing
// beyond it.
func labelProblem(label string, last bool) string {
	switch {
	case label == "" && last:
		return "ends in a dot"
	case label == "":
		return "has an empty label"
	case len(label) > longestLabel:
		return "has a label of more than 63 bytes"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "has a label that begins or ends with a hyphen"
	}
	for _, c := range []byte(label) {
		if !isLower(c) && !isDigit(c) && c != '-' {
			return "holds characters that are not letters, digits or hyphens"
		}
	}
	return ""
}

// isNumber reports whether some parser takes a label for a number.
func isNumber(label string) bool {
	hex, prefixed := strings.CutPrefix(label, "0x")
	if prefixed {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// Port is a TCP port. The zero Port is none.
type Port uint16

func (p Port) String() string { return strconv.Itoa(int(p)) }

// UnmarshalText takes a port in digits.
func (p *Port) UnmarshalText(text []byte) error {
	port, err := parsePort(string(text))
	if err == nil {
		*p = port
	}
	return err
}

// parsePort takes digits alone, without a superfluous zero: parsers differ about the
// rest.
func parsePort(text string) (Port, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || text[0] == '0' {
		return 0, fault.New(fault.Invalid, "the port is not a number from 1 to 65535").WithHint("write it in digits, or leave it out")
	}
	return Port(n), nil
}

// Authority is where a connection goes. The zero Authority is nowhere.
type Authority struct {
	Host Host
	Port Port
}

func (a Authority) String() string { return a.Host.String() + ":" + a.Port.String() }

// ParseAuthority takes host:port, as the target of a CONNECT request has it (RFC
// 9110, section 9.3.6): both have to be there.
func ParseAuthority(text string) (Authority, error) {
	if err := checkText("authority", text); err != nil {
		return Authority{}, err
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 || strings.HasSuffix(text, "]") {
		return Authority{}, fault.New(fault.Invalid, "the authority has no port").WithHint("write host:port")
	}
	return parseAuthority(text, 0)
}

// parseAuthority parses what stands between the slashes of a URL. standard is the
// port if none is written.
func parseAuthority(text string, standard Port) (Authority, error) {
	if strings.Contains(text, "@") {
		// What stands before it may be a password, so it is not repeated.
		return Authority{}, fault.New(fault.Invalid, "the authority holds user information (@)").WithHint("remove it; credentials are attached outside")
	}
	host, port := text, standard
	if colon := strings.LastIndexByte(text, ':'); colon >= 0 && !strings.HasSuffix(text, "]") {
		var err error
		if port, err = parsePort(text[colon+1:]); err != nil {
			return Authority{}, err
		}
		host = text[:colon]
	}
	parsed, err := ParseHost(host)
	if err != nil {
		return Authority{}, err
	}
	return Authority{parsed, port}, nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// lowerASCII leaves everything beyond ASCII as it is: strings.ToLower would make
// another name of U+0130 and U+212A.
func lowerASCII(s string) string {
	lowered := []byte(s)
	for i, c := range lowered {
		if 'A' <= c && c <= 'Z' {
			lowered[i] = c + 'a' - 'A'
		}
	}
	return string(lowered)
}

// clip bounds what an error repeats.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
