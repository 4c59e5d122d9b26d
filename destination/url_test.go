package destination

import (
	"strings"
	"testing"

	"tendril/fault"
)

// sameAgain checks that the one form is one.
func sameAgain(t interface{ Errorf(string, ...any) }, u URL) {
	again, err := Parse(u.String())
	if err != nil || again != u {
		t.Errorf("%s became %s: %v", u, again, err)
	}
}

func mustParse(t interface {
	Helper()
	Fatal(...any)
}, text string) URL {
	t.Helper()
	u, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestOneForm(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"https://example.com", "https://example.com/"},
		{"HTTPS://EXAMPLE.com:443/A", "https://example.com/A"},
		{"http://example.com:80?q", "http://example.com/?q"},
		{"https://example.com:80/", "https://example.com:80/"},
		{"https://example.com/?", "https://example.com/?"},
		{"https://example.com?a=?/b&c", "https://example.com/?a=?/b&c"},
		{"https://example.com/a#b?c", "https://example.com/a"},
		{"https://example.com#@evil.com/", "https://example.com/"},
		{"https://192.0.2.1/", "https://192.0.2.1/"},
		{"https://[2001:db8::1]:8443/", "https://[2001:db8::1]:8443/"},
		{"https://bücher.example.org/", "https://xn--bcher-kva.example.org/"},
		{"https://XN--BCHER-KVA.example.org/", "https://xn--bcher-kva.example.org/"},
		{"https://r3---sn-x.example.org/", "https://r3---sn-x.example.org/"},
		{"https://1.example.org/", "https://1.example.org/"},
		{"https://0x7f.0.0.0x7g/", "https://0x7f.0.0.0x7g/"}, // a name, if a strange one
		// Paths: RFC 3986, section 6.2.2.
		{"https://h/%7euser/%41%2d%3a%2f", "https://h/~user/A-%3A%2F"},
		{"https://h/a/./b/../c", "https://h/a/c"},
		{"https://h/a/b/..", "https://h/a/"},
		{"https://h/a/.", "https://h/a/"},
		{"https://h/../../x", "https://h/x"},
		{"https://h/%2e%2E/x", "https://h/x"},
		{"https://h//a//..//b", "https://h//a//b"},
		{"https://h/..%2fx", "https://h/..%2Fx"},
		{"https://h/%252e", "https://h/%252e"},
		{`https://h/"<é>^{}|[]` + "`", "https://h/%22%3C%C3%A9%3E%5E%7B%7D%7C%5B%5D%60"},
		{"https://h/a@b:c;d=e,f!g$h&i'j(k)l*m+n", "https://h/a@b:c;d=e,f!g$h&i'j(k)l*m+n"},
		{"https://h/?%7e\"é", "https://h/?%7e%22%C3%A9"}, // kept as it was, but for what has to be escaped
	} {
		u, err := Parse(test.text)
		if err != nil || u.String() != test.want {
			t.Errorf("%q became %q, %v; want %q", test.text, u, err, test.want)
		}
		sameAgain(t, u)
	}
}

