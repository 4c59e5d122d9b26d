package proxy

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// trusted is a file with what the inside trusts.
func (s *site) trusted(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trusted.pem")
	text := append(s.authority.CertificatePEM(), s.upstream.CertificatePEM()...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is missing", name)
	}
	return path
}

func TestCurl(t *testing.T) {
	curl := program(t, "curl")
	s := open(t)
	s.serve(http.HandlerFunc(echo), "api.example", "tunnel.example", "example.com")
	for _, test := range []struct {
		name, want string
		arguments  []string
	}{
		{"HTTP/1.1", "GET api.example", []string{"--http1.1", "https://api.example/"}},
		{"HTTP/2", "GET api.example", []string{"--http2", "https://api.example/"}},
		{"plain text", "GET api.example", []string{"http://api.example/"}},
		{"plain text that may become HTTP/2", "GET api.example", []string{"--http2", "http://api.example/"}},
		{"a tunnel", "GET tunnel.example", []string{"https://tunnel.example/"}},
		{"a body", "POST api.example", []string{"-d", strings.Repeat("x", 2000), "-H", "Expect: 100-continue", "https://api.example/"}},
		{"chunks", "PUT api.example", []string{"--http1.1", "-T", "-", "https://api.example/x"}},
		{"a method that is refused", "the method is PUT, not GET or HEAD", []string{"-T", "-", "https://example.com/"}},
		{"a host that is refused", "CONNECT tunnel failed, response 403", []string{"-S", "https://evil.example/"}},
		{"a host in upper case", "GET api.example", []string{"https://API.example/"}},
		{"a CONNECT of HTTP/1.0", "GET api.example", []string{"--proxy1.0", s.address, "https://api.example/"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), curl, append([]string{"-sS", "--max-time", "20", "--noproxy", "", "--proxy", "http://" + s.address, "--cacert", s.trusted(t)}, test.arguments...)...)
			command.Stdin = strings.NewReader("hello")
			command.Env = []string{"LC_ALL=C"}
			out, err := command.CombinedOutput()
			if !strings.Contains(string(out), test.want) {
				t.Errorf("%s, %v, want %s", out, err, test.want)
			}
		})
	}
}

// Python before 3.12 asks with HTTP/1.0 for a CONNECT; from 3.13 on it is strict about
// certificates.
func TestPython(t *testing.T) {
	python := program(t, "python3")
	s := open(t)
	s.serve(http.HandlerFunc(echo), "api.example", "tunnel.example")
	const script = `
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[1])
context.verify_flags |= ssl.VERIFY_X509_STRICT
for url in sys.argv[2:]:
    print(urllib.request.build_opener(urllib.request.ProxyHandler(), urllib.request.HTTPSHandler(context=context)).open(url, timeout=20).read().decode())
`
	command := exec.CommandContext(t.Context(), python, "-c", script, s.trusted(t), "https://api.example/", "https://tunnel.example/", "http://api.example/")
	command.Env = []string{"http_proxy=http://" + s.address, "https_proxy=http://" + s.address}
	out, err := command.CombinedOutput()
	if err != nil || strings.Count(string(out), "GET ") != 3 {
		t.Errorf("%s, %v", out, err)
	}
}

// openssl says what it thinks of the certificates.
func TestOpenSSL(t *testing.T) {
	openssl := program(t, "openssl")
	s := open(t)
	s.serve(says("hello"), "api.example")
	command := exec.CommandContext(t.Context(), openssl, "s_client", "-proxy", s.address, "-connect", "api.example:443", "-servername", "api.example",
		"-CAfile", s.trusted(t), "-x509_strict", "-verify_return_error", "-verify_hostname", "api.example", "-brief")
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Verification: OK") {
		t.Errorf("%s, %v", out, err)
	}
}
