//go:build linux

package jail

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if Invoked(os.Args[0]) {
		Main()
	}
	os.Exit(m.Run())
}

const busybox = "/bin/busybox"

// jailed starts this test as a jail, with an order, and returns what the program said.
func jailed(t *testing.T, order []byte, keepOpen bool, passed ...*os.File) (stdout, stderr string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.Write(order); err != nil {
		t.Fatal(err)
	}
	if keepOpen {
		defer w.Close()
	} else {
		w.Close()
	}
	var out, said bytes.Buffer
	cmd := exec.Command(self)
	cmd.Args = []string{Name}
	cmd.Env = []string{"SECRET=of-the-caller"}
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.ExtraFiles = append([]*os.File{r}, passed...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	_ = cmd.Run() // what it said is what counts
	return out.String(), said.String()
}

// shell is an order to run a script.
func shell(t *testing.T, script string) Order {
	t.Helper()
	if _, err := os.Stat(busybox); err != nil {
		t.Skipf("this test needs Debian's busybox-static: %v", err)
	}
	o := Order{
		Root: t.TempDir(), Program: busybox, Args: []string{"sh", "-c", script}, MaxFile: 1 << 20,
		Shown: []Shown{{Source: busybox, Target: busybox}, {Source: "/proc", Target: "/proc"}},
		Links: map[string]string{"/alias": "bin/busybox"},
	}
	if os.Getuid() == 0 {
		o.UID = 1_900_000_000
	}
	return o
}

func encode(t *testing.T, o Order) []byte {
	t.Helper()
	line, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return append(line, '\n')
}

// run runs a script in a jail and wants it to succeed.
func run(t *testing.T, o Order, passed ...*os.File) string {
	t.Helper()
	o.FDs = len(passed)
	out, said := jailed(t, encode(t, o), true, passed...)
	if said != "" {
		t.Errorf("it said %q", said)
	}
	return out
}

func TestJailShowsWhatIsListed(t *testing.T) {
	given := filepath.Join(t.TempDir(), "given")
	if err := os.WriteFile(given, []byte("the file\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	o := shell(t, `echo /*; echo /bin/*; /bin/busybox cat /data/file; /bin/busybox ls /data
		(echo x > /planted) 2>&- && echo planted; (echo x > /data/file) 2>&- && echo changed; (echo x > /scratch/new) && echo written; exit 0`)
	scratch := t.TempDir()
	if err := os.Chmod(scratch, 0o777); err != nil {
		t.Fatal(err)
	}
	o.Shown = append(o.Shown, Shown{Source: given, Target: "/data/file"}, Shown{Source: scratch, Target: "/scratch", Writable: true})
	want := "/alias /bin /data /proc /scratch\n/bin/busybox\nthe file\nfile\nwritten\n"
	if got := run(t, o); got != want {
		t.Errorf("inside is %q, want %q", got, want)
	}
	if data, err := os.ReadFile(given); err != nil || string(data) != "the file\n" {
		t.Errorf("the file is %q now (%v)", data, err)
	}
	if left, err := os.ReadDir(o.Root); err != nil || len(left) > 0 {
		t.Errorf("of the jail there is %v left on the host (%v)", left, err)
	}
}

func TestJailedHasNothing(t *testing.T) {
	secret, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	if _, err := unix.FcntlInt(secret.Fd(), unix.F_SETFD, 0); err != nil { // as if our own parent had left it open
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	got := run(t, shell(t, `/bin/busybox cat /proc/self/status; /bin/busybox ls /proc/self/fd; echo "environment: $(/bin/busybox env)"; ulimit -c; echo $$`), w)
	for _, want := range []string{"CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "CapInh:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("without %q: %s", want, got)
		}
	}
	if os.Getuid() == 0 && (!strings.Contains(got, "Uid:\t1900000000\t1900000000\t1900000000\t1900000000\n") || !strings.Contains(got, "Gid:\t1900000000\t1900000000\t1900000000\t1900000000\n") || !strings.Contains(got, "Groups:\t \n")) {
		t.Errorf("its account is %s", got)
	}
	_, rest, _ := strings.Cut(got, "Mems_allowed")
	lines := strings.Split(strings.TrimSpace(rest), "\n")
	var fds []string
	for _, line := range lines {
		if len(line) == 1 {
			fds = append(fds, line)
		}
	}
	// Of ls itself: one for the directory. Then the limit of core files, and the pid.
	if want := []string{"0", "1", "2", "3", "4", "0", "1"}; !slices.Equal(fds, want) {
		t.Errorf("its descriptors, limit of core files and pid are %q, want %q: %s", fds, want, rest)
	}
	if strings.Contains(got, "SECRET") {
		t.Errorf("its environment is the caller's: %s", got)
	}
}

func TestDevicesAreGiven(t *testing.T) {
	o := shell(t, `/bin/busybox ls -ln /dev; /bin/busybox cat /dev/null && echo opened`)
	o.Devices = []string{"/dev/null"}
	got := run(t, o)
	owner := "0"
	if o.UID > 0 {
		owner = fmt.Sprint(o.UID)
	}
	if fields := strings.Fields(got); !strings.Contains(got, "opened") || len(fields) < 5 || !strings.Contains(got, " "+owner+" ") && os.Getuid() == 0 {
		t.Errorf("the device is %q", got)
	}
}

func TestOrdersThatAreNone(t *testing.T) {
	good := shell(t, "exit 0")
	lost := good
	lost.Shown = append(slices.Clone(good.Shown), Shown{Source: "/nowhere", Target: "/x"})
	away := good
	away.Program = "/bin/away"
	for name, c := range map[string]struct {
		order []byte
		open  bool
		names string
	}{
		"nothing":                 {nil, false, "read the order"},
		"half an order":           {encode(t, good)[:40], false, "read the order"},
		"an order too long":       {bytes.Repeat([]byte("x"), MaxOrder-1), false, "read the order"},
		"no JSON":                 {[]byte("start it\n"), true, "invalid character"},
		"a Stem that is gone":     {encode(t, good), false, "the Stem is gone"},
		"a file that is not":      {encode(t, lost), true, "/nowhere"},
		"a program that is not":   {encode(t, away), true, "execute /bin/away"},
		"descriptors that are no": {encode(t, Order{Root: t.TempDir(), Program: busybox, FDs: 7}), true, "keep the descriptor"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			out, said := jailed(t, c.order, c.open)
			if out != "" || !strings.HasPrefix(said, "jail: ") || !strings.Contains(said, c.names) {
				t.Errorf("it printed %q and said %q, want %q", out, said, c.names)
			}
		})
	}
}
