//go:build linux

package guest

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keep is what this process holds while the Sprout runs: to become the Sprout,
// and to signal it.
const keep = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// dropPrivileges gives up everything but keep, in every thread and for good: the
// bounding set becomes empty and no_new_privs is set, so no exec gives anything
// back. It needs a static binary: with cgo the runtime cannot reach all threads.
func dropPrivileges() error {
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("drop supplementary groups: %w", err)
	}
	if err := allThreads("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return err
	}
	if err := allThreads("clear ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return err
	}
	for c := uintptr(0); c < 64; c++ {
		// A kernel refuses to answer for a capability that it does not have. Asking is
		// cheap; what is done in all threads takes about a millisecond in gVisor.
		in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			break
		}
		if in == 0 {
			continue
		}
		if err := allThreads("drop a capability from the bounding set", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
			return err
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: keep, Permitted: keep}}
	err := allThreads("set capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&data)
	if err != nil {
		return err
	}
	return checkPrivileges()
}

func allThreads(what string, trap, a1, a2, a3 uintptr) error {
	// PR_CAP_AMBIENT wants its unused arguments to be zero.
	if _, _, errno := syscall.AllThreadsSyscall6(trap, a1, a2, a3, 0, 0, 0); errno != 0 {
		return fmt.Errorf("%s: %w", what, errno)
	}
	return nil
}

// checkPrivileges reads back what dropPrivileges set.
func checkPrivileges() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities back: %w", err)
	}
	want := [2]unix.CapUserData{{Effective: keep, Permitted: keep}}
	if data != want {
		return fmt.Errorf("capabilities are %x after they were dropped, want %x: the container has to grant SETUID, SETGID and KILL", data, want)
	}
	for c := uintptr(0); c < 64; c++ {
		if n, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err == nil && n != 0 {
			return fmt.Errorf("capability %d is still in the bounding set", c)
		}
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || n != 1 {
		return fmt.Errorf("no_new_privs is %d: %w", n, err)
	}
	return nil
}

// identity is the account that the Sprout has inside.
type identity struct{ uid, gid int }

// do runs f on a thread whose effective uid and gid are the Sprout's, so that
// the kernel checks every path as it would for the Sprout. The real and the
// saved uid stay 0: no signal of the Sprout reaches the thread. f must not start
// goroutines that open files.
func (id identity) do(f func() error) error {
	result := make(chan error, 1)
	go func() {
		// The thread is thrown away unless it got its own identity back.
		runtime.LockOSThread()
		if err := id.assume(); err != nil {
			result <- err
			return
		}
		err := f()
		if back := (identity{}).assume(); back == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// assume sets the effective ids of the calling thread. The wrappers of the
// standard library would set them in all threads.
func (id identity) assume() error {
	const unchanged = ^uintptr(0)
	set := func(trap uintptr, n int) error {
		if _, _, errno := syscall.RawSyscall(trap, unchanged, uintptr(n), unchanged); errno != 0 {
			return os.NewSyscallError("setresuid", errno)
		}
		return nil
	}
	// Away from uid 0 the gid has to change first, back to it last; the other
	// order works too while the thread keeps SETGID in its effective set.
	if id.uid == 0 {
		if err := set(unix.SYS_SETRESUID, id.uid); err != nil {
			return err
		}
		return set(unix.SYS_SETRESGID, id.gid)
	}
	if err := set(unix.SYS_SETRESGID, id.gid); err != nil {
		return err
	}
	return set(unix.SYS_SETRESUID, id.uid)
}
