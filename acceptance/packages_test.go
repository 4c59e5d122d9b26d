//go:build linux

package acceptance_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"tendril/run"
)

// served are files by path, and Git's server side below /git/.
type served struct {
	files map[string][]byte
	git   http.Handler
}

func (s served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.git != nil && strings.HasPrefix(r.URL.Path, "/git/") {
		s.git.ServeHTTP(w, r)
		return
	}
	content, there := s.files[r.URL.Path]
	if !there || r.Method != http.MethodGet {
		http.NotFound(w, r)
		return
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/simple/"):
		w.Header().Set("Content-Type", "text/html")
	case json.Valid(content):
		w.Header().Set("Content-Type", "application/json")
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	_, _ = w.Write(content)
}

// serve makes the server outside answer with these, and still keep what it was asked for.
func (o *outside) serve(s served) {
	o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.seen = append(o.seen, r.Method+" "+r.URL.Path)
		o.mu.Unlock()
		s.ServeHTTP(w, r)
	})
}

func (o *outside) url() string { return "https://" + net.JoinHostPort(o.host, o.port) }

// rule is a line of a grant for this server.
func (o *outside) rule(methods, paths string) string {
	return fmt.Sprintf("      - {host: %s, port: %s, methods: [%s], paths: [%s], networks: [127.0.0.0/8]}\n", o.host, o.port, methods, paths)
}

// grown runs a script to its end, and returns the run and its exit status.
func (g *garden) grown(script string) (run.Run, answer) {
	g.t.Helper()
	said := g.tendril("--json", "grow", "--substrate", "handbook", "--", "sh", "-c", script)
	var r run.Run
	if err := json.Unmarshal([]byte(said.stdout), &r); err != nil {
		g.t.Fatalf("%v: %+v", err, said)
	}
	return r, said
}

// written is a file of a run's Fruit.
func (g *garden) written(r run.Run, name string) string {
	g.t.Helper()
	if r.Branch == nil {
		g.t.Fatalf("there is no Fruit: %+v", r)
	}
	return g.git("show", *r.Branch+":"+name)
}

// needsInside skips unless the host's /usr, which is inside, has the programs.
func needsInside(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join("/usr/bin", program)); err != nil {
			t.Skipf("%s is not in /usr/bin, so not inside", program)
		}
	}
}

