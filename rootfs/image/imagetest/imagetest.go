//go:build linux

// Package imagetest makes OCI images for tests out of this host's own programs:
// [Debian] is what a shell script and Git need, [WithGo] has the Go toolchain beside
// it. No network is asked.
//
// It promises an ordinary image, as a base image of the distribution would be: one
// layer, no account of the Sprout, none of the places of a Terrarium. An image is
// made once for each state of the host's programs and kept in the directory for
// temporary files.
package imagetest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/hold"
)

// packages are those of Debian whose programs an image has.
var packages = []string{
	"base-files", "bash", "coreutils", "dash", "debianutils", "diffutils", "findutils", "git", "grep", "gzip",
	"libc-bin", "mawk", "perl-base", "procps", "sed", "tar", "util-linux",
}

// needed are the programs without which an image would be of no use to a test.
var needed = []string{"bash", "cat", "dd", "env", "find", "git", "grep", "id", "ls", "perl", "ps", "setpriv", "setsid", "sh", "sort", "tr"}

// shared are parts of /usr/share and /usr/lib that programs need and that ls in no
// directory of programs.
var shared = []string{"/usr/lib/locale/C.utf8", "/usr/share/git-core/templates", "/usr/share/zoneinfo/Etc/UTC"}

// etc is the part of /etc that is copied as it is: public files of packages.
var etc = []string{
	"/etc/debian_version", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/localtime", "/etc/os-release", "/etc/protocols", "/etc/services", "/etc/ssl/certs/ca-certificates.crt",
}

// unneeded are parts of packages that only a network needs, and that bring the most
// libraries.
var unneeded = []string{"git-daemon", "git-http-", "git-imap-send", "git-remote-", "git-shell", "scalar"}

const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Debian returns the directory of an OCI layout with one image, which has no tag. On a
// host that is no Debian the test is skipped.
func Debian(t testing.TB) string { return get(t, &debian) }

// GoBuildCache is where an image that has Go keeps what of the standard library a small
// program and its test need, compiled: an emulated machine would take many minutes for it.
// It can only be read there.
const GoBuildCache = "/usr/local/go-build"

// WithGo is [Debian] with the Go toolchain that runs the test, at /usr/local/go.
func WithGo(t testing.TB) string { return get(t, &withGo) }

// made is an image that was made by this process, or why it was not.
type made struct {
	once sync.Once
	add  func(*files) error
	path string
	err  error
}

var (
	debian = made{add: addDebian}
	withGo = made{add: func(f *files) error { return errors.Join(addDebian(f), addGo(f)) }}
)

// errSkip is that this host has not what an image is made of.
var errSkip = errors.New("this host lacks")

func get(t testing.TB, m *made) string {
	t.Helper()
	m.once.Do(func() { m.path, m.err = m.make() })
	if errors.Is(m.err, errSkip) {
		t.Skip(m.err)
	}
	if m.err != nil {
		t.Fatal(m.err)
	}
	return m.path
}

func (m *made) make() (string, error) {
	f := &files{list: map[string]file{}}
	if err := m.add(f); err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, f.key())
	if _, err := os.Stat(dir); err == nil {
		return dir, os.Chtimes(dir, time.Time{}, time.Now())
	}
	if err := prune(cache); err != nil {
		return "", err
	}
	making, err := os.MkdirTemp(cache, ".making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(making)
	if err := f.writeLayout(making); err != nil {
		return "", err
	}
	if err := os.Rename(making, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err // a test of another process may have been faster
	}
	return dir, forget(cache, dir)
}

// forget removes the images of programs that this host had before, if no test can still
// use them.
func forget(cache, but string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(cache, e.Name())
		if info, err := e.Info(); err != nil || path == but || time.Since(info.ModTime()) < 24*time.Hour {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// cacheDir is where this account's images are kept. Another account's are not read: they
// could be anything.
func cacheDir() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("tendril-imagetest-%d", os.Geteuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, hold.CheckOurs(dir)
}

// unused is for how long nobody may have asked for an image that is removed. No test takes
// that long.
const unused = time.Hour

// prune removes what was made of programs that this host no longer has, or not as they were.
func prune(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), compiled) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unused {
			if err := os.RemoveAll(filepath.Join(cache, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// key is a digest of the names, sizes and times of what the image is made of.
func (f *files) key() string {
	h := sha256.New()
	for _, p := range f.sorted() {
		e := f.list[p]
		fmt.Fprintf(h, "%q %v %d %d %q\n", p, e.mode, e.size, e.time.UnixNano(), e.target)
	}
	fmt.Fprintf(h, "%q\n", f.env)
	return hex.EncodeToString(h.Sum(nil))[:32]
}

func addDebian(f *files) error {
	if _, err := exec.LookPath("dpkg"); err != nil {
		return fmt.Errorf("%w dpkg: images for tests are made of a Debian's programs", errSkip)
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if _, err := os.Lstat("/" + dir); err == nil {
			f.addDir("/" + dir)
		}
	}
	for _, dir := range []string{"/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys", "/tmp", "/usr", "/var", "/var/tmp"} {
		f.addDir(dir)
	}
	// One question: of a package that is not there the others are listed all the same.
	out, _ := exec.Command("dpkg", append([]string{"-L"}, packages...)...).Output()
	for p := range strings.Lines(string(out)) {
		p = strings.TrimSpace(p)
		switch real, err := filepath.EvalSymlinks(filepath.Dir(p)); {
		case err != nil:
		case slices.ContainsFunc(unneeded, func(name string) bool { return strings.HasPrefix(filepath.Base(p), name) }):
		case strings.HasSuffix(real, "bin"), strings.HasPrefix(p, "/usr/lib/") && !strings.HasPrefix(p, "/usr/lib/systemd"):
			if err := f.add(p); err != nil {
				return err
			}
		}
	}
	for _, p := range append(etc, shared...) {
		if err := f.addAll(p, nil); err != nil {
			return err
		}
	}
	for _, name := range append([]string{"awk"}, needed...) {
		p, err := exec.LookPath(name)
		if err != nil {
			return fmt.Errorf("%w %s: install one of the packages %s", errSkip, name, strings.Join(packages, " "))
		}
		if err := f.add(p); err != nil {
			return err
		}
	}
	f.env = []string{"PATH=" + path}
	return f.addLibraries()
}

func addGo(f *files) error {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	root := strings.TrimSpace(string(out))
	if err != nil || root == "" {
		return fmt.Errorf("%w the Go toolchain: %w", errSkip, err)
	}
	for _, part := range []string{"VERSION", "go.env", "bin", "lib", "pkg/include", "pkg/tool", "src"} {
		err := f.addTree(filepath.Join(root, part), filepath.Join("/usr/local/go", part), func(p string, d fs.DirEntry) bool {
			return d.IsDir() && d.Name() == "testdata" || strings.HasSuffix(p, "_test.go")
		})
		if err != nil {
			return err
		}
	}
	f.env = []string{"PATH=/usr/local/go/bin:" + path}
	packages, err := compileOnce()
	if err != nil {
		return err
	}
	return f.addTree(packages, GoBuildCache, nil)
}
