//go:build linux

package guest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

const (
	sproutUID = 70707
	sproutGID = 70707
)

// stomaBinary is cmd/stoma, built once by TestMain.
var stomaBinary string

func TestMain(m *testing.M) {
	if os.Getenv(shimEnv) != "" {
		fmt.Fprintln(os.Stderr, "shim:", shim(os.Args[1:]))
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "stoma-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stomaBinary = filepath.Join(dir, "stoma")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", stomaBinary, "tendril/cmd/stoma")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the stoma: %v\n%s", err, out)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// ground is a place where the guest half runs as PID 1.
type ground struct {
	name  string
	start func(t testing.TB, g setup) *exec.Cmd
	plain bool // the base is brought in, and nothing is mounted
}

// setup is what a test wants around the guest half.
type setup struct {
	base func(dir string) // fills the base tree; nil: empty
	args []string         // more arguments of init
	bare bool             // no overlay
	root bool             // needs a guest half that is uid 0 inside
	size int              // bytes of scratch; 0 is 64 MiB
	few  bool             // scratch holds not more than a hundred files
	conn func(string, *stoma.Stream)
}

var grounds = []ground{
	{"linux", startLinux, false},
	{"linux-without-cgroups", startLinuxWithoutGroups, false},
	{"gvisor", startGvisor, false},
	{"linux-plain", startPlain, true},
}

// onEach runs the test on every ground that this machine has.
func onEach(t *testing.T, s setup, f func(t *testing.T, c *stoma.Client)) {
	for _, g := range grounds {
		t.Run(g.name, func(t *testing.T) { f(t, open(t, g, s)) })
	}
}

// open starts the guest half on the ground and connects to it.
func open(t testing.TB, g ground, s setup) *stoma.Client {
	t.Helper()
	if g.plain && (s.bare || s.root) {
		t.Skip("on a plain ground the guest half has a workspace and no account of its own")
	}
	cmd := g.start(t, s)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := stoma.Connect(ctx(t), pipePair{out, in}, stoma.Options{Version: "test", Conn: s.conn})
	t.Cleanup(func() {
		if c != nil {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("stoma init: %v", err)
		}
		if stderr.Len() > 0 {
			t.Logf("stderr of init: %s", stderr)
		}
	})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	// A read that never ends would hang the test without saying where.
	context.AfterFunc(ctx(t), func() { _ = c.Close() })
	if g.plain {
		if err := c.Plant(ctx(t), tarOf(t, makeBase(t, s))); err != nil {
			t.Fatalf("bring the base: %v", err)
		}
	}
	return c
}

type pipePair struct {
	io.Reader
	io.WriteCloser
}

func (p pipePair) Close() error {
	return errors.Join(p.WriteCloser.Close(), p.Reader.(io.Closer).Close())
}

// ctx ends before the test binary would, so that a hang names the call.
func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func initArgs(s setup) []string {
	args := []string{"init", "--user", fmt.Sprintf("%d:%d", sproutUID, sproutGID)}
	if !s.bare {
		args = append(args, "--overlay", "/.tendril/base:/.tendril/scratch:/workspace")
	}
	return append(args, s.args...)
}

// makeBase fills the base tree and gives it to the Sprout.
func makeBase(t testing.TB, s setup) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "base")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if s.base != nil {
		s.base(dir)
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, sproutUID, sproutGID)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func scratchSize(s setup) int {
	if s.size == 0 {
		return 64 << 20
	}
	return s.size
}

// scratchOptions is what follows size= of a mount.
func scratchOptions(s setup) string {
	options := strconv.Itoa(scratchSize(s))
	if s.few {
		options += ",nr_inodes=100"
	}
	return options
}

