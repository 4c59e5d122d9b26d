//go:build linux

package probe

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary is also the Stoma's stand-in: PID 1 of a namespace, or `probe`.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "probe":
			os.Exit(Main(os.Args[2:]))
		case "limited": // to few processes, as setrlimit(2) counts them
			if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 300, Max: 300}); err != nil {
				os.Exit(17)
			}
			os.Exit(Main([]string{"Q07"}))
		case "init":
			os.Exit(initMain(os.Args[2], os.Args[3:]))
		}
	}
	os.Exit(m.Run())
}

// canary is a value that a probe may see and must not print.
const canary = "canary-5f2c90b1"

// initMain is PID 1 of a pid namespace of its own, so that no probe ever touches the
// PID 1 of the machine. It runs each probe without any other wall, as the account.
func initMain(account string, ids []string) int {
	uid, err := strconv.ParseUint(account, 10, 32)
	if err != nil {
		return 10
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, "make mounts private:", err)
		return 11
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fmt.Fprintln(os.Stderr, "mount proc:", err)
		return 12
	}
	if os.Getenv("PROBE_TEST_PLANTS") != "" {
		if err := plant(); err != nil {
			fmt.Fprintln(os.Stderr, "plant:", err)
			return 16
		}
	}
	// Somebody else's process, to be seen and signalled.
	other := exec.Command("/bin/sleep", "600")
	if os.Getenv("PROBE_TEST_ROOT") != "" {
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	}
	if err := other.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "start another process:", err)
		return 13
	}
	root, err := os.Open("/")
	if err != nil {
		return 14
	}
	defer root.Close()
	for _, id := range ids {
		c := exec.Command("/proc/self/exe", "probe", id)
		c.Env = append(os.Environ(), "DEPLOY_TOKEN="+canary, "SSH_AUTH_SOCK=/nowhere/agent", "GORACE=atexit_sleep_ms=0")
		c.ExtraFiles = []*os.File{root}
		c.Stderr = os.Stderr
		c.Stdin = root
		if os.Getenv("PROBE_TEST_ROOT") != "" && uid != 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		}
		var out bytes.Buffer
		c.Stdout = &out
		_ = c.Run() // the exit status repeats the result
		if c.ProcessState == nil {
			fmt.Fprintf(os.Stderr, "probe %s did not start\n", id)
			return 15
		}
		fmt.Printf("%d %s", c.ProcessState.ExitCode(), out.String())
		if out.Len() == 0 {
			fmt.Printf("%s said nothing\n", id)
		}
	}
	return 0
}

// plant makes, in the namespaces of this process alone, what a host may have and this
// one may lack: a daemon's socket, a named socket, shared memory, an overlay whose
// layers can be reached, a core limit, foreign files in scratch.
func plant() error {
	if err := unix.Mount("plants", "/run", "tmpfs", 0, "size=1m"); err != nil {
		return err
	}
	if err := unix.Mount("plants", "/tmp", "tmpfs", 0, "size=1m,mode=1777"); err != nil {
		return err
	}
	for _, address := range []string{"/run/docker.sock", "@tendril-plant-" + strconv.Itoa(os.Getpid())} {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: address}); err != nil {
			return err
		}
	}
	if _, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600); err != nil {
		return err
	}
	for _, dir := range []string{"/run/lower", "/run/upper", "/run/work", "/run/merged"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("plant", "/run/merged", "overlay", 0, "lowerdir=/run/lower,upperdir=/run/upper,workdir=/run/work"); err != nil {
		return err
	}
	if err := os.WriteFile("/tmp/foreign", nil, 0o600); err != nil {
		return err
	}
	if err := os.Chown("/tmp/foreign", 12345, 12345); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20})
}

// bare runs probes without a wall and returns what each said.
func bare(t *testing.T, uid int, plants bool, ids ...string) map[string]Result {
	t.Helper()
	c := exec.Command("/proc/self/exe", append([]string{"init", strconv.Itoa(uid)}, ids...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	c.Env = os.Environ()
	if plants {
		c.Env = append(c.Env, "PROBE_TEST_PLANTS=1")
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWIPC | unix.CLONE_NEWNET
	}
	if os.Geteuid() == 0 {
		c.Env = append(c.Env, "PROBE_TEST_ROOT=1")
	} else {
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if c.ProcessState == nil {
		t.Skipf("no pid namespace here: %v", err)
	}
	if code := c.ProcessState.ExitCode(); code == 11 || code == 12 {
		t.Skipf("no proc of a pid namespace here: %s", &stderr)
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	if stderr.Len() > 0 {
		t.Logf("%s", &stderr)
	}
	if bytes.Contains(out, []byte(canary)) {
		t.Errorf("a probe printed the value of a secret:\n%s", out)
	}
	results := map[string]Result{}
	for line := range strings.Lines(string(out)) {
		code, rest, _ := strings.Cut(line, " ")
		r, err := Parse([]byte(rest))
		if err != nil {
			t.Errorf("%v: %q", err, line)
			continue
		}
		if code != strconv.Itoa(exitStatus[r.Status]) {
			t.Errorf("%s is %s and exits with %s", r.ID, r.Status, code)
		}
		results[r.ID] = r
	}
	if len(results) != len(ids) {
		t.Errorf("%d of %d probes answered", len(results), len(ids))
	}
	return results
}
