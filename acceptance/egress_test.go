package acceptance_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"tendril/ledger"
	"tendril/run"
)

// outside is an https server on an address that only a rule with its network reaches.
type outside struct {
	*httptest.Server
	host, port string

	mu   sync.Mutex
	seen []string // method, path and authorization of each request
}

// outsideAddress is this host's, and so is not reached unless a rule means it.
const outsideAddress = "127.0.0.2"

// goOutside starts the server and makes the garden's tendrils trust it.
func (g *garden) goOutside(t testing.TB) *outside {
	t.Helper()
	return g.goOutsideAs(t, outsideAddress)
}

// goOutsideAs starts it, with a certificate for a name of it. What is to be different is
// changed before.
func (g *garden) goOutsideAs(t testing.TB, host string, change ...func(*outside)) *outside {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outside"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if address := net.ParseIP(host); address != nil {
		template.IPAddresses = []net.IP{address}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{host: host}
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(o.answer))
	if o.Listener, err = net.Listen("tcp", outsideAddress+":0"); err != nil {
		t.Fatal(err)
	}
	o.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	o.EnableHTTP2 = true
	for _, c := range change {
		c(o)
	}
	o.StartTLS()
	t.Cleanup(o.Close)
	_, o.port, err = net.SplitHostPort(o.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(g.home, "outside.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	g.env = append(g.env, "SSL_CERT_FILE="+roots)
	return o
}

func (o *outside) answer(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.seen = append(o.seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	o.mu.Unlock()
	switch r.URL.Path {
	case "/ok/echo":
		fmt.Fprint(w, r.Header.Get("Authorization"))
	case "/ok/moved":
		http.Redirect(w, r, "/secret", http.StatusFound)
	default:
		fmt.Fprintf(w, "hello from %s\n", r.URL.Path)
	}
}

func (o *outside) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.seen...)
}

// permit lets the Botanist reach the server from the Substrate handbook, below /ok/ and by
// GET alone.
func (g *garden) permit(o *outside, more string) {
	g.t.Helper()
	g.permitRules(fmt.Sprintf(`      - {host: %s, port: %s, methods: [GET], paths: ["/ok/*"], networks: [127.0.0.0/8]}
`, o.host, o.port) + more)
}

// permitRules lets the Botanist reach what the rules say, which are lines of its grant.
func (g *garden) permitRules(rules string) {
	g.t.Helper()
	if !strings.Contains(g.succeed("substrate", "list").stdout, "handbook") {
		g.succeed("substrate", "add", "handbook", "--path", g.repo)
	}
	dir := filepath.Join(g.home, ".config", "tendril")
	grants := `version: 1
grants:
  - pollen: botanist
    substrates: [handbook]
    classes: [sprout.grow, stoma.pass, egress.fetch]
    egress:
` + rules
	if err := os.WriteFile(filepath.Join(dir, "grants.yaml"), []byte(grants), 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.succeed("grant", "check")
}

func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not here", program)
		}
	}
}

// A program inside reaches what the grant permits, by the ordinary means of its
// environment, and nothing else.
func TestReachIsWhatTheGrantPermits(t *testing.T) {
	needs(t, "curl")
	g := newGarden(t)
	o := g.goOutside(t)
	g.permit(o, "")
	base := "https://" + net.JoinHostPort(o.host, o.port)
	script := fmt.Sprintf(`
say() { printf '%%s ' "$1"; shift; curl -sS -m 20 -o /tmp/body -w '%%{http_code}\n' "$@" 2>/tmp/error || echo "failed: $(tail -1 /tmp/error)"; }
say permitted %[1]s/ok/a; cat /tmp/body
say http1 --http1.1 %[1]s/ok/b
say path %[1]s/secret; cat /tmp/body
say climb --path-as-is %[1]s/ok/../secret
say method -X POST -d x %[1]s/ok/a
say redirect -L %[1]s/ok/moved
say host https://127.0.0.3:%[2]s/ok/a
say plain http://%[3]s:%[2]s/ok/a
say metadata http://169.254.169.254/latest/meta-data/
say direct --noproxy '*' %[1]s/ok/a
NO_PROXY='*' no_proxy='*' say without %[1]s/ok/a
say forged --insecure -H 'Host: 127.0.0.9' %[1]s/ok/a
echo done >done.txt`, base, o.port, o.host)
	said := g.succeed("--json", "pass", "--substrate", "handbook", "--", "sh", "-c", script)
	var passed struct {
		Run    run.Run `json:"run"`
		Stdout []byte  `json:"stdout_b64"`
	}
	if err := json.Unmarshal([]byte(said.stdout), &passed); err != nil {
		t.Fatal(err)
	}
	out := string(passed.Stdout)
	for _, want := range []string{"permitted 200\nhello from /ok/a\n", "http1 200\n", "path 403\n", "climb 403\n", "method 403\n", "redirect 403\n", "forged 421\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, never := range []string{"direct 200", "without 200", "host 200", "plain 200", "metadata 200"} {
		if strings.Contains(out, never) {
			t.Errorf("%q is in\n%s", never, out)
		}
	}
	if !strings.Contains(out, "grants.yaml:") {
		t.Errorf("a refusal does not say where it could be permitted:\n%s", out)
	}
	want := []string{"GET /ok/a ", "GET /ok/b ", "GET /ok/moved "}
	if got := o.requests(); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("the server saw %q, want %q", got, want)
	}
	reached := map[string]run.Reach{}
	for _, r := range passed.Run.Egress {
		reached[r.Destination] = r
	}
	if here := reached[base]; here.Allowed < 3 || here.Refused < 3 || here.Received == 0 {
		t.Errorf("the record says %+v", passed.Run.Egress)
	}
	g.mustRecordEgress(passed.Run.ID, map[string]int{
		"egress.connect " + base + " permit":                   7, // one for each curl that got through to it
		"egress.get " + base + " permit":                       3, // permitted, http1, redirect
		"egress.get " + base + " deny":                         3, // path, climb, and where the redirect leads
		"egress.post " + base + " deny":                        1,
		"egress.misled " + base + " deny":                      1, // forged
		"egress.connect https://127.0.0.3:" + o.port + " deny": 1,
		"egress.get http://" + o.host + ":" + o.port + " deny": 1, // plain
		"egress.get http://169.254.169.254 deny":               1,
	})
}

