//go:build linux

package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"tendril/fault"
)

const (
	certificate = "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUZm9vYmFyYmF6cXV4Zm9vYmFyYmF6MAoGCCqGSM49\n-----END CERTIFICATE-----\n"
	pemKey      = "-----BEGIN EC " + "PRIVATE KEY-----\nMHcCAQEEIAabcdefghijklmnopqrstuvwxyz0123456789ABCDEFoAoGCCqGSM49\n-----END EC PRIVATE KEY-----\n"
	lockedKey   = "-----BEGIN RSA " + "PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF\n\nMHcCAQEEIAabcdefghijklmnopqrstuvwxyz0123456789ABCDEFoAoGCCqGSM49\n"
	pgpKey      = "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----\n\nlQVYBGabcdefghijklmnopqrstuvwxyz0123456789ABCDEFghijklmnopqrstuv\n"
	jsonKey     = `{"type": "service_account", "private_key": "-----BEGIN ` + `PRIVATE KEY-----\nMHcCAQEEIAabcdefghijklmnopqrstuvwxyz0123456789ABCDEFoAoGCCqGSM49\n"}`
)

// workDir is a directory that may be listed: not below /tmp, where temporary
// directories usually are.
func workDir(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	here, err = filepath.EvalSymlinks(here)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(here, "listed-")
	if err != nil {
		t.Skipf("the package's directory cannot be written: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, r := range reserved {
		if within(dir, r) {
			t.Skipf("the tests run in %s, which may never be listed", r)
		}
	}
	return dir
}

// file writes a world-readable file and the directories on its way.
func file(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestListedDirectoryIsShownUnderItsOwnPath(t *testing.T) {
	dir := workDir(t)
	file(t, dir+"/bin/tool", "#!/bin/sh\n")
	file(t, dir+"/share/ca.pem", certificate)
	if err := os.Symlink("/etc", dir+"/etc"); err != nil { // a link is not followed
		t.Fatal(err)
	}
	v := hostView(t, dir, dir+"/bin", dir) // a part of it, and it again, change nothing
	shown := 0
	for _, m := range v.Mounts {
		if within(m.Target, dir) {
			shown++
			if m != (Mount{dir, dir}) {
				t.Errorf("shown as %v", m)
			}
		}
	}
	if shown != 1 {
		t.Errorf("shown %d times", shown)
	}
	for path := dir; path != "/"; path = filepath.Dir(path) {
		i := slices.IndexFunc(v.Dirs, func(d Dir) bool { return d.Path == path })
		if i < 0 || v.Dirs[i].Mode != 0o755 {
			t.Errorf("%s does not let the Sprout through", path)
		}
	}
	if err := v.Build(t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestDirectoriesThatMayNotBeListed(t *testing.T) {
	dir := workDir(t)
	home := dir + "/people/ada"
	file(t, home+"/.config/tendril/tendril.yaml", "")
	file(t, home+"/.local/state/tendril/state.db", "")
	file(t, home+"/.ssh/config", "")
	file(t, home+"/tool/bin/x", "")
	file(t, dir+"/file", "")
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_STATE_HOME", dir+"/elsewhere")
	file(t, dir+"/elsewhere/tendril/state.db", "")
	if err := os.Symlink(home+"/tool", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/open", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/open", 0o777); err != nil {
		t.Fatal(err)
	}

	for listed, want := range map[string]string{
		"tool":                           "is not an absolute path",
		"~/tool":                         "is not an absolute path",
		"":                               "is not an absolute path",
		dir + "/people/../file":          "is not a clean path",
		dir + "/":                        "is not a clean path",
		"/":                              "holds more than a toolchain",
		"/home":                          "holds more than a toolchain",
		"/root":                          "holds more than a toolchain",
		"/etc":                           "holds more than a toolchain",
		"/var":                           "holds more than a toolchain",
		"/run":                           "holds more than a toolchain",
		"/opt":                           "holds more than a toolchain",
		"/usr":                           "holds more than a toolchain",
		"/home/somebody":                 "is a home directory",
		"/proc":                          "is made new in every Terrarium",
		"/proc/self":                     "is made new in every Terrarium",
		"/sys/kernel":                    "is made new in every Terrarium",
		"/dev":                           "is made new in every Terrarium",
		"/tmp/x":                         "is made new in every Terrarium",
		"/workspace":                     "is made new in every Terrarium",
		"/.tendril":                      "is made new in every Terrarium",
		"/home/sprout/x":                 "collides with /home/sprout",
		home:                             "which stays on the host",
		dir + "/people":                  "which stays on the host",
		home + "/.config":                "which stays on the host",
		home + "/.config/tendril":        "which stays on the host",
		home + "/.config/tendril/below":  "lies in",
		home + "/.local/state":           "which stays on the host",
		dir + "/elsewhere":               "which stays on the host",
		home + "/.ssh":                   "lies in a directory for credentials (.ssh)",
		home + "/.ssh/keys":              "lies in a directory for credentials (.ssh)",
		home + "/.docker":                "holds the settings of more than a toolchain",
		home + "/.local/share":           "holds the settings of more than a toolchain",
		dir + "/absent":                  "does not exist",
		dir + "/file/x":                  "does not exist",
		dir + "/file":                    "is not a directory",
		dir + "/link":                    "is reached through a symbolic link",
		dir + "/link/bin":                "is reached through a symbolic link",
		dir + "/open":                    "can be written by everybody",
		dir + "/people/ada/tool\nx: [/]": "is not a clean path",
	} {
		_, err := HostView([]string{listed}, sprout)
		var f *fault.Error
		if !errors.As(err, &f) || !strings.Contains(f.Detail, want) || !strings.Contains(f.Detail, "toolchain directory") {
			t.Errorf("%q: %v, want %q", listed, err, want)
			continue
		}
		if wantKind := map[bool]fault.Kind{true: fault.NotFound, false: fault.Invalid}[want == "does not exist"]; f.Kind != wantKind {
			t.Errorf("%q is %s", listed, f.Kind)
		}
	}
	if _, err := HostView([]string{home + "/tool"}, sprout); err != nil {
		t.Errorf("the tool's own directory: %v", err)
	}
	if _, err := HostView(slices.Repeat([]string{home + "/tool"}, maxListed+1), sprout); !fault.Is(err, fault.Invalid) {
		t.Errorf("too many: %v", err)
	}
}

func TestListingUsrIsNotNeeded(t *testing.T) {
	v := hostView(t, "/usr/bin")
	if len(v.Notes) == 0 || !strings.Contains(v.Notes[len(v.Notes)-1], "/usr is always shown") {
		t.Errorf("notes %q", v.Notes)
	}
	if isDir("/usr/local/etc") {
		if _, err := HostView([]string{"/usr/local/etc"}, sprout); !fault.Is(err, fault.Invalid) {
			t.Errorf("/usr/local/etc: %v", err)
		}
	}
}

// secrets are files that refuse the directory they are in: path below it, content,
// and what the refusal says.
var secrets = []struct{ path, content, says string }{
	{"id_rsa", "x", "credential file"},
	{"keys/id_ed25519", "x", "credential file"},
	{"server.key", pemKey, "private key"},
	{"server", pemKey, "private key"},
	{"bundle.pem", certificate + lockedKey, "private key"},
	{"me.asc", pgpKey, "private key"},
	{"gcp.json", jsonKey, "private key"},
	{"conf.yaml", "tls:\n  key: |\n    " + strings.ReplaceAll(pemKey, "\n", "\n    "), "private key"},
	{"cert.p12", "x", "key store"},
	{"cert.PFX", "x", "key store"},
	{"app.jks", "x", "key store"},
	{"pass.kdbx", "x", "key store"},
	{".netrc", "machine x login y password z", "credential file"},
	{".git-credentials", "https://a:b@example.com", "credential file"},
	{".pypirc", "[pypi]\npassword = x", "credential file"},
	{".npmrc", "registry=https://r\n//r/:_authToken=npm_abcdef\n", "holds a credential"},
	{"etc/npmrc", "_auth = abcdef==\n", "holds a credential"},
	{".yarnrc.yml", "npmAuthToken: abc\n", "holds a credential"},
	{"config.json", `{"auths": {"r.example.com": {"auth": "YTpi"}}}`, "holds a credential"},
	{"credentials", "[default]\naws_secret_access_key = abc\n", "holds a credential"},
	{"credentials.toml", "[registry]\ntoken = \"abc\"\n", "holds a credential"},
	{".credentials.json", "{}", "credential file"},
	{"auth.json", `{"OPENAI_API_KEY": "sk-x"}`, "holds a credential"},
	{"gh/hosts.yml", "github.com:\n    oauth_token: gho_x\n", "holds a credential"},
	{"config", "users:\n- user:\n    client-key-data: abc\n", "holds a credential"},
	{"kubeconfig", "x", "credential file"},
	{"pip.conf", "[global]\nindex-url = https://user:pass@example.com/simple\n", "holds a credential"},
	{"settings.xml", "<server><password>x</password></server>", "holds a credential"},
	{"gradle.properties", "signing.password=x\n", "holds a credential"},
	{".env", "export API_KEY=abc\n", "holds a credential"},
	{".ssh/known_hosts", "x", "directory for credentials"},
	{"lib/.aws/config", "x", "directory for credentials"},
}

func TestSecretsRefuseTheirDirectory(t *testing.T) {
	for _, s := range secrets {
		dir := t.TempDir()
		file(t, dir+"/bin/tool", "#!/bin/sh\n")
		file(t, dir+"/"+s.path, s.content)
		_, err := scan(dir, scanLimits)
		var f *fault.Error
		if !errors.As(err, &f) || !strings.Contains(f.Detail, s.says) || f.Kind != fault.Invalid || f.Hint == "" {
			t.Errorf("%s: %v, want %q", s.path, err, s.says)
			continue
		}
		top, _, _ := strings.Cut(s.path, "/")
		if !strings.Contains(f.Detail, dir+"/"+top) {
			t.Errorf("%s: %q does not name the path", s.path, f.Detail)
		}
	}
}

func TestSecretsOfTestsAreHidden(t *testing.T) {
	for _, s := range secrets {
		dir := t.TempDir()
		file(t, dir+"/lib/test/data/"+s.path, s.content)
		file(t, dir+"/lib/test/"+s.path, s.content)
		hidden, err := scan(dir, scanLimits)
		if err != nil || len(hidden) != 1 || hidden[0].dir != dir+"/lib/test" {
			t.Errorf("%s: hidden %v (%v), want the outermost directory of tests once", s.path, hidden, err)
		}
	}
	dir := workDir(t)
	file(t, dir+"/lib/testdata/server.key", pemKey)
	v := hostView(t, dir)
	if !slices.Contains(v.Masks, Mask{Path: dir + "/lib/testdata", Dir: true}) || !strings.Contains(strings.Join(v.Notes, "\n"), "server.key holds a private key") {
		t.Errorf("masks %v, notes %q", v.Masks, v.Notes)
	}
	// What a listed directory is called does not excuse what is in it.
	file(t, dir+"/tests/id_rsa", "x")
	if _, err := HostView([]string{dir + "/tests"}, sprout); !fault.Is(err, fault.Invalid) {
		t.Errorf("a listed directory named tests: %v", err)
	}
}

func TestHarmlessFilesAreNoSecrets(t *testing.T) {
	dir := t.TempDir()
	for path, content := range map[string]string{
		"ca.pem":           certificate,
		"id_rsa.pub":       "ssh-rsa AAAA",
		".npmrc":           "registry=https://registry.example.com/\n//r/:_authToken=${NPM_TOKEN}\n# _authToken=abc\n",
		"config.json":      `{"auths": {}, "author": "x"}`,
		"config":           "[core]\n\tbare = false\n",
		"credentials.toml": "# token = \"abc\"\n",
		".env":             "DEBUG=1\nAPI_KEY=\nTOKEN=$OTHER\n",
		"settings.xml":     "<password></password><password>${env.X}</password>",
		"pip.conf":         "[global]\nindex-url = https://example.com/simple\n",
		"README.txt":       "It begins with -----BEGIN PRIVATE KEY----- and ends later.\n",
		"key.go":           pemKey, // a source: it only speaks of keys
		"id_rsa":           "",     // empty
		"hosts.yml":        "github.com:\n    user: ada\n",
	} {
		file(t, dir+"/"+path, content)
	}
	if hidden, err := scan(dir, scanLimits); err != nil || len(hidden) > 0 {
		t.Errorf("hidden %v (%v)", hidden, err)
	}
}

func TestSpecialFilesRefuseTheirDirectory(t *testing.T) {
	socket := t.TempDir()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: socket + "/s"}); err != nil {
		t.Fatal(err)
	}
	fifo := t.TempDir()
	if err := unix.Mkfifo(fifo+"/f", 0o644); err != nil {
		t.Fatal(err)
	}
	closed := t.TempDir()
	file(t, closed+"/f", "x")
	if err := os.Chmod(closed+"/f", 0o640); err != nil {
		t.Fatal(err)
	}
	shut := t.TempDir()
	if err := os.Mkdir(shut+"/d", 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{socket: "/s is a socket", fifo: "/f is a FIFO", closed: "/f is not readable by everybody", shut: "/d is not readable by everybody"} {
		if _, err := scan(dir, scanLimits); err == nil || !strings.Contains(err.Error(), dir+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := os.Chmod(shut, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := scan(shut, scanLimits); err == nil || !strings.Contains(err.Error(), shut+" is not readable") {
		t.Errorf("a closed directory: %v", err)
	}
}

func TestScanIsBounded(t *testing.T) {
	dir := t.TempDir()
	file(t, dir+"/a/b/c/d", "x")
	file(t, dir+"/a/b/c/e", "x")
	file(t, dir+"/x/test/id_rsa", "x")
	file(t, dir+"/y/test/id_rsa", "x")
	for what, c := range map[string]struct {
		lim  limits
		says string
	}{
		"entries": {limits{entries: 4, depth: 64, hidden: 8, time: time.Hour}, "more than 4 entries"},
		"depth":   {limits{entries: 100, depth: 2, hidden: 8, time: time.Hour}, "more than 2 deep"},
		"hidden":  {limits{entries: 100, depth: 64, hidden: 1, time: time.Hour}, "more than 1 directories of tests"},
	} {
		if _, err := scan(dir, c.lim); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	many := t.TempDir()
	for i := range 300 {
		file(t, fmt.Sprintf("%s/%d", many, i), "")
	}
	if _, err := scan(many, limits{entries: 1000, depth: 8, time: -1}); err == nil || !strings.Contains(err.Error(), "could not be scanned within") {
		t.Errorf("time: %v", err)
	}
}

func TestScanDoesNotFollowLinks(t *testing.T) {
	secret := t.TempDir()
	file(t, secret+"/id_rsa", "x")
	dir := t.TempDir()
	if err := os.Symlink(secret, dir+"/dir"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret+"/id_rsa", dir+"/file"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, dir+"/loop"); err != nil {
		t.Fatal(err)
	}
	if hidden, err := scan(dir, scanLimits); err != nil || len(hidden) > 0 {
		t.Errorf("hidden %v (%v)", hidden, err)
	}
	if _, err := scan(dir+"/dir", scanLimits); err == nil {
		t.Error("scanned through a link")
	}
}

func TestMissingNamesTheKey(t *testing.T) {
	dir := workDir(t)
	t.Setenv("HOME", dir+"/home")
	for _, path := range []string{"/tool/bin/compile", "/home/bin/script", "/home/.local/bin/agent", "/data/agent/versions/1/agent"} {
		file(t, dir+path, "#!/bin/sh\n")
		if err := os.Chmod(dir+path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file(t, dir+"/tool/bin/data", "not a program")
	if err := os.Symlink(dir+"/data/agent/versions/1/agent", dir+"/home/.local/bin/linked"); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{"relative", dir + "/absent", dir + "/tool/bin", dir + "/home/bin", dir + "/home/.local/bin", "/usr/bin"}, ":")
	v := hostView(t)
	for command, want := range map[string][]string{
		"compile":                 {dir + "/tool"},
		dir + "/tool/bin/compile": {dir + "/tool"},
		"script":                  {dir + "/home/bin"}, // its parent is a home
		"agent":                   {dir + "/home/.local/bin"},
		"linked":                  {dir + "/home/.local/bin", dir + "/data/agent/versions/1"},
	} {
		a := v.Missing(command, path)
		if a.HostPath == "" || a.Visible || !slices.Equal(a.Dirs, want) {
			t.Errorf("%s: %+v, want %q", command, a, want)
			continue
		}
		var parsed struct{ Toolchain []string }
		if err := yaml.Unmarshal([]byte(a.Key), &parsed); err != nil || !slices.Equal(parsed.Toolchain, want) {
			t.Errorf("%s: key %q is %q (%v)", command, a.Key, parsed.Toolchain, err)
		}
	}
	for _, command := range []string{"data", "no-such-command", "", "relative/compile", "../x", "a\x00b"} {
		if a := v.Missing(command, path); a.HostPath != "" || a.Key != "" {
			t.Errorf("%q: %+v", command, a)
		}
	}
	if a := v.Missing("env", path); a.HostPath != "/usr/bin/env" || !a.Visible || a.Key != "" {
		t.Errorf("env: %+v", a)
	}
	// What the key says admits the command.
	a := v.Missing("compile", path)
	if b := hostView(t, a.Dirs...).Missing("compile", path); !b.Visible || b.Key != "" {
		t.Errorf("after listing %q: %+v", a.Dirs, b)
	}
}

func TestPathHoldsOnlyWhatIsShown(t *testing.T) {
	dir := workDir(t)
	file(t, dir+"/bin/x", "")
	hidden := dir + "/bin:relative::/root/bin:/usr/local/go/bin:/usr/bin:/usr/local/etc/bin"
	want := "/usr/local/go/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"
	if !isDir("/usr/local/etc") {
		want = "/usr/local/go/bin:/usr/bin:/usr/local/etc/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"
	}
	if got := hostView(t).Path(hidden); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := hostView(t, dir).Path(hidden); !strings.HasPrefix(got, dir+"/bin:") {
		t.Errorf("%q lacks what is listed", got)
	}
	if got := hostView(t).Path(""); got != defaultPath {
		t.Errorf("%q", got)
	}
}

func TestHomes(t *testing.T) {
	got := homes([]byte("root:x:0:0:root:/root:/bin/sh\nbin:x:2:2::/bin:/x\nada:x:1000:1000:,,,:/people/ada:/bin/sh\nnobody:x:65534:1::/nonexistent:/x\nbad:x:y:1::/bad:/x\nshort:x\nrel:x:1001:1::rel:/x\n"))
	if want := []string{"/root", "/people/ada"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzHomes(f *testing.F) {
	f.Add([]byte("root:x:0:0:root:/root:/bin/sh\n"))
	f.Add([]byte(":::::::\n\x00:x:1000:0::../..:\n"))
	f.Fuzz(func(t *testing.T, passwd []byte) {
		for _, home := range homes(passwd) {
			if !filepath.IsAbs(home) || home == "/" || filepath.Clean(home) != home {
				t.Errorf("home %q", home)
			}
		}
	})
}

func FuzzYAMLString(f *testing.F) {
	for _, s := range []string{"/opt/tool", "/a b", "/a: [b]", "/é", "/\"\\", "/x #y", "/\x7f\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ToValidUTF8(s, "") != s || s == "" || s[0] != '/' {
			t.Skip("not a path that YAML can hold")
		}
		var parsed struct{ Toolchain []string }
		if err := yaml.Unmarshal([]byte("toolchain: ["+yamlString(s)+"]"), &parsed); err != nil || !slices.Equal(parsed.Toolchain, []string{s}) {
			t.Errorf("%q is written as %s and read as %q (%v)", s, yamlString(s), parsed.Toolchain, err)
		}
	})
}

func FuzzSecretByContent(f *testing.F) {
	for _, s := range secrets {
		f.Add(filepath.Base(s.path), []byte(s.content))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		_, _ = secretByContent(name, data)
		// More around it does not hide a key.
		if _, more := secretByContent(name, append([]byte(pemKey), data...)); !more {
			t.Errorf("a private key before %q is not seen", data)
		}
	})
}