func archived(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for name, content := range files {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for name, content := range files {
		entry, err := archive.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := entry.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// outsideName is a name of the server outside where the host's file of names has it.
const outsideName = "packages.example"

// underOwnNames runs the test in a process for which the server outside has a name: in a
// mount namespace with a hosts(5) of its own. It reports whether this is that process.
func underOwnNames(t *testing.T) bool {
	t.Helper()
	if !inNamespace(t, syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}) {
		return false
	}
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte(outsideAddress+" "+outsideName+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount("/etc/hosts", unix.MNT_DETACH) })
	return true
}

// A package comes from a registry that the grant names, by reading alone. npm takes a
// registry through a proxy by its name only: of an address it expects the certificate to be
// for localhost.
func TestNPMInstallsOverTheRoad(t *testing.T) {
	needsInside(t, "npm", "node")
	if !underOwnNames(t) {
		return
	}
	g := newGarden(t)
	o := g.goOutsideAs(t, outsideName)
	tarball := archived(t, map[string]string{
		"package/package.json": `{"name":"leaf","version":"1.2.3","main":"index.js"}`,
		"package/index.js":     `module.exports = "leaf by npm"`,
	})
	sum := sha512.Sum512(tarball)
	packument := fmt.Sprintf(`{"name":"leaf","dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":"leaf","version":"1.2.3","main":"index.js",`+
		`"dist":{"tarball":"%s/npm/leaf/-/leaf-1.2.3.tgz","integrity":"sha512-%s"}}}}`, o.url(), base64.StdEncoding.EncodeToString(sum[:]))
	o.serve(served{files: map[string][]byte{"/npm/leaf": []byte(packument), "/npm/leaf/-/leaf-1.2.3.tgz": tarball}})
	g.permitRules(o.rule("GET", `"/npm/*"`))
	r, said := g.grown(`mkdir /tmp/project && cd /tmp/project && echo '{}' >package.json &&
		npm install --registry ` + o.url() + `/npm/ leaf >/workspace/npm.txt 2>&1; node -p 'require("leaf")' >/workspace/out.txt 2>&1`)
	if got := g.written(r, "out.txt"); said.status != 0 || got != "leaf by npm" {
		t.Errorf("%q; npm said\n%s", got, g.written(r, "npm.txt"))
	}
	// The audit that npm asks for by POST is not in the rule, and does not reach the server.
	if seen := o.requests(); !slices.Contains(seen, "GET /npm/leaf/-/leaf-1.2.3.tgz") || strings.Contains(strings.Join(seen, " "), "POST") {
		t.Errorf("the server saw %q", seen)
	}
}

func TestPipInstallsOverTheRoad(t *testing.T) {
	needsInside(t, "pip3", "python3")
	g := newGarden(t)
	o := g.goOutside(t)
	const wheel = "leaf-1.2.3-py3-none-any.whl"
	o.serve(served{files: map[string][]byte{
		"/simple/leaf/": []byte(`<!DOCTYPE html><html><body><a href="../../files/` + wheel + `">` + wheel + `</a></body></html>`),
		"/files/" + wheel: zipped(t, map[string]string{
			"leaf.py":                       `name = "leaf by pip"`,
			"leaf-1.2.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: leaf\nVersion: 1.2.3\n",
			"leaf-1.2.3.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
			"leaf-1.2.3.dist-info/RECORD":   "leaf.py,,\nleaf-1.2.3.dist-info/METADATA,,\nleaf-1.2.3.dist-info/WHEEL,,\nleaf-1.2.3.dist-info/RECORD,,\n",
		}),
	}})
	g.permitRules(o.rule("GET", `"/simple/*", "/files/*"`))
	r, said := g.grown(`/usr/bin/python3 -m pip install --no-cache-dir --target /tmp/packages --index-url ` + o.url() + `/simple/ leaf >pip.txt 2>&1
		PYTHONPATH=/tmp/packages /usr/bin/python3 -c 'import leaf; print(leaf.name)' >out.txt 2>&1`)
	if got := g.written(r, "out.txt"); said.status != 0 || got != "leaf by pip" {
		t.Errorf("%q; pip said\n%s", got, g.written(r, "pip.txt"))
	}
}

// Go asks an address of the loopback without a proxy, whatever the environment says
// (net/http.ProxyFromEnvironment), so the server has to have a name.
func TestGoDownloadsModulesOverTheRoad(t *testing.T) {
	needs(t, "go")
	if !underOwnNames(t) {
		return
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	goroot := strings.TrimSpace(string(root))
	g := newGarden(t)
	o := g.goOutsideAs(t, outsideName)
	const module = "module leaf.example/leaf\n\ngo 1.20\n"
	o.serve(served{files: map[string][]byte{
		"/goproxy/leaf.example/leaf/@v/v1.2.3.info": []byte(`{"Version":"v1.2.3","Time":"2026-01-02T03:04:05Z"}`),
		"/goproxy/leaf.example/leaf/@v/v1.2.3.mod":  []byte(module),
		"/goproxy/leaf.example/leaf/@v/v1.2.3.zip": zipped(t, map[string]string{
			"leaf.example/leaf@v1.2.3/go.mod":  module,
			"leaf.example/leaf@v1.2.3/leaf.go": "package leaf\n\nconst Name = \"leaf by go\"\n",
		}),
	}})
	g.permitRules(o.rule("GET", `"/goproxy/*"`))
	if !strings.HasPrefix(goroot, "/usr/") {
		if err := os.WriteFile(filepath.Join(g.home, ".config", "tendril", "tendril.yaml"), []byte("version: 1\ntoolchain: ["+goroot+"]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, said := g.grown(`mkdir /tmp/project && cd /tmp/project && printf 'module project\n\ngo 1.20\n\nrequire leaf.example/leaf v1.2.3\n' >go.mod &&
		GOPROXY=` + o.url() + `/goproxy GOSUMDB=off GOTOOLCHAIN=local GOPATH=/tmp/go GOFLAGS=-mod=mod ` + goroot + `/bin/go mod download leaf.example/leaf >/workspace/go.txt 2>&1
		cat /tmp/go/pkg/mod/leaf.example/leaf@v1.2.3/leaf.go >/workspace/out.txt 2>&1`)
	if got := g.written(r, "out.txt"); said.status != 0 || !strings.Contains(got, "leaf by go") {
		t.Errorf("%q; go said\n%s", got, g.written(r, "go.txt"))
	}
}

// A repository is cloned over https and what is new in it is fetched; a push is refused by
// the same grant, which has no rule for where a push is sent to, and says so.
func TestGitClonesAndDoesNotPush(t *testing.T) {
	core, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(core)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skipf("Git's server side is not here: %v", err)
	}
	g := newGarden(t)
	o := g.goOutside(t)
	parent := filepath.Join(filepath.Dir(g.home), "git")
	// The server would take a push from anybody: what refuses it is the grant.
	g.shell(`git clone -q --bare "$1" "$2/almanac.git" && git -C "$2/almanac.git" config http.receivepack true`, g.repo, parent)
	o.serve(served{git: &cgi.Handler{Root: "/git", Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + parent, "GIT_HTTP_EXPORT_ALL=1"}}})
	repository := o.url() + "/git/almanac.git"
	g.permitRules(o.rule("GET", `"/git/*"`) + o.rule("POST", `"/git/almanac.git/git-upload-pack"`))
	r, said := g.grown(`git clone ` + repository + ` /tmp/almanac >clone.txt 2>&1 && cp /tmp/almanac/base.txt out.txt
		cd /tmp/almanac && echo more >more.txt && git add -A && git -c user.name=a -c user.email=a@localhost commit -qm more
		git push origin HEAD:refs/heads/pushed >/workspace/push.txt 2>&1; echo $? >/workspace/pushed.txt
		GIT_CURL_VERBOSE=1 git push origin HEAD:refs/heads/pushed >/workspace/verbose.txt 2>&1; true`)
	if got := g.written(r, "out.txt"); said.status != 0 || got != "base" {
		t.Errorf("%q; git said\n%s", got, g.written(r, "clone.txt"))
	}
	// Git shows of a refused request its status only, and the reason when it is asked to be
	// verbose; whoever looks at the run sees it anyway.
	if push := g.written(r, "push.txt"); g.written(r, "pushed.txt") == "0" || !strings.Contains(push, "error: RPC failed; HTTP 403") {
		t.Errorf("the push: %s", push)
	}
	const reason = "does not permit it: the method is POST, not GET"
	if verbose := g.written(r, "verbose.txt"); !strings.Contains(verbose, "denied: ") || !strings.Contains(verbose, reason) {
		t.Errorf("the verbose push: %s", verbose)
	}
	if watched := g.succeed("--json", "run", "watch", string(r.ID)); !strings.Contains(watched.stdout+watched.stderr, reason) {
		t.Errorf("the run does not say why a push was refused:\n%s%s", watched.stdout, watched.stderr)
	}
	if seen := strings.Join(o.requests(), "\n"); !strings.Contains(seen, "POST /git/almanac.git/git-upload-pack") || strings.Contains(seen, "POST /git/almanac.git/git-receive-pack") {
		t.Errorf("the server saw\n%s", seen)
	}
	if refs := g.shell(`git -C "$1/almanac.git" for-each-ref`, parent); strings.Contains(refs, "pushed") {
		t.Errorf("it was pushed:\n%s", refs)
	}
}
