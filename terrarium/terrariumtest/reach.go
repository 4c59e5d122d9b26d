//go:build linux

package terrariumtest

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"tendril/probe"
	"tendril/stoma"
	"tendril/terrarium"
)

// testListeners: a connection to a port that was asked for comes out and is answered, byte
// for byte and in both directions, half-closed as TCP is; any other port is closed. What
// one Terrarium listens on, another cannot reach.
func testListeners(t *testing.T, g *ground) {
	g.needs(t, "Listeners")
	var served atomic.Int64
	echo := terrarium.Listener{Name: "echo", Port: 3128, Serve: func(conn *stoma.Stream) {
		served.Add(1)
		all, err := io.ReadAll(io.LimitReader(conn, 1<<20))
		if err != nil {
			t.Errorf("reading what came out: %v", err)
		}
		conn.Write(bytes.ToUpper(all))
		conn.CloseWrite()
		io.Copy(io.Discard, conn)
	}}
	b := g.open(t, func(s *terrarium.Spec) { s.Listeners = []terrarium.Listener{echo} })
	if e := b.run(t, "bash", "-c", dial+`dial 3128 hello`); e.stdout != "HELLO" {
		t.Errorf("a connection to the listener: %s", e)
	}
	if e := b.run(t, "bash", "-c", dial+`for i in 1 2 3 4 5 6 7 8; do dial 3128 hello & done; wait`); strings.Count(e.stdout, "HELLO") != 8 {
		t.Errorf("eight connections at once: %s", e)
	}
	if served.Load() != 9 {
		t.Errorf("%d connections came out", served.Load())
	}
	if e := b.run(t, "bash", "-c", dial+`dial 3129 hello`); e.ok() {
		t.Errorf("a port that nobody asked for: %s", e)
	}
	t.Run("another Terrarium", func(t *testing.T) {
		g.sealed(t, probe.Network)
		other := g.open(t, nil)
		if e := other.run(t, "bash", "-c", dial+`dial 3128 hello`); e.ok() {
			t.Errorf("another Terrarium reached the listener: %s", e)
		}
	})
}

// dial defines a function that sends a word to a port of the loopback, ends its half, and
// prints the answer.
const dial = `dial() { perl -e '
use Socket; my ($port, $word) = @ARGV;
socket(S, PF_INET, SOCK_STREAM, 0) or exit 8;
connect(S, sockaddr_in($port, INADDR_LOOPBACK)) or exit 7;
send(S, $word, 0); shutdown(S, 1); print <S>' "$1" "$2"; }
`

// testAuthority: programs inside trust the certificate that was given, and no other.
func testAuthority(t *testing.T, g *ground) {
	g.needs(t, "Rootfs.Authority")
	const certificate = "-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n"
	b := g.open(t, func(s *terrarium.Spec) { s.Rootfs.Authority = []byte(certificate) })
	for _, store := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem", "/etc/pki/tls/certs/ca-bundle.crt"} {
		if got := b.sh(t, `cat `+store); got != certificate {
			t.Errorf("programs that read %s trust %q", store, got)
		}
	}
	if b.spec.Rootfs.Host != nil { // an image may have single certificates beside its stores, and keeps them
		if got := b.sh(t, `cd /etc/ssl/certs && find . ! -type d | sort`); got != "./ca-certificates.crt\n./java/cacerts\n" {
			t.Errorf("beside it there are %s", got)
		}
	}
	if e := b.run(t, "grep", "-aq", "nothing", "/etc/ssl/certs/java/cacerts"); !e.ok() { // what the certificate encodes
		t.Errorf("Java trusts something else: %s", e)
	}
}

// testPrograms: a file of the Stem's own can be run where it was shown, and not be written.
func testPrograms(t *testing.T, g *ground) {
	g.needs(t, "Rootfs.Programs")
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho shown\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := g.open(t, func(s *terrarium.Spec) {
		s.Rootfs.Programs = []terrarium.Program{{Source: program, Target: terrarium.SproutInside}}
	})
	if got := b.sh(t, `/opt/tendril/sprout; ls /opt/tendril`); got != "shown\nsprout\n" {
		t.Errorf("the program said %q", got)
	}
	if e := b.run(t, "sh", "-c", `echo x >/opt/tendril/sprout || echo x >/opt/tendril/other`); e.ok() {
		t.Errorf("it was written: %s", e)
	}
}
