//go:build linux

package microvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/erofs"
	"tendril/stoma"
	"tendril/stoma/binary"
	"tendril/terrarium"
	"tendril/terrarium/microvm/guestimage"
	"tendril/terrarium/microvm/jail"
	"tendril/terrarium/terrariumtest"
)

// shared is what the tests of this process make once.
var shared struct {
	dir   string // removed at the end
	guest sync.Once
	err   error
}

// The test binary is also the program that re-executes as the jail.
func TestMain(m *testing.M) {
	if jail.Invoked(os.Args[0]) {
		jail.Main()
	}
	dir, err := os.MkdirTemp("", "tendril-microvm-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared.dir = dir
	status := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// packageVariable names the Debian package of a kernel that the guest is made from.
const packageVariable = "TENDRIL_TEST_KERNEL_PACKAGE"

// guestVariable names the guest that a test which started this one made.
const guestVariable = "TENDRIL_TEST_GUEST"

func kernelPackage(t testing.TB) string {
	t.Helper()
	path := os.Getenv(packageVariable)
	if path == "" {
		t.Skipf("%s is not set: run `scripts/guest-kernel DIR`, and name the package that it prints", packageVariable)
	}
	return path
}

// config has the real parts: this test as the jail, the Stoma out of tendril, and a guest
// that is made once.
func config(t testing.TB) Config {
	t.Helper()
	source := guestimage.Source{Package: kernelPackage(t)}
	c := Config{Guest: os.Getenv(guestVariable)}
	if c.Guest == "" {
		c.Guest = filepath.Join(shared.dir, "guest")
	}
	var err error
	if c.Program, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	if c.Stoma, err = binary.Stoma.Install(shared.dir); err != nil {
		t.Skip(err)
	}
	shared.guest.Do(func() {
		if os.Getenv(guestVariable) != "" {
			return
		}
		if _, shared.err = guestimage.Build(context.Background(), source, c.Guest); shared.err == nil {
			shared.err = os.Setenv(guestVariable, c.Guest) // for a test that starts this program again
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return c
}

// emulated is the wall with the real QEMU, in which no test waits for KVM: whether that
// works is tried by a test of its own.
func emulated(t testing.TB) *provider {
	t.Helper()
	terrariumtest.SkipTested(t, terrariumtest.Emulated)
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skipf("QEMU is not here (%v): %s", err, installQEMU)
	}
	p := QEMU(config(t)).(*provider)
	key, err := p.proofKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := writeProof(filepath.Join(p.Guest, "kvm-qemu.json"), proof{Key: key, Why: "this test does not try it"}); err != nil {
		t.Fatal(err)
	}
	return p
}

// specFor asks for a Terrarium over an empty workspace and a root with the programs of
// busybox, under a name that is this process's own.
func specFor(t testing.TB, run string) terrarium.Spec {
	t.Helper()
	// Not t.TempDir: its paths are long, and a socket's may have 107 bytes.
	top, err := os.MkdirTemp(shared.dir, "run-")
	if err != nil {
		t.Fatal(err)
	}
	root, base, dir := filepath.Join(top, "root"), filepath.Join(top, "base"), filepath.Join(top, "dir")
	err = errors.Join(writeBusyboxRoot(t, root), writeImage(base, func(*erofs.Writer) error { return nil }), os.Mkdir(dir, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	return terrarium.Spec{
		Run:       fmt.Sprintf("%s-%d", run, os.Getpid()),
		Rootfs:    terrarium.Rootfs{Image: &terrarium.Image{Path: root, Digest: "sha256:" + strings.Repeat("0", 64)}},
		Workspace: terrarium.Workspace{Image: base, Dir: dir},
		Env:       []string{"PATH=/bin", "HOME=/home/sprout"},
		User:      terrarium.DefaultUser,
		Memory:    terrarium.Limit[int64]{Value: 256 << 20},
		Disk:      terrarium.Limit[int64]{Value: 64 << 20},
	}
}

// writeBusyboxRoot is the bare root with Debian's static busybox.
func writeBusyboxRoot(t testing.TB, path string) error {
	program, err := os.Open("/bin/busybox")
	if err != nil {
		t.Skipf("this test needs Debian's busybox-static: %v", err)
	}
	defer program.Close()
	return writeImage(path, func(image *erofs.Writer) error {
		if err := fillBareRoot(image); err != nil {
			return err
		}
		_, err := image.File("bin/busybox", erofs.Attr{Perm: 0o755}, program)
		for _, name := range []string{"cat", "dd", "echo", "id", "ls", "sh", "sleep", "sync", "true", "uname", "wc"} {
			err = errors.Join(err, image.Symlink("bin/"+name, "busybox", erofs.Attr{}))
		}
		return err
	})
}

// opened opens a Terrarium as the Stem would, and closes it with the test.
func opened(t testing.TB, p terrarium.Provider, spec terrarium.Spec) terrarium.Terrarium {
	t.Helper()
	box, err := terrarium.Validated(p).Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, box) })
	return box
}

func closed(t testing.TB, box terrarium.Terrarium) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := box.Close(ctx); err != nil {
		t.Errorf("closing the Terrarium: %v", err)
	}
}

// run runs a command inside and returns what it said.
func run(t testing.TB, inside *stoma.Client, argv ...string) string {
	t.Helper()
	process, err := inside.Exec(t.Context(), stoma.ExecRequest{Argv: argv, Env: []string{"PATH=/bin", "HOME=/home/sprout"}, Dir: "/workspace"})
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	process.Stdin.Close()
	out, err := io.ReadAll(process.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := process.Wait(t.Context())
	if err != nil || exit.Code == nil || *exit.Code != 0 {
		t.Fatalf("%q ended with %+v (%v)", argv, exit, err)
	}
	return string(out)
}