func TestParts(t *testing.T) {
	u := mustParse(t, "https://a.example.org:8443/x/../y?z")
	port := u.Authority().Port
	if u.Scheme() != HTTPS || u.Authority().String() != "a.example.org:8443" || port != 8443 || u.Path() != "/y" ||
		u.Target() != "/y?z" || u.Origin() != "https://a.example.org:8443" {
		t.Errorf("%+v", u)
	}
	if text, err := u.MarshalText(); string(text) != u.String() || err != nil {
		t.Errorf("%s, %v", text, err)
	}
	if got := (URL{}).String(); got != "" {
		t.Errorf("no URL is %q", got)
	}
	if mustParse(t, "http://h/").Authority().Port != 80 || mustParse(t, "https://h/").Authority().Port != 443 {
		t.Error("a scheme's port is another one")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ text, says string }{
		{"", "no scheme"},
		{"example.com", "no scheme"},
		{"//example.com/", "no scheme"},
		{"https:/example.com/", "no scheme"},
		{"https:example.com/", "no scheme"},
		{"ftp://example.com/", "neither https nor http"},
		{"http+unix://%2Fsocket/", "neither https nor http"},
		{"://example.com/", "neither https nor http"},
		{"httpſ://example.com/", "neither https nor http"}, // folds to httpS
		{"https://", "host is missing"},
		{"https:///x", "host is missing"},
		{"https://?x", "host is missing"},
		{"https://#", "host is missing"},
		{"https://:443/", "host is missing"},
		// Space, control characters, backslashes: wherever they are.
		{" https://h/", "space or a control character"},
		{"https://h/\t", "space or a control character"},
		{"https://h/a b", "space or a control character"},
		{"https://h/?\r\nHost:x", "space or a control character"},
		{"https://h/#\x00", "space or a control character"},
		{"https://h\x7f/", "space or a control character"},
		{`https:\\h/`, "backslash"},
		{`https://h/\..\x`, "backslash"},
		{`https://h/?\@x`, "backslash"},
		{`https://h/#\@x`, "backslash"},
		{"https://h/\xff", "not UTF-8"},
		// User information.
		{"https://user@h/", "user information"},
		{"https://user:secret@h/", "user information"},
		{"https://h:443@x/", "user information"},
		{"https://@h/", "user information"},
		// Ports.
		{"https://h:/", "port"},
		{"https://h:0/", "port"},
		{"https://h:0443/", "port"},
		{"https://h:+443/", "port"},
		{"https://h:65536/", "port"},
		{"https://h:443x/", "port"},
		{"https://h:٤٤٣/", "port"},
		// Hosts.
		{"https://h./", "ends in a dot"},
		{"https://a..b/", "empty label"},
		{"https://.a/", "empty label"},
		{"https://./", "empty label"},
		{"https://-a/", "hyphen"},
		{"https://a-.b/", "hyphen"},
		{"https://a_b/", "not letters, digits or hyphens"},
		{"https://a*b/", "not letters, digits or hyphens"},
		{"https://a&b/", "not letters, digits or hyphens"},
		{"https://a%2eb/", "percent sign"},
		{"https://%61/", "percent sign"},
		{"https://" + strings.Repeat("a", 64) + "/", "more than 63 bytes"},
		{"https://" + strings.Repeat("a.", 126) + "aa/", "longer than the 253 bytes"},
		{"https://" + strings.Repeat("a.", 1000) + "a/", "longer than 253 bytes"},
		// Forms of IPv4 that parsers read as numbers.
		{"https://0x7f.1/", "ends in a number"},
		{"https://0x7f000001/", "ends in a number"},
		{"https://a.0x/", "ends in a number"},
		{"https://017700000001/", "ends in a number"},
		{"https://2130706433/", "ends in a number"},
		{"https://127.1/", "ends in a number"},
		{"https://127.0.0.01/", "ends in a number"},
		{"https://256.0.0.1/", "ends in a number"},
		{"https://1.2.3.4.5/", "ends in a number"},
		{"https://example.com.127.0.0.1/", "ends in a number"},
		{"https://１２７.0.0.1/", "normal form"},
		// IPv6.
		{"https://::1/", "holds a colon"},
		{"https://[::1/", "not an IPv6 address"},
		{"https://[::1]x/", "port"},
		{"https://[127.0.0.1]/", "not an IPv6 address"},
		{"https://[::1%25eth0]/", "zone"},
		{"https://[fe80::1%eth0]/", "zone"},
		{"https://[::ffff:127.0.0.1]/", "IPv4 address in IPv6 clothes"},
		{"https://[::127.0.0.1]/", "RFC 5952"},
		{"https://[0:0:0:0:0:0:0:1]/", "RFC 5952"},
		{"https://[2001:DB8::1]/", "RFC 5952"},
		{"https://[2001:db8::0001]/", "RFC 5952"},
		// Names beyond ASCII.
		{"https://Bücher.example.org./", "ends in a dot"},
		{"https://BÜCHER.example.org/", "no lower case letter"},
		{"https://example。com/", "no lower case letter, mark or digit"},
		{"https://example．com/", "no lower case letter, mark or digit"},
		{"https://ｅxample.com/", "normal form"},
		{"https://evil.com⁄.example.org/", "no lower case letter, mark or digit"},
		{"https://☃.example.org/", "no lower case letter, mark or digit"},
		{"https://straße.example.org/", "in two ways"},
		{"https://a\u200db.example.org/", "in two ways"},
		{"https://ap\u0130.github.com/", "no lower case letter"},
		{"https://a\u00adb.example.org/", "no lower case letter, mark or digit"},
		{"https://xn--.example.org/", "normal form"},
		{"https://xn--a.example.org/", "normal form"},
		{"https://xn--example-.org/", "normal form"},
		{"https://xn--pokxncvks/", "normal form"},
		{"https://u\u0308.example.org/", "normal form"}, // NFD
		// Escapes.
		{"https://h/%", "escape"},
		{"https://h/%4", "escape"},
		{"https://h/%zz", "escape"},
		{"https://h/?%", "escape"},
		// Size.
		{"https://h/" + strings.Repeat("a", Longest), "longer than 8192 bytes"},
		{"https://h/#" + strings.Repeat("a", Longest), "longer than 8192 bytes"},
		{"https://h/" + strings.Repeat("é", 2000), "longer than 8192 bytes"},
	} {
		u, err := Parse(test.text)
		if !fault.Is(err, fault.Invalid) || u != (URL{}) {
			t.Errorf("%.80q became %s: %v", test.text, u, err)
			continue
		}
		if !strings.Contains(err.Error(), test.says) {
			t.Errorf("%.80q: %v; want %q", test.text, err, test.says)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%.80q: the error repeats a secret: %v", test.text, err)
		}
	}
}

