//go:build linux

package guest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseOfAMachine(t *testing.T) {
	const whole = "--user 7:8 --overlay /l:/s:/t --own-root --machine"
	if cfg, err := parse(strings.Fields(whole + " --recover")); err != nil || !cfg.machine || !cfg.recover {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, bad := range []string{
		"--user 7:8 --machine", "--user 7:8 --overlay /l:/s:/t --machine", "--user 7:8 --overlay /l:/s:/t --own-root --recover",
		"--user 7:8 --plain /w --disk 1 --machine",
	} {
		if _, err := parse(strings.Fields(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestRefusesToBeAMachineOfNone: it mounts, loads modules and restarts.
func TestRefusesToBeAMachineOfNone(t *testing.T) {
	for _, args := range [][]string{nil, {"vsock"}, {"vsock", "more"}} {
		if err := runMachine(args); err == nil {
			t.Errorf("%q was taken for a machine's", args)
		}
	}
	if _, err := openCarrier("pigeon"); err == nil {
		t.Error("an unknown carrier was opened")
	}
}

func TestReadList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	for text, want := range map[string][]string{"": nil, "\x00": {""}, "one\x00": {"one"}, "one\x00\x00two words\n\x00": {"one", "", "two words\n"}} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readList(path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q was read as %q (%v)", text, got, err)
		}
	}
	if err := os.WriteFile(path, []byte("one\x00tw"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readList(path); err == nil {
		t.Errorf("a list that is cut short was read as %q", got)
	}
}

func TestNumberInALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meminfo")
	const text = "MemTotalOther: 5 kB\nMemTotal:       223524 kB\noom_kill 3\noom_kills 9\nodd word\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for begin, want := range map[string]int64{"MemTotal:": 223524, "oom_kill ": 3, "odd ": 0, "absent ": 0} {
		if got := numberIn(path, begin); got != want {
			t.Errorf("after %q is %d, want %d", begin, got, want)
		}
	}
	if memoryTotal() < 1<<20 {
		t.Errorf("this host has %d bytes", memoryTotal())
	}
}

// call is what a filter sees of a system call.
type call struct {
	arch   uint32
	number uint32
	args   [3]uint32
}

// judge runs a filter as the kernel does, as far as ours goes.
func judge(t *testing.T, program []unix.SockFilter, c call) uint32 {
	t.Helper()
	var loaded uint32
	for at := 0; at < len(program); at++ {
		switch f := program[at]; f.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch {
			case f.K == dataNumber:
				loaded = c.number
			case f.K == dataArch:
				loaded = c.arch
			case f.K >= dataArgs && (f.K-dataArgs)%8 == 0 && int(f.K-dataArgs)/8 < len(c.args):
				loaded = c.args[(f.K-dataArgs)/8]
			default:
				t.Fatalf("it looks at byte %d", f.K)
			}
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			if loaded == f.K || f.Code == unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K && loaded > f.K {
				at += int(f.Jt)
			} else {
				at += int(f.Jf)
			}
		case unix.BPF_RET | unix.BPF_K:
			return f.K
		default:
			t.Fatalf("it does %#x", f.Code)
		}
	}
	t.Fatal("it ends without a word")
	return 0
}

func TestFilter(t *testing.T) {
	program := filter()
	if len(program) > 4096 { // BPF_MAXINSNS
		t.Fatalf("it has %d steps", len(program))
	}
	refused := func(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }
	for _, number := range slices.Concat(denied, deniedHere) {
		if got := judge(t, program, call{auditArch, number, [3]uint32{}}); got != refused(unix.EPERM) {
			t.Errorf("the call %d is answered with %#x", number, got)
		}
	}
	// What every program does, and what the Stoma does.
	for _, number := range []uint32{unix.SYS_READ, unix.SYS_OPENAT, unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_EXECVE, unix.SYS_SETRESUID, unix.SYS_KILL, unix.SYS_PTRACE, unix.SYS_ACCEPT4} {
		if got := judge(t, program, call{auditArch, number, [3]uint32{}}); got != unix.SECCOMP_RET_ALLOW {
			t.Errorf("the call %d is answered with %#x", number, got)
		}
	}
	for _, c := range []call{{unix.AUDIT_ARCH_I386, unix.SYS_READ, [3]uint32{}}, {auditArch, unix.SYS_READ | 1<<30, [3]uint32{}}, {auditArch, ^uint32(0), [3]uint32{}}} {
		if got := judge(t, program, c); got != refused(unix.ENOSYS) {
			t.Errorf("the call %#x of %#x is answered with %#x", c.number, c.arch, got)
		}
	}
	for _, number := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		for args, want := range map[[3]uint32]uint32{
			{unix.AF_UNIX, unix.SOCK_STREAM, 0}:                      unix.SECCOMP_RET_ALLOW,
			{unix.AF_INET, unix.SOCK_DGRAM, 17}:                      unix.SECCOMP_RET_ALLOW,
			{unix.AF_INET6, unix.SOCK_STREAM, 0}:                     unix.SECCOMP_RET_ALLOW,
			{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}:     unix.SECCOMP_RET_ALLOW,
			{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}:     refused(unix.EAFNOSUPPORT),
			{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}: refused(unix.EAFNOSUPPORT),
			{unix.AF_VSOCK, unix.SOCK_STREAM, 0}:                     refused(unix.EAFNOSUPPORT),
			{unix.AF_PACKET, unix.SOCK_RAW, 0}:                       refused(unix.EAFNOSUPPORT),
			{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}:                    refused(unix.EAFNOSUPPORT),
		} {
			if got := judge(t, program, call{auditArch, number, args}); got != want {
				t.Errorf("the call %d with %v is answered with %#x, want %#x", number, args, got, want)
			}
		}
	}
}
