//go:build linux

package guest

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// holdNothing makes sure that this process is the Sprout's account and nothing more, and
// can become nothing more: there is no privilege by which it could drop one.
func holdNothing(sprout identity) error {
	if uid, gid := os.Getuid(), os.Getgid(); uid != sprout.uid || gid != sprout.gid {
		return fmt.Errorf("this is %d:%d, and a plain Terrarium has no account but %d:%d", uid, gid, sprout.uid, sprout.gid)
	}
	groups, err := syscall.Getgroups()
	if err != nil {
		return fmt.Errorf("list supplementary groups: %w", err)
	}
	for _, g := range groups {
		if g != sprout.gid {
			return fmt.Errorf("the supplementary group %d cannot be dropped here", g)
		}
	}
	if err := setNoNewPrivs(); err != nil {
		return err
	}
	return checkPrivileges(0)
}

// shieldFromSignals makes signals that the Sprout sends to this process come to nothing. The
// kernel drops what comes to PID 1 from its own namespace unless a handler waits for it
// (pid_namespaces(7)) or the first thread blocks it, which it does also while it runs
// any handler: then another thread would be ended by it, and all with it (complete_signal
// in the kernel's kernel/signal.c). So there is to be no handler at all. The runtime does
// without the one by which it stops its own threads: they stop at their next call. A fault
// of this program's own still ends it.
func shieldFromSignals() {
	var standard [64]byte // struct sigaction: SIG_DFL, no flags, no mask
	for n := unix.Signal(1); n <= 64; n++ {
		if n == unix.SIGKILL || n == unix.SIGSTOP {
			continue
		}
		// Fails for no signal of these; for one that is none there is nothing to shield.
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&standard)), 0, 8, 0, 0)
	}
}

// spare is how many threads this process has ready. The runtime ends the program when it
// needs another and the container's limit of threads, which the Sprout may have used up,
// refuses it; those that it has it keeps.
const spare = 12

func spareThreads() {
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	var ready, done sync.WaitGroup
	ready.Add(spare)
	for range spare {
		done.Go(func() {
			runtime.LockOSThread()
			ready.Done()
			ready.Wait()
			runtime.UnlockOSThread()
		})
	}
	done.Wait()
}
