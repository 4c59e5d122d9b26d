//go:build linux

package stem

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	neturl "net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

func direct(_ *testing.B, s server) way {
	return way{host: inspectedAt, port: s.port, roots: poolOf(s.certificate)}
}

// road starts a process that is a run's road.
func road(b *testing.B, s server) way {
	b.Helper()
	dir := b.TempDir()
	grants := fmt.Sprintf(`version: 1
grants:
  - pollen: botanist
    substrates: [handbook]
    classes: [sprout.grow]
    egress:
      - {host: %s, port: %s, methods: [GET], paths: ["/ok/*"], networks: [127.0.0.0/8]}
      - {host: %s, port: %[2]s, methods: any, networks: [127.0.0.0/8]}
`, inspectedAt, s.port, tunnelledAt)
	if err := os.Mkdir(filepath.Join(dir, "config"), 0o700); err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string][]byte{"config/grants.yaml": []byte(grants), "roots.pem": s.certificate} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roadProcess+"="+dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	var said ready
	if err := json.NewDecoder(stdout).Decode(&said); err != nil {
		b.Fatal(err)
	}
	return way{proxy: &neturl.URL{Scheme: "http", Host: said.Address}, host: inspectedAt, port: s.port, roots: poolOf(s.certificate, said.Root), pid: cmd.Process.Pid}
}

// smokescreen starts that proxy, which tunnels what it permits and looks at addresses only.
func smokescreen(b *testing.B, s server) way {
	b.Helper()
	program := os.Getenv("TENDRIL_BENCH_SMOKESCREEN")
	if program == "" {
		b.Skip("TENDRIL_BENCH_SMOKESCREEN is not set: run `make bench`")
	}
	host, port, address := freeAddress(b)
	cmd := exec.Command(program, "--listen-ip", host, "--listen-port", port, "--allow-range", "127.0.0.0/8")
	return peer(b, s, cmd, address, nil)
}

// squid starts Debian's squid-openssl as a proxy that ends TLS itself, permits by host,
// method and path as the grant does, logs each request and stores nothing.
func squid(b *testing.B, s server) way {
	b.Helper()
	const program, helper = "/usr/sbin/squid", "/usr/lib/squid/security_file_certgen"
	for _, path := range []string{program, helper} {
		if _, err := os.Stat(path); err != nil {
			b.Skipf("Debian's squid-openssl is not here: %v", err)
		}
	}
	dir := b.TempDir()
	script := `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=squid \
		-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign -keyout key.pem -out root.pem 2>/dev/null &&
		cat root.pem key.pem >both.pem && ` + helper + ` -c -s "$PWD/certificates" -M 4MB >&2`
	make := exec.Command("sh", "-ec", script)
	make.Dir = dir
	if out, err := make.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	root, err := os.ReadFile(filepath.Join(dir, "root.pem"))
	if err != nil {
		b.Fatal(err)
	}
	_, _, address := freeAddress(b)
	config := fmt.Sprintf(`http_port %[1]s ssl-bump tls-cert=%[2]s/both.pem generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
sslcrtd_program %[3]s -s %[2]s/certificates -M 4MB
tls_outgoing_options cafile=%[2]s/server.pem
acl hello at_step SslBump1
ssl_bump peek hello
ssl_bump bump all
pinger_enable off
hosts_file %[2]s/hosts
acl there dst %[4]s
acl connect method CONNECT
acl get method GET
acl ok urlpath_regex ^/ok/
http_access allow connect there
http_access allow get there ok
http_access deny all
cache deny all
cache_mem 8 MB
access_log stdio:%[2]s/access.log
cache_log %[2]s/cache.log
pid_filename %[2]s/squid.pid
coredump_dir %[2]s
visible_hostname bench
shutdown_lifetime 0 seconds
`, address, dir, helper, inspectedAt)
	for name, text := range map[string]string{"squid.conf": config, "server.pem": string(s.certificate), "hosts": inspectedAt + " " + serverName + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if os.Geteuid() == 0 { // it runs as an account of its own then
		give(b, dir, "proxy")
	}
	w := peer(b, s, exec.Command(program, "-N", "-f", filepath.Join(dir, "squid.conf")), address, root)
	w.host = serverName // it makes no certificate for an address
	return w
}

// give makes an account the owner of a directory and of all in it.
func give(b *testing.B, dir, name string) {
	b.Helper()
	account, err := user.Lookup(name)
	if err != nil {
		b.Skip(err)
	}
	uid, err := strconv.Atoi(account.Uid)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // a temporary directory is for one account
		b.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, -1)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// peer starts another proxy and waits until it listens.
func peer(b *testing.B, s server, cmd *exec.Cmd, address string, root []byte) way {
	b.Helper()
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // which the benchmark waits for
		_ = cmd.Wait()
		close(ended)
	}()
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if b.Failed() {
			b.Logf("%s said\n%s", cmd.Path, said.Bytes())
			if l, err := os.ReadFile(filepath.Dir(cmd.Args[len(cmd.Args)-1]) + "/cache.log"); err == nil {
				b.Logf("%s", l)
			}
		}
	})
	answers(b, address, ended)
	return way{proxy: &neturl.URL{Scheme: "http", Host: address}, host: inspectedAt, port: s.port, roots: poolOf(s.certificate, root), pid: cmd.Process.Pid}
}

// freeAddress is one at which nobody listens now.
func freeAddress(b *testing.B) (host, port, address string) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	address = listener.Addr().String()
	if host, port, err = net.SplitHostPort(address); err != nil {
		b.Fatal(err)
	}
	return host, port, address
}
