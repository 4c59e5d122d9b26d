package substrate

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tendril/fault"
)

// elsewhere serves a repository over https with Git's own server side, and returns its
// URL and its directory.
func elsewhere(t *testing.T) (url, dir string) {
	t.Helper()
	core, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(core)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skipf("Git's server side is not here: %v", err)
	}
	parent := t.TempDir()
	dir = filepath.Join(parent, "handbook.git")
	for _, args := range [][]string{
		{"init", "-q", "--bare", "-b", "trunk", dir},
		{"-C", dir, "config", "http.receivepack", "false"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved.git/info/refs" {
			http.Redirect(w, r, "/handbook.git/info/refs?"+r.URL.RawQuery, http.StatusFound)
			return
		}
		(&cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + parent, "GIT_HTTP_EXPORT_ALL=1"}}).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	authority := filepath.Join(parent, "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", authority)
	return server.URL + "/handbook.git", dir
}

// publish commits one file to a branch of a bare repository and returns the commit.
func publish(t *testing.T, dir, branch, content string) string {
	t.Helper()
	git := func(stdin string, args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@localhost"}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	blob := git(content, "hash-object", "-w", "--stdin")
	tree := git("100644 blob "+blob+"\tfile\n", "mktree")
	commit := git("", "commit-tree", "-m", content, tree)
	git("", "update-ref", "refs/heads/"+branch, commit)
	return commit
}

func TestCopyFollowsItsOrigin(t *testing.T) {
	url, dir := elsewhere(t)
	store, err := OpenStore(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenCopy(t.Context(), url); !fault.Is(err, fault.NotFound) {
		t.Errorf("before the first fetch: %v", err)
	}
	head := func() string {
		t.Helper()
		if err := store.Fetch(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		repository, err := store.OpenCopy(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer repository.Close()
		commit, err := repository.Resolve(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return commit.ID
	}
	publish(t, dir, "doomed", "z")
	if want, got := publish(t, dir, "trunk", "one"), head(); got != want {
		t.Errorf("HEAD is %s, want %s", got, want)
	}
	// The origin rewrites its history, loses a branch, and has one that looks like ours.
	copied := store.copyDir(url)
	ours := publish(t, copied, "tendril/r-01jd0000000000000000000000", "fruit")
	publish(t, dir, "tendril/r-01jd0000000000000000000000", "not a fruit")
	if out, err := exec.Command("git", "-C", dir, "update-ref", "-d", "refs/heads/doomed").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want, got := publish(t, dir, "trunk", "two"), head(); got != want {
		t.Errorf("HEAD is %s, want %s", got, want)
	}
	refs, err := exec.Command("git", "-C", copied, "for-each-ref", "--format=%(refname) %(objectname)").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(refs), "refs/heads/tendril/r-01jd0000000000000000000000 "+ours) || strings.Contains(string(refs), "doomed") {
		t.Errorf("the copy has\n%s", refs)
	}
}

func TestFruitOfACopyIsAcceptedElsewhere(t *testing.T) {
	url, dir := elsewhere(t)
	publish(t, dir, "trunk", "one")
	store, err := OpenStore(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Fetch(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	repository, err := store.OpenCopy(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer repository.Close()
	if _, err := repository.Accept(t.Context(), Acceptance{Run: "r-01jd0000000000000000000000", Into: "trunk"}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), url) {
		t.Errorf("%v", err)
	}
}

func TestFetchRefuses(t *testing.T) {
	url, dir := elsewhere(t)
	publish(t, dir, "trunk", "one")
	store, err := OpenStore(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		url  string
		kind fault.Kind
	}{
		"another transport":    {t.Context(), "ext::sh -c 'touch /tmp/never'", fault.Invalid},
		"a path":               {t.Context(), dir, fault.Invalid},
		"plain text":           {t.Context(), strings.Replace(url, "https:", "http:", 1), fault.Invalid},
		"a redirect":           {t.Context(), strings.Replace(url, "handbook", "moved", 1), fault.Unavailable},
		"what is not there":    {t.Context(), strings.Replace(url, "handbook", "absent", 1), fault.Unavailable},
		"a caller who is gone": {gone, url, fault.Internal},
	} {
		if err := store.Fetch(c.ctx, c.url); fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v; want %s", name, err, c.kind)
		}
		if looksLikeGitDir(store.copyDir(c.url)) {
			t.Errorf("%s: a copy was made", name)
		}
	}
	t.Setenv("SSL_CERT_FILE", "/dev/null")
	if err := store.Fetch(t.Context(), url); !fault.Is(err, fault.Unavailable) {
		t.Errorf("an unknown certificate: %v", err)
	}
}
