package probe

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

var kernelProbes = []Probe{
	{ID: "K32", Core: true, Dimension: "process", Seal: Kernel, What: "the kernel is not the host's", Run: whichKernel},
	{ID: "K04", Core: true, Dimension: "process", Seal: KernelSurface, What: "system calls to the host's kernel are filtered", Run: seccompFilter},
	{ID: "K11", Dimension: "process", Seal: KernelSurface, What: "bpf(2) is closed", Run: bpf},
	{ID: "K12", Dimension: "process", Seal: KernelSurface, What: "perf_event_open(2) is closed", Run: perfEvent},
	{ID: "K13", Dimension: "process", Seal: KernelSurface, What: "userfaultfd(2) is closed", Run: userfault},
	{ID: "K14", Dimension: "process", Seal: KernelSurface, What: "io_uring is closed", Run: ioUring},
	{ID: "K15", Dimension: "process", Seal: KernelSurface, What: "the host's keyrings are closed", Run: keyrings},
	{ID: "K16", Dimension: "process", Seal: KernelSurface, What: "kexec and reboot are closed", Run: kexec},
	{ID: "K17", Dimension: "process", Seal: KernelSurface, What: "modules cannot be loaded or removed", Run: modules},
	{ID: "K18", Dimension: "process", Seal: KernelSurface, What: "the log of the host's kernel is closed", Run: kernelLog},
	{ID: "K19", Dimension: "process", Seal: KernelSurface, What: "swap, accounting and quota are closed", Run: administration},
	{ID: "K31", Core: true, Dimension: "process", Seal: KernelSurface, What: "no vsock to the host", Run: func() Result { return sockets(vsock) }},
	{ID: "K33", Core: true, Dimension: "process", Seal: KernelSurface, What: "no raw or packet socket", Run: func() Result { return sockets(rawSockets...) }},
	{ID: "K34", Dimension: "process", Seal: KernelSurface, What: "no socket but inet, inet6, unix and netlink-route", Run: func() Result { return sockets(exoticSockets...) }},
	{ID: "K35", Dimension: "process", Seal: KernelSurface, What: "fanotify and lookup of kernel symbols are closed", Run: kernelEyes},
}

func whichKernel() Result {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unknown("uname: %s", errno(err))
	}
	release := unix.ByteSliceToString(u.Release[:])
	if gvisor() {
		return sealed("gVisor, which calls itself %s", release)
	}
	if ownKernel() {
		return sealed("Linux %s, started for this Terrarium alone", release)
	}
	return leak("Linux %s", release)
}

func seccompFilter() Result {
	if gvisor() {
		return notApplicable("gVisor's own filter is read back outside")
	}
	v, ok := status("/proc/self/status", "Seccomp")
	switch {
	case !ok:
		return unknown("the Seccomp field cannot be read")
	case v == "2":
		return sealed("a filter is in force")
	default:
		return leak("no filter is in force (%s)", v)
	}
}

// descriptorFrom closes what a system call opened and returns its error.
func descriptorFrom(fd uintptr, e unix.Errno) error {
	if e != 0 {
		return e
	}
	unix.Close(int(fd))
	return nil
}

func bpf() Result {
	attr := struct{ kind, keySize, valueSize, entries, flags uint32 }{kind: 2 /* BPF_MAP_TYPE_ARRAY */, keySize: 4, valueSize: 8, entries: 1}
	fd, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, pointer(&attr), 20)
	runtime.KeepAlive(&attr)
	return verdict("BPF_MAP_CREATE", descriptorFrom(fd, e))
}

func perfEvent() Result {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Size: unix.PERF_ATTR_SIZE_VER0, Bits: unix.PerfBitDisabled}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return verdict("perf_event_open", err)
}

func userfault() Result {
	fd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	return verdict("userfaultfd", descriptorFrom(fd, e))
}

func ioUring() Result {
	var params [120]byte // struct io_uring_params
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 8, pointer(&params), 0)
	runtime.KeepAlive(&params)
	return verdict("io_uring_setup", descriptorFrom(fd, e))
}

// keyrings asks for this session's keyring without making one.
func keyrings() Result {
	var t tried
	if data, err := read("/proc/keys"); err == nil && len(data) > 0 {
		t.leak("/proc/keys lists keys")
	}
	if gvisor() {
		// gVisor's keyrings are its own and begin empty.
		return t.result("gVisor's own")
	}
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, false)
	if errors.Is(err, unix.ENOKEY) {
		t.leak("keyctl looked for a keyring")
	} else {
		t.attempt("keyctl", err)
	}
	return t.result("closed")
}