// mustRecordEgress: each decision is one row that says who, what and by which rule, and
// holds nothing of what the Sprout wrote but the destination. What is wanted are capability,
// target and decision of each.
func (g *garden) mustRecordEgress(id run.ID, want map[string]int) {
	g.t.Helper()
	got := map[string]int{}
	export := g.succeed("ledger", "export").stdout
	for line := range strings.Lines(export) {
		row, err := ledger.ParseRow([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			g.t.Fatal(err)
		}
		if row.Run != string(id) || row.Kind != ledger.Decision || !strings.HasPrefix(row.Capability, "egress.") {
			continue
		}
		if row.Actor != "botanist" || row.Rule == "" || row.Of == nil {
			g.t.Errorf("a row of what was asked for: %s", line)
		}
		got[row.Capability+" "+row.Target+" "+row.Decision]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		g.t.Errorf("the decisions that are recorded (-want +got):\n%s", diff)
	}
	if strings.Contains(export, "meta-data") || strings.Contains(export, "/secret") {
		g.t.Error("the ledger holds a path that the Sprout asked for")
	}
}

// honeytoken is a secret that must be found nowhere but at the server that it is for.
const honeytoken = "hny-5f1d0c2e9ab84773"

func TestFetchAndExplain(t *testing.T) {
	g := newGarden(t)
	o := g.goOutside(t)
	g.permit(o, "")
	base := "https://" + net.JoinHostPort(o.host, o.port)
	out := filepath.Join(g.home, "fetched")
	said := g.succeed("--json", "egress", "fetch", "--substrate", "handbook", base+"/ok/file", "--out", out)
	if data, err := os.ReadFile(out); err != nil || string(data) != "hello from /ok/file\n" {
		t.Errorf("%q, %v; %s", data, err, said.stdout)
	}
	for name, args := range map[string][]string{
		"another path":        {base + "/secret"},
		"a redirect":          {base + "/ok/moved"},
		"another digest":      {base + "/ok/file", "--digest", "sha256:" + strings.Repeat("0", 64)},
		"more than it may be": {base + "/ok/file", "--limit", "3B"},
		"metadata":            {"http://169.254.169.254/latest/"},
	} {
		if said := g.tendril(append([]string{"egress", "fetch", "--substrate", "handbook"}, args...)...); said.status != run.ExitRefused {
			t.Errorf("%s: %+v", name, said)
		}
	}
	yes := g.succeed("egress", "explain", base+"/ok/a%2Db")
	if !strings.HasPrefix(yes.stdout, "yes: grants.yaml:3") || !strings.Contains(yes.stdout, base+"/ok/a-b") {
		t.Errorf("explained: %s", yes.stdout)
	}
	if no := g.tendril("egress", "explain", "--method", "POST", base+"/ok/a"); no.status != run.ExitRefused || !strings.HasPrefix(no.stdout, "no: ") || !strings.Contains(no.stdout, "the method is POST") {
		t.Errorf("explained: %s", no.stdout)
	}
}

// Files that a request wants are there before the work starts, and a file that must not be
// fetched keeps it from starting.
func TestFilesAreBroughtBeforeTheWork(t *testing.T) {
	g := newGarden(t)
	o := g.goOutside(t)
	g.permit(o, "")
	base := "https://" + net.JoinHostPort(o.host, o.port)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("hello from /ok/data\n")))
	said := g.succeed("--json", "grow", "--substrate", "handbook", "--fetch", base+"/ok/data#sha256="+sum+"=data/in.txt", "--", "sh", "-c", "cat data/in.txt && cp data/in.txt out.txt")
	var r run.Run
	if err := json.Unmarshal([]byte(said.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if got := g.git("show", *r.Branch+":out.txt"); got != "hello from /ok/data" {
		t.Errorf("the work saw %q", got)
	}
	if !strings.Contains(g.succeed("ledger", "export").stdout, `"file":"sha256:`+sum) {
		t.Error("the ledger does not say which file it was")
	}
	for name, fetch := range map[string]string{
		"another path":   base + "/secret=x",
		"another digest": base + "/ok/data#sha256=" + strings.Repeat("0", 64) + "=x",
		"out of it":      base + "/ok/data=../x",
		"into Git":       base + "/ok/data=.git/hooks/x",
		"no path":        base + "/ok/data",
	} {
		if said := g.tendril("grow", "--substrate", "handbook", "--fetch", fetch, "--", "sh", "-c", "echo >ran.txt"); said.status != run.ExitRefused || strings.Contains(said.stdout, "branch") {
			t.Errorf("%s: %+v", name, said)
		}
	}
}

// A rule that is taken away permits nothing from the next request on, also within a run
// that began with it.
func TestRulesAreTheGrantsOfNow(t *testing.T) {
	needs(t, "curl")
	g := newGarden(t)
	o := g.goOutside(t)
	g.permit(o, "")
	base := "https://" + net.JoinHostPort(o.host, o.port)
	p := g.start("--json", "grow", "--substrate", "handbook", "--", "sh", "-c", `
ask() { curl -sS -m 20 -o /dev/null -w '%{http_code} %{http_connect}\n' `+base+`/ok/a; }
echo "first $(ask)"; until test "$(ask)" = "000 403"; do :; done; echo "at last $(ask)"`)
	g.awaitOutput(p, nil, "first 200 200")
	grants := filepath.Join(g.home, ".config", "tendril", "grants.yaml")
	if err := os.WriteFile(grants, []byte("version: 1\ngrants: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := p.wait()
	var r run.Run
	if err := json.Unmarshal([]byte(said.stdout), &r); err != nil || said.status != 0 {
		t.Fatalf("%+v: %v", said, err)
	}
	if out := g.output(r.ID); !strings.Contains(out, "at last 000 403") {
		t.Errorf("the run said %s", out)
	}
}

// What is turned away after it was permitted, because of where its name leads or what came
// back, is recorded as refused.
func TestWhatIsTurnedAwayIsRefused(t *testing.T) {
	needs(t, "curl")
	g := newGarden(t)
	o := g.goOutside(t)
	g.permit(o, "")
	grants := filepath.Join(g.home, ".config", "tendril", "grants.yaml")
	text, err := os.ReadFile(grants)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(grants, []byte(strings.Replace(string(text), ", networks: [127.0.0.0/8]", "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	base := "https://" + net.JoinHostPort(o.host, o.port)
	said := g.succeed("--json", "pass", "--substrate", "handbook", "--", "curl", "-sS", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", base+"/ok/a")
	var passed struct{ Run run.Run }
	if err := json.Unmarshal([]byte(said.stdout), &passed); err != nil {
		t.Fatal(err)
	}
	if len(passed.Run.Egress) != 1 || passed.Run.Egress[0].Refused == 0 || len(o.requests()) != 0 {
		t.Errorf("the record says %+v; the server saw %v", passed.Run.Egress, o.requests())
	}
	if export := g.succeed("ledger", "export").stdout; !strings.Contains(export, `"state":"refused"`) {
		t.Error("the ledger does not say that it was refused")
	}
}

// What a server sends where nothing belongs is written into no log.
func TestNoServerWritesIntoOurLog(t *testing.T) {
	needs(t, "curl")
	g := newGarden(t)
	o := g.goOutsideAs(t, outsideAddress, func(o *outside) { o.EnableHTTP2 = false }) // HTTP/1.1 alone can be hijacked
	o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, stream, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(stream, "HTTP/1.1 204 No Content\r\n\r\n%s and more", honeytoken)
		stream.Flush()
		io.Copy(io.Discard, conn)
	})
	g.permit(o, "")
	base := "https://" + net.JoinHostPort(o.host, o.port)
	said := g.tendril("pass", "--substrate", "handbook", "--", "sh", "-c", "for i in 1 2 3 4 5; do curl -sS -m 20 "+base+"/ok/a; done")
	if strings.Contains(said.stderr, honeytoken) || strings.Contains(said.stderr, "Unsolicited") {
		t.Errorf("stderr: %s", said.stderr)
	}
}