func startGvisor(t testing.TB, s setup) *exec.Cmd {
	if s.few {
		t.Skip("gVisor takes a bound of files and does not keep it")
	}
	runsc := os.Getenv("TENDRIL_TEST_RUNSC")
	if runsc == "" {
		t.Skip("TENDRIL_TEST_RUNSC names no runsc binary")
	}
	if os.Getuid() != 0 {
		t.Skip("the bundle of this test needs root")
	}
	bundle := t.TempDir()
	root := filepath.Join(bundle, "rootfs")
	makeRoot(t, root)
	type mount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	mounts := []mount{
		{"/proc", "proc", "proc", nil},
		{"/dev", "tmpfs", "tmpfs", nil},
		{"/tmp", "tmpfs", "tmpfs", []string{"mode=1777", "nosuid", "nodev"}},
		{"/.tendril/scratch", "tmpfs", "tmpfs", []string{"mode=0700", fmt.Sprintf("size=%d", scratchSize(s)), "nosuid", "nodev"}},
		{"/.tendril/base", "bind", makeBase(t, s), []string{"ro", "rbind", "nosuid", "nodev"}},
		{"/.tendril/stoma", "bind", stomaBinary, []string{"ro", "bind", "nosuid", "nodev"}},
	}
	for _, dir := range toolchain() {
		mounts = append(mounts, mount{dir, "bind", dir, []string{"ro", "rbind", "nosuid", "nodev"}})
	}
	caps := []string{"CAP_SYS_ADMIN", "CAP_SETPCAP", "CAP_SETUID", "CAP_SETGID", "CAP_KILL",
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SYS_CHROOT"}
	spec := map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user":         map[string]any{"uid": 0, "gid": 0},
			"args":         append([]string{"/.tendril/stoma"}, initArgs(s)...),
			"env":          []string{},
			"cwd":          "/",
			"capabilities": map[string]any{"bounding": caps, "effective": caps, "permitted": caps},
		},
		"root":   map[string]any{"path": root, "readonly": true},
		"mounts": mounts,
		"linux": map[string]any{"namespaces": []map[string]any{
			{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
		}},
	}
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(bundle, "state")
	id := fmt.Sprintf("stoma-%d-%d", os.Getpid(), time.Now().UnixNano())
	global := []string{"--root", state, "--network=none", "--ignore-cgroups", "--in-sandbox-cgroup=v2", "--directfs=false"}
	t.Cleanup(func() {
		_ = exec.Command(runsc, append(global, "delete", "-force", id)...).Run() // it is gone when the test went well
		_ = unix.Unmount(filepath.Join(state, "null-netns"), unix.MNT_DETACH)    // runsc leaves it behind
	})
	return exec.Command(runsc, append(global, "run", "-bundle", bundle, id)...)
}

