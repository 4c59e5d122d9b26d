//go:build linux

package guest

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denied are system calls that a Sprout has no use for and through which kernels were
// broken: the same that container engines refuse, and io_uring and userfaultfd. They
// answer EPERM.
var denied = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE,
	unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK,
	unix.SYS_INIT_MODULE, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_SETUP,
	unix.SYS_KCMP, unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_MOVE_MOUNT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_NFSSERVCTL, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE,
	unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIVOT_ROOT, unix.SYS_QUOTACTL, unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SETDOMAINNAME,
	unix.SYS_SETHOSTNAME, unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG,
	unix.SYS_UMOUNT2, unix.SYS_UNSHARE, unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}

// families are the kinds of socket that there may be; of netlink only the one that
// programs list interfaces with.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}

// Offsets in struct seccomp_data (include/uapi/linux/seccomp.h); the arguments are 64 bits
// wide, and the low half comes first.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// closeKernel refuses system calls of this process and so of all that it starts. It cannot be
// taken back.
func closeKernel() error { return putFilter(filter()) }

// withoutClone3 lets clone3 answer what a kernel that is older than it does. A container
// engine says so in its filter, because nothing can look into that call's arguments; gVisor
// takes the filter of a container's specification and answers EPERM, with which the C library
// starts neither a process nor a thread. Of two filters that refuse, the later one answers
// (seccomp(2)).
func withoutClone3() error {
	return putFilter([]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: dataNumber},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	})
}

func putFilter(program []unix.SockFilter) error {
	// The filter may only be put where no exec gives privileges.
	if err := allThreads("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return err
	}
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}

// filter is the program in the kernel's form.
func filter() []unix.SockFilter {
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		give    = unix.BPF_RET | unix.BPF_K
	)
	refuse := func(errno unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	allow := unix.SockFilter{Code: give, K: unix.SECCOMP_RET_ALLOW}
	f := []unix.SockFilter{
		// The numbers below are those of one architecture: another one, and on x86 the
		// table that begins at bit 30, would name other calls by them.
		{Code: load, K: dataArch},
		{Code: equal, K: auditArch, Jt: 1},
		refuse(unix.ENOSYS),
		{Code: load, K: dataNumber},
		{Code: atLeast, K: 1 << 30, Jf: 1},
		refuse(unix.ENOSYS),
	}
	for _, number := range append(denied, deniedHere...) {
		f = append(f, unix.SockFilter{Code: equal, K: number, Jf: 1}, refuse(unix.EPERM))
	}
	for _, number := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		body := []unix.SockFilter{{Code: load, K: dataArgs}}
		for _, family := range families {
			body = append(body, unix.SockFilter{Code: equal, K: family, Jf: 1}, allow)
		}
		body = append(body,
			unix.SockFilter{Code: equal, K: unix.AF_NETLINK, Jt: 1},
			refuse(unix.EAFNOSUPPORT),
			unix.SockFilter{Code: load, K: dataArgs + 2*8},
			unix.SockFilter{Code: equal, K: unix.NETLINK_ROUTE, Jt: 1},
			refuse(unix.EAFNOSUPPORT),
			allow,
		)
		f = append(f, unix.SockFilter{Code: equal, K: number, Jf: uint8(len(body))})
		f = append(f, body...)
	}
	return append(f, allow)
}