func TestParseAuthority(t *testing.T) {
	for _, text := range []string{"example.com:443", "192.0.2.1:1", "[2001:db8::1]:65535"} {
		if a, err := ParseAuthority(text); err != nil || a.String() != text {
			t.Errorf("%s became %s, %v", text, a, err)
		}
	}
	if a, err := ParseAuthority("EXAMPLE.com:443"); err != nil || a.String() != "example.com:443" {
		t.Errorf("%s, %v", a, err)
	}
	for _, text := range []string{"", "example.com", "example.com:", ":443", "[::1]", "::1:443", "user@example.com:443",
		"example.com:443/", "https://example.com:443", "example.com:443?", "example.com:443#", "example.com: 443",
		"127.1:443", "example.com.:443", "example.com:443:443", `example.com\:443`, "a:1\n", strings.Repeat("a", Longest+1)} {
		if a, err := ParseAuthority(text); !fault.Is(err, fault.Invalid) || a != (Authority{}) {
			t.Errorf("%.80q became %s: %v", text, a, err)
		}
	}
}

func TestHostsThatAreAddresses(t *testing.T) {
	for text, is := range map[string]bool{"192.0.2.1": true, "[2001:db8::1]": true, "example.com": false, "127.0.0.1.example.org": false} {
		host, err := ParseHost(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := host.Address(); ok != is {
			t.Errorf("%s is an address: %t", text, ok)
		}
		if again, err := host.MarshalText(); string(again) != text || err != nil {
			t.Errorf("%s became %s, %v", text, again, err)
		}
	}
	if host, err := ParseHost("a\xff"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a host that is not text became %s: %v", host, err)
	}
	if _, ok := (Host{}).Address(); ok {
		t.Error("no host is an address")
	}
}

// Whatever the bytes are: the one form parses as itself and holds nothing that two
// parsers disagree about.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"https://example.com/", "HTTP://Example.COM:80/a/../%7e?q#f", "https://[2001:db8::1]:8443/%2F", "https://127.1/",
		"https://bücher.example.org/é", "https://xn--bcher-kva.example.org/", "https://user@h/", `https:\\h\x`,
		"https://h/..%2f..%2fetc", "https://a%00b/", "https://evil.com#\\@example.com/", "https://[::ffff:1.2.3.4]/",
		"https://1.2.3.4:65536/", "https://h/%252e%252e/..;/", "https://straße/", "\u0000https://h/",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := Parse(text)
		if err != nil {
			if !fault.Is(err, fault.Invalid) || u != (URL{}) {
				t.Errorf("%v beside %v", u, err)
			}
			return
		}
		sameAgain(t, u)
		form := u.String()
		if strings.ContainsFunc(form, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' || r == '#' }) || len(form) > Longest {
			t.Errorf("%q", form)
		}
		for _, segment := range strings.Split(u.Path(), "/") {
			if segment == "." || segment == ".." {
				t.Errorf("%q has a dot segment", form)
			}
		}
		if host := u.Authority().Host.String(); strings.ContainsAny(host, "@%/?*_ ABCDEFGHIJKLMNOPQRSTUVWXYZ") || strings.HasSuffix(host, ".") || host == "" {
			t.Errorf("the host is %q", host)
		}
	})
}

func FuzzParseAuthority(f *testing.F) {
	for _, seed := range []string{"example.com:443", "[2001:db8::1]:443", "127.1:80", "a@b:1", "::1:1", "bücher.example:443", "a:065", "[::1%25lo]:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAuthority(text)
		if err != nil {
			if !fault.Is(err, fault.Invalid) || a != (Authority{}) {
				t.Errorf("%v beside %v", a, err)
			}
			return
		}
		if again, err := ParseAuthority(a.String()); err != nil || again != a {
			t.Errorf("%s became %s: %v", a, again, err)
		}
		u, err := Parse("https://" + a.String() + "/")
		if err != nil || u.Authority() != a {
			t.Errorf("%s is %s in a URL: %v", a, u, err)
		}
	})
}
