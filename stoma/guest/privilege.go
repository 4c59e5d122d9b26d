//go:build linux

package guest

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keep is what this process holds while the Sprout runs: to become the Sprout,
// and to signal it.
const keep = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// dropPrivileges gives up all groups, and every capability but keep.
func dropPrivileges() error {
	// What reaches all threads takes about a millisecond in gVisor, so it is done only
	// where there is something to do. Threads have all of this from the first one.
	if groups, err := syscall.Getgroups(); err != nil || len(groups) > 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("drop supplementary groups: %w", err)
		}
	}
	return dropCapabilities(keep)
}

// dropCapabilities gives up everything but keep, in every thread and for good: the
// bounding set becomes empty and no_new_privs is set, so no exec gives anything
// back. It needs a static binary: with cgo the runtime cannot reach all threads.
func dropCapabilities(keep uint32) error {
	if err := setNoNewPrivs(); err != nil {
		return err
	}
	bounding, err := boundingSet()
	if err != nil {
		return err
	}
	for ; bounding != 0; bounding &= bounding - 1 {
		c := uintptr(bits.TrailingZeros64(bounding))
		if err := allThreads("drop a capability from the bounding set", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
			return err
		}
	}
	// What is not inheritable is not ambient either (capabilities(7)).
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: keep, Permitted: keep}}
	err = allThreads("set capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&data)
	if err != nil {
		return err
	}
	return checkPrivileges(keep)
}

func setNoNewPrivs() error {
	if n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && n == 1 {
		return nil
	}
	return allThreads("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
}

func allThreads(what string, trap, a1, a2, a3 uintptr) error {
	// PR_SET_NO_NEW_PRIVS wants its unused arguments to be zero.
	if _, _, errno := syscall.AllThreadsSyscall6(trap, a1, a2, a3, 0, 0, 0); errno != 0 {
		return fmt.Errorf("%s: %w", what, errno)
	}
	return nil
}

// boundingSet reads the set from /proc, which is one file instead of a question for
// each capability.
func boundingSet() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the bounding set: %w", err)
	}
	_, rest, _ := strings.Cut(string(status), "\nCapBnd:")
	value, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("read the bounding set: %w", err)
	}
	return set, nil
}

// checkPrivileges wants these capabilities and no others, and no way to more.
func checkPrivileges(keep uint32) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities back: %w", err)
	}
	want := [2]unix.CapUserData{{Effective: keep, Permitted: keep}}
	if data != want {
		return fmt.Errorf("capabilities are %x, want %x: the container has to grant what this process keeps, and no other where nothing can be dropped", data, want)
	}
	if bounding, err := boundingSet(); err != nil || bounding != 0 {
		return errors.Join(err, fmt.Errorf("capabilities %x are in the bounding set", bounding))
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || n != 1 {
		return fmt.Errorf("no_new_privs is %d: %w", n, err)
	}
	return nil
}

// identity is the account that the Sprout has inside.
type identity struct{ uid, gid int }

// ours says that this process is the Sprout's account itself.
func (id identity) ours() bool { return os.Getuid() == id.uid }

// do runs f on a thread whose effective uid and gid are the Sprout's, so that
// the kernel checks every path as it would for the Sprout. The real and the
// saved uid stay 0: no signal of the Sprout reaches the thread. f must not start
// goroutines that open files.
func (id identity) do(f func() error) error {
	if id.ours() {
		return f()
	}
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
