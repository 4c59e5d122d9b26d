//go:build linux

package imagetest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tendril/erofs"
	"tendril/rootfs"
	"tendril/rootfs/image"
	"tendril/rootfs/image/imagetest"
)

// unpack puts the image of a layout into a store, and then into a directory.
func unpack(t *testing.T, layout string) (image.Image, string) {
	t.Helper()
	store, err := image.OpenStore(filepath.Join(t.TempDir(), "images"), image.Options{
		User: rootfs.User{UID: 70707, GID: 70707, Name: "sprout", Home: "/home/sprout"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, release, err := store.Get(context.Background(), layout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	f, err := os.Open(got.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := erofs.Open(f, got.Size)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tar := exec.Command("tar", "-C", dir, "--numeric-owner", "-xpf", "-")
	in, err := tar.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	tar.Stderr = os.Stderr
	if err := tar.Start(); err != nil {
		t.Fatal(err)
	}
	if err := erofs.WriteTar(in, r); err != nil {
		t.Error(err)
	}
	in.Close()
	if err := tar.Wait(); err != nil {
		t.Fatal(err)
	}
	return got, dir
}

// inside runs a script in the directory as its root, as the Sprout's account.
func inside(t *testing.T, dir string, env []string, script string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	// The mounts are seen by nobody else, and go with the command.
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "sh", "-ec", `
		mount -t proc proc "$1/proc"
		for d in null zero urandom; do : >"$1/dev/$d"; mount --bind "/dev/$d" "$1/dev/$d"; done
		exec chroot --userspec=70707:70707 "$1" /bin/sh -ec "$2"`, "sh", dir, script)
	cmd.Env = append(env, "HOME=/tmp")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

func TestDebian(t *testing.T) {
	got, dir := unpack(t, imagetest.Debian(t))
	t.Logf("%d entries, %d bytes, left out %+v", got.Entries, got.Size, got.LeftOut)
	if got.Size > 80<<20 {
		t.Errorf("the image has %d bytes, above 80 MB", got.Size)
	}
	out := inside(t, dir, got.Env, `
		perl -MSocket -MIO::Handle -e 'socket(my $s, AF_INET, SOCK_STREAM, 0) or die; print "perl\n"'
		bash -c 'echo bash'
		awk 'BEGIN {print "awk"}'
		id; ps --version; setpriv --version
		git init -q /tmp/r && cd /tmp/r && echo one >file && git add file
		git -c user.name=a -c user.email=a@b commit -qm first && git log --format=%s
		tail -c1 file; head -1 file; seq 3 | sort -r | tr 1 x; find . -name file; yes | dd bs=1 count=1 2>/dev/null
		setsid --wait touch here; ls here; grep -c one file; sleep 0; env`)
	for _, want := range []string{"perl\n", "bash\n", "awk\n", "uid=70707(sprout) gid=70707(sprout)", "first\n", "x\n", "./file\n", "here\n", "PATH="} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the output:\n%s", want, out)
		}
	}
}

func TestWithGo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	got, dir := unpack(t, imagetest.WithGo(t))
	t.Logf("%d entries, %d bytes", got.Entries, got.Size)
	out := inside(t, dir, got.Env, `
		mkdir /tmp/m && cd /tmp/m && export CGO_ENABLED=0
		printf 'module m\ngo 1.21\n' >go.mod
		printf 'package main\nimport ("fmt"; "net/http")\nfunc main() { fmt.Println("built", http.StatusOK) }\n' >main.go
		printf 'package main\nimport "testing"\nfunc TestIt(t *testing.T) { main() }\n' >main_test.go
		go build -o built . && ./built && go test ./...`)
	for _, want := range []string{"built 200\n", "ok  \tm"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the output:\n%s", want, out)
		}
	}
}
