//go:build linux

package runsc

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tendril/erofs"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

// imageOnly is a file that no host has.
const imageOnly = "/etc/from-the-image"

// imagePrograms are what the suite runs inside.
var imagePrograms = []string{
	"sh", "bash", "cat", "dd", "echo", "env", "find", "grep", "head", "id", "kill", "ls", "mkdir", "perl", "rm", "setsid",
	"sleep", "sort", "tail", "touch", "tr", "yes",
}

// hostImage makes a root file system of a few programs of this host and the places that
// every image has.
func hostImage(t *testing.T) terrariumtest.Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.erofs")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	image := erofs.New(f, erofs.Options{Time: time.Unix(1, 0)})
	var errs []error
	dir := func(path string, mode fs.FileMode) { errs = append(errs, image.Dir(path[1:], erofs.Attr{Perm: mode})) }
	file := func(path string, mode fs.FileMode, content []byte) {
		_, err := image.File(path[1:], erofs.Attr{Perm: mode}, bytes.NewReader(content))
		errs = append(errs, err)
	}
	dir("/.tendril", 0o711)
	for _, path := range []string{"/.tendril/private", "/.tendril/private/base", "/.tendril/private/scratch", "/root"} {
		dir(path, 0o700)
	}
	for _, path := range []string{"/dev", "/home/sprout", "/proc", "/run", "/sys", "/var", "/workspace"} {
		dir(path, 0o755)
	}
	dir("/tmp", 0o777|fs.ModeSticky)
	for _, path := range []string{"/.tendril/stoma", terrarium.SproutInside} {
		file(path, 0o755, nil)
	}
	for _, path := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/java/cacerts", imageOnly} {
		file(path, 0o644, nil)
	}
	file("/etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/usr/sbin/nologin\nsprout:x:70707:70707::/home/sprout:/bin/sh\n"))
	file("/etc/group", 0o644, []byte("root:x:0:\nsprout:x:70707:\n"))
	for path, content := range programsOfThisHost(t) {
		file(path, 0o755, content)
	}
	for _, link := range []string{"bin", "lib", "lib64"} {
		errs = append(errs, image.Symlink(link, "usr/"+link, erofs.Attr{}))
	}
	if err := errors.Join(append(errs, image.Close(), f.Close())...); err != nil {
		t.Fatal(err)
	}
	return terrariumtest.Image{
		Image: terrarium.Image{Path: path, Digest: "sha256:" + strings.Repeat("5", 64)},
		Only:  imageOnly,
	}
}

// programsOfThisHost are the programs, their libraries and what perl needs for Socket, by
// path inside.
func programsOfThisHost(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	take := func(path string) {
		if strings.HasPrefix(path, "/lib") { // of a host with a merged /usr
			path = "/usr" + path
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = content
	}
	library := regexp.MustCompile(`/\S+\.so\S*`)
	withLibraries := func(path string) {
		take(path)
		out, err := exec.Command("ldd", path).CombinedOutput()
		if err != nil {
			t.Skipf("needs ldd, to make an image of this host's programs: %v: %s", err, out)
		}
		for _, name := range library.FindAllString(string(out), -1) {
			take(name)
		}
	}
	for _, name := range imagePrograms {
		withLibraries("/usr/bin/" + name)
	}
	out, err := exec.Command("perl", "-MSocket", "-e", `print "$_\n" for values %INC, @DynaLoader::dl_shared_objects`).Output()
	if err != nil {
		t.Skipf("needs perl with Socket: %v", err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		if strings.HasSuffix(path, ".so") {
			withLibraries(path)
		} else {
			take(path)
		}
	}
	return files
}