// toolchain lists the directories of this host that commands need.
func toolchain() []string {
	var dirs []string
	for _, d := range []string{"/usr", "/etc/alternatives"} {
		if _, err := os.Stat(d); err == nil {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// makeRoot makes an empty root file system with the places to mount at.
func makeRoot(t testing.TB, root string) {
	t.Helper()
	for _, d := range []string{"proc", "dev", "tmp", "usr", "etc/alternatives", "workspace", "var/tmp", ".tendril/base", ".tendril/scratch"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+l, filepath.Join(root, l)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, ".tendril/stoma"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	// As in a Terrarium: the Sprout may enter and execute the Stoma, as probes do.
	for name, mode := range map[string]os.FileMode{".tendril": 0o711, "var/tmp": 0o777 | os.ModeSticky} {
		if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// shimEnv marks this test binary as the program that prepares a PID 1 on Linux.
const shimEnv = "STOMA_TEST_SHIM"

func startLinux(t testing.TB, s setup) *exec.Cmd {
	dir, ok := cgroup2()
	if !ok {
		t.Skip("no cgroup v2 hierarchy is mounted here")
	}
	group := filepath.Join(dir, fmt.Sprintf("stoma-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("cannot make a cgroup: %v", err)
	}
	t.Cleanup(func() {
		dirs, _ := filepath.Glob(group + "/sprout/*")
		for _, d := range append(dirs, group+"/sprout", group) {
			if err := unix.Rmdir(d); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
				t.Errorf("a cgroup is left: %s: %v", d, err)
			}
		}
	})
	return startShim(t, s, group)
}

func startLinuxWithoutGroups(t testing.TB, s setup) *exec.Cmd {
	return startShim(t, s, "")
}

func startShim(t testing.TB, s setup, group string) *exec.Cmd {
	if os.Getuid() != 0 {
		t.Skip("making a PID namespace with an overlay needs root")
	}
	root := filepath.Join(t.TempDir(), "root")
	makeRoot(t, root)
	args := []string{root, makeBase(t, s), scratchOptions(s), group}
	cmd := exec.Command("/proc/self/exe", append(args, initArgs(s)...)...)
	cmd.Env = []string{shimEnv + "=1", "STOMA_TEST_BINARY=" + stomaBinary}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET}
	return cmd
}

func cgroup2() (string, bool) {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir, true
		}
	}
	return "", false
}

// shim is PID 1 of fresh PID and mount namespaces. It does what a provider does
// for the guest half, then becomes it.
func shim(args []string) error {
	root, base, size, group, stomaArgs := args[0], args[1], args[2], args[3], args[4:]
	must := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "shim: %s: %v\n", what, err)
			os.Exit(1)
		}
	}
	must("make mounts private", unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""))
	bind := func(from, to string) {
		must("bind "+from, unix.Mount(from, root+to, "", unix.MS_BIND|unix.MS_REC, ""))
		must("seal "+to, unix.Mount("", root+to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID, ""))
	}
	for _, d := range toolchain() {
		bind(d, d)
	}
	bind(base, "/.tendril/base")
	bind(os.Getenv("STOMA_TEST_BINARY"), "/.tendril/stoma")
	must("proc", unix.Mount("proc", root+"/proc", "proc", 0, ""))
	must("tmp", unix.Mount("tmpfs", root+"/tmp", "tmpfs", unix.MS_NOSUID, "mode=1777"))
	must("scratch", unix.Mount("tmpfs", root+"/.tendril/scratch", "tmpfs", unix.MS_NOSUID, "mode=0700,size="+size))
	must("dev", unix.Mount("tmpfs", root+"/dev", "tmpfs", unix.MS_NOSUID, "mode=0755"))
	for name, minor := range map[string]int{"null": 3, "zero": 5, "tty": -1} {
		dev := unix.Mkdev(1, uint32(minor))
		if minor < 0 {
			dev = unix.Mkdev(5, 0)
		}
		unix.Umask(0)
		must("mknod", unix.Mknod(root+"/dev/"+name, unix.S_IFCHR|0o666, int(dev)))
		unix.Umask(0o022)
	}
	must("pts", os.Mkdir(root+"/dev/pts", 0o755))
	must("devpts", unix.Mount("devpts", root+"/dev/pts", "devpts", unix.MS_NOSUID, "newinstance,ptmxmode=0666,mode=0620"))
	must("ptmx", os.Symlink("pts/ptmx", root+"/dev/ptmx"))
	must("loopback", loopbackUp())
	if group != "" {
		must("enter the cgroup", os.WriteFile(group+"/cgroup.procs", []byte("0"), 0))
		must("cgroup namespace", unix.Unshare(unix.CLONE_NEWCGROUP))
	} else {
		// Where the mount point exists already the guest half makes no groups.
		must("cgroup", os.Mkdir(root+"/.tendril/scratch/cgroup", 0o700))
	}
	if os.Getenv("STOMA_TEST_PLAIN") != "" {
		must("workspace", unix.Mount("tmpfs", root+"/workspace", "tmpfs", unix.MS_NOSUID, fmt.Sprintf("mode=0755,uid=%d,gid=%d,size=%s", sproutUID, sproutGID, size)))
	}
	must("chroot", unix.Chroot(root))
	must("chdir", unix.Chdir("/"))
	if os.Getenv("STOMA_TEST_PLAIN") != "" {
		must("hold nothing", holdNothing())
	}
	return unix.Exec("/.tendril/stoma", append([]string{"stoma"}, stomaArgs...), nil)
}

// loopbackUp switches on the only interface of a fresh network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