// kexec offers what no kernel accepts, so that only the permission is tested: the
// check comes first (kexec_load(2)), and reboot(2) gets a magic number that is wrong
// in the part that is looked at after it.
func kexec() Result {
	var t tried
	_, _, e := unix.Syscall6(unix.SYS_KEXEC_LOAD, 0, 1<<20 /* too many segments */, 0, 0, 0, 0)
	if e == unix.EINVAL || e == unix.EFAULT || e == unix.EBUSY {
		t.leak("kexec_load was considered: " + errno(e))
	} else {
		t.attempt("kexec_load", errOf(e))
	}
	_, _, e = unix.Syscall6(unix.SYS_REBOOT, unix.LINUX_REBOOT_MAGIC1, 0 /* wrong second magic */, 0, 0, 0, 0)
	if e == unix.EINVAL {
		t.leak("reboot was considered: EINVAL")
	} else {
		t.attempt("reboot", errOf(e))
	}
	return t.result("closed")
}

func modules() Result {
	var t tried
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"init_module", func() error { return unix.InitModule([]byte{0}, "") }},
		{"finit_module", func() error { return unix.FinitModule(-1, "", 0) }},
		{"delete_module", func() error { return unix.DeleteModule("tendril_no_such_module", unix.O_NONBLOCK) }},
	} {
		err := c.call()
		switch {
		case errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.EBADF), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			t.leak(c.name + " was considered: " + errno(err))
		default:
			t.attempt(c.name, err)
		}
	}
	return t.result("closed")
}

func kernelLog() Result {
	if gvisor() {
		return sealed("gVisor's own")
	}
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	if err == nil {
		buf := make([]byte, 256)
		n, err = unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	}
	if err == nil && n == 0 {
		return unknown("the log is empty")
	}
	return verdict("syslog", err)
}

// administration offers names that do not exist: being looked for is the leak.
func administration() Result {
	var t tried
	nowhere, err := unix.BytePtrFromString("/tendril-no-such-file")
	if err != nil {
		return unknown("%v", err)
	}
	for _, c := range []struct {
		name string
		nr   uintptr
	}{{"swapon", unix.SYS_SWAPON}, {"swapoff", unix.SYS_SWAPOFF}, {"acct", unix.SYS_ACCT}} {
		_, _, e := unix.Syscall(c.nr, pointer(nowhere), 0, 0)
		if e == unix.ENOENT {
			t.leak(c.name + " looked for a file")
			continue
		}
		t.attempt(c.name, errOf(e))
	}
	runtime.KeepAlive(nowhere)
	return t.result("closed")
}

// kernelEyes are system calls with which a process watches others.
func kernelEyes() Result {
	var t tried
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err == nil {
		unix.Close(fd)
	}
	t.attempt("fanotify_init for permission events", err)
	if data, err := read("/proc/kallsyms"); err == nil && len(data) > 16 && string(data[:16]) != "0000000000000000" {
		t.leak("/proc/kallsyms shows addresses")
	}
	return t.result("closed")
}

// socketKind is a socket that a Sprout has no use for.
type socketKind struct {
	name                   string
	family, kind, protocol int
}

var vsock = socketKind{"AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM, 0}

var rawSockets = []socketKind{
	{"AF_INET raw ICMP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
	{"AF_INET raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
	{"AF_INET6 raw ICMPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
	{"AF_PACKET raw", unix.AF_PACKET, unix.SOCK_RAW, 0},
	{"AF_PACKET datagram", unix.AF_PACKET, unix.SOCK_DGRAM, 0},
}

var exoticSockets = []socketKind{
	{"AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
	{"AF_BLUETOOTH", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
	{"AF_KEY", unix.AF_KEY, unix.SOCK_RAW, 2},
	{"AF_XDP", unix.AF_XDP, unix.SOCK_RAW, 0},
	{"AF_TIPC", unix.AF_TIPC, unix.SOCK_SEQPACKET, 0},
	{"AF_CAN", unix.AF_CAN, unix.SOCK_RAW, 1},
	{"AF_RDS", unix.AF_RDS, unix.SOCK_SEQPACKET, 0},
	{"AF_SMC", unix.AF_SMC, unix.SOCK_STREAM, 0},
	{"AF_NETLINK netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
	{"AF_NETLINK audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
	{"AF_NETLINK xfrm", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM},
	{"AF_NETLINK connector", unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_CONNECTOR},
	{"AF_NETLINK generic", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC},
}

// sockets makes each and closes it at once.
func sockets(kinds ...socketKind) Result {
	var t tried
	for _, k := range kinds {
		fd, err := unix.Socket(k.family, k.kind|unix.SOCK_CLOEXEC, k.protocol)
		if err == nil {
			unix.Close(fd)
		}
		if errors.Is(err, unix.EINVAL) {
			err = unix.EAFNOSUPPORT // the family is not there under these numbers
		}
		t.attempt(k.name, err)
	}
	return t.result("refused")
}
