//go:build linux

package rootfs

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

var sprout = User{UID: 70707, GID: 70707, Name: "sprout", Home: "/home/sprout"}

func hostView(t *testing.T, dirs ...string) View {
	t.Helper()
	v, err := HostView(dirs, sprout)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestViewIsAnAllowList(t *testing.T) {
	v := hostView(t)
	for _, m := range v.Mounts {
		if !within(m.Target, "/usr") && !slices.Contains(etcMounts, m.Target) && !strings.HasPrefix(m.Target, "/etc/java-") && !slices.Contains(usrDirs, strings.TrimPrefix(m.Target, "/")) {
			t.Errorf("%s is shown", m.Target)
		}
	}
	for path := range v.Files {
		if !within(path, "/etc") && !within(path, "/.tendril") {
			t.Errorf("%s is written", path)
		}
	}
	for _, d := range v.Dirs {
		for _, closed := range []string{"/srv", "/mnt", "/media", "/opt", "/boot", "/etc/ssl/private"} {
			if within(d.Path, closed) {
				t.Errorf("%s is made", d.Path)
			}
		}
	}
}

func TestGeneratedFilesAreNotTheHosts(t *testing.T) {
	v := hostView(t)
	for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/ssl/openssl.cnf"} {
		data, ok := v.Files[path]
		if !ok {
			t.Errorf("%s is not there", path)
		}
		if host, err := os.ReadFile(path); err == nil && len(host) > 0 && bytes.Equal(host, data) {
			t.Errorf("%s is the host's", path)
		}
	}
	if passwd := string(v.Files["/etc/passwd"]); !strings.Contains(passwd, "\nsprout:x:70707:70707::/home/sprout:/bin/sh\n") || strings.Count(passwd, "\n") != 3 {
		t.Errorf("passwd:\n%s", passwd)
	}
	if len(v.Files["/etc/resolv.conf"]) != 0 || strings.Contains(string(v.Files["/etc/nsswitch.conf"]), "dns") {
		t.Error("names are looked up somewhere")
	}
	for _, path := range []string{"/etc/shadow", "/etc/gitconfig", "/etc/npmrc", "/etc/pip.conf", "/etc/machine-id", "/etc/environment"} {
		if _, ok := v.Files[path]; ok {
			t.Errorf("%s is there", path)
		}
	}
}

func TestConfigurationOfTheHostInUsrIsMasked(t *testing.T) {
	v := hostView(t)
	for _, path := range usrMasks {
		if isDir(path) && !slices.Contains(v.Masks, Mask{Path: path, Dir: true}) {
			t.Errorf("%s is shown", path)
		}
	}
}

func TestUserIsChecked(t *testing.T) {
	for what, u := range map[string]User{
		"root":         {UID: 0, GID: 1, Name: "x", Home: "/home/x"},
		"group root":   {UID: 1, GID: 0, Name: "x", Home: "/home/x"},
		"second line":  {UID: 1, GID: 1, Name: "x\nroot", Home: "/home/x"},
		"second field": {UID: 1, GID: 1, Name: "x:y", Home: "/home/x"},
		"no home":      {UID: 1, GID: 1, Name: "x"},
		"a way out":    {UID: 1, GID: 1, Name: "x", Home: "/home/../../x"},
	} {
		if _, err := HostView(nil, u); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestBuildIgnoresTheUmask(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	v := hostView(t)
	dir := t.TempDir()
	if err := v.Build(dir); err != nil {
		t.Fatal(err)
	}
	modes := map[string]fs.FileMode{".": 0o755}
	for _, d := range v.Dirs {
		modes[d.Path[1:]] = d.Mode
	}
	for path := range v.Files {
		modes[path[1:]] = 0o644
	}
	for path, want := range modes {
		st, err := os.Lstat(filepath.Join(dir, path))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := st.Mode() & (fs.ModePerm | fs.ModeSticky | fs.ModeSetuid | fs.ModeSetgid); got != want {
			t.Errorf("%s has mode %v, want %v", path, got, want)
		}
	}
	for path, want := range v.Links {
		if got, err := os.Readlink(filepath.Join(dir, path)); err != nil || got != want {
			t.Errorf("%s leads to %q (%v), want %q", path, got, err, want)
		}
	}
	for _, m := range v.Mounts {
		if !isDir(filepath.Join(dir, m.Target)) {
			t.Errorf("%s has no mount point", m.Target)
		}
	}
}

func TestBuildWantsAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := hostView(t).Build(dir); err == nil || !strings.Contains(err.Error(), `it holds "kept"`) {
		t.Errorf("says %v", err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("%v were written", names)
	}
	if err := hostView(t).Build(filepath.Join(dir, "absent")); err == nil {
		t.Error("built into nothing")
	}
}

// A view is data; whatever it says, nothing is written outside of the directory.
func TestBuildStaysInside(t *testing.T) {
	outside := t.TempDir()
	for what, v := range map[string]View{
		"file through a link":      {Links: map[string]string{"/etc": outside}, Files: map[string][]byte{"/etc/x": {1}}},
		"file through a short cut": {Links: map[string]string{"/a": "../../../../../../../.." + outside}, Files: map[string][]byte{"/a/x": {1}}},
		"directory by dots":        {Dirs: []Dir{{"/../x", 0o755}}},
		"link by dots":             {Links: map[string]string{"/../x": "y"}},
		"existing file":            {Links: map[string]string{"/l": outside + "/x"}, Files: map[string][]byte{"/l": {1}}},
	} {
		dir := filepath.Join(t.TempDir(), "root")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := v.Build(dir); err == nil {
			t.Errorf("%s: built", what)
		}
		if names, _ := os.ReadDir(outside); len(names) > 0 {
			t.Errorf("%s: wrote %v outside", what, names)
		}
		if exists := isDir(filepath.Join(filepath.Dir(dir), "x")); exists {
			t.Errorf("%s: wrote beside", what)
		}
	}
}

func TestReadPublicOpensOnlyPublicFiles(t *testing.T) {
	dir := t.TempDir()
	fifo, closed, open := dir+"/fifo", dir+"/closed", dir+"/open"
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(closed, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(open, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, closed, dir, "/dev/zero", dir + "/absent"} {
		if data, ok := readPublic(path); ok {
			t.Errorf("%s was read: %q", path, data)
		}
	}
	if data, ok := readPublic(open); !ok || string(data) != "x" {
		t.Errorf("%s was not read", open)
	}
}

func TestKeysBesideCertificatesAreHidden(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"ca.pem": certificate, "mine.pem": certificate + pemKey, "store.p12": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var v View
	hideKeys(&v, dir, "/etc/ssl/certs")
	want := []Mask{{Path: "/etc/ssl/certs/mine.pem"}, {Path: "/etc/ssl/certs/store.p12"}}
	if !slices.Equal(v.Masks, want) || len(v.Notes) != 2 {
		t.Errorf("hidden: %v, notes %q", v.Masks, v.Notes)
	}
}

// Without a listed directory nothing is scanned: the goal is 2 ms.
func BenchmarkHostView(b *testing.B) {
	for b.Loop() {
		if _, err := HostView(nil, sprout); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	v, err := HostView(nil, sprout)
	if err != nil {
		b.Fatal(err)
	}
	base := b.TempDir()
	for b.Loop() {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			b.Fatal(err)
		}
		if err := v.Build(dir); err != nil {
			b.Fatal(err)
		}
	}
}
