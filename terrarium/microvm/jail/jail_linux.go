package jail

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Invoked reports whether this process was started to become another program.
func Invoked(argv0 string) bool { return argv0 == Name }

// Main becomes the program of the order, and returns only when that failed.
func Main() {
	// Whatever is changed here is changed in the one thread that executes the program.
	runtime.LockOSThread()
	err := enter()
	fmt.Fprintf(os.Stderr, "jail: %v\n", err)
	os.Exit(1)
}

func enter() error {
	order, err := readOrder()
	if err != nil {
		return err
	}
	if err := leaveMounts(); err != nil {
		return err
	}
	if order.Root == "" {
		err = showAll(order)
	} else {
		err = makeRoot(order)
	}
	if err != nil {
		return err
	}
	if err := keepOnly(order.FDs); err != nil {
		return err
	}
	if order.Root != "" {
		if err := renounce(order); err != nil {
			return err
		}
	}
	if err := endWithParent(); err != nil {
		return err
	}
	return fmt.Errorf("execute %s: %w", order.Program, unix.Exec(order.Program, order.Args, nil))
}

// readOrder reads what the Stem wants.
func readOrder() (Order, error) {
	var order Order
	line, err := bufio.NewReaderSize(io.LimitReader(os.NewFile(OrderFD, "order"), MaxOrder), MaxOrder).ReadSlice('\n')
	if err != nil {
		return order, fmt.Errorf("read the order: %w", err)
	}
	return order, json.Unmarshal(line, &order)
}

// endWithParent asks for the end of this process when its parent ends. The kernel forgets that
// when the account changes, so this comes after.
func endWithParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ask to end with the Stem: %w", err)
	}
	// It may be gone already. Then nobody holds the other end of the order any more.
	n, err := unix.Poll([]unix.PollFd{{Fd: OrderFD, Events: unix.POLLIN}}, 0)
	if err != nil || n > 0 {
		return errors.Join(err, errors.New("the Stem is gone"))
	}
	return nil
}

func failed(what string, err error) error { return fmt.Errorf("make the jail: %s: %w", what, err) }

// leaveMounts makes what is mounted from now on this process's alone.
func leaveMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return failed("leave the host's mounts", err)
	}
	return nil
}

// showAll shows the files of the order below its root.
func showAll(order Order) error {
	for _, s := range order.Shown {
		attributes := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
		if !s.Writable {
			attributes |= unix.MOUNT_ATTR_RDONLY
		}
		if err := show(s.Source, order.Root+s.Target, attributes); err != nil {
			return failed("show "+s.Source, err)
		}
	}
	return nil
}

func makeRoot(order Order) error {
	err := unix.Mount("jail", order.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, "size=1m,mode=755")
	if err != nil {
		return failed("mount its root", err)
	}
	if err := showAll(order); err != nil {
		return err
	}
	if err := giveDevices(order); err != nil {
		return err
	}
	for link, target := range order.Links {
		if err := os.Symlink(target, order.Root+link); err != nil {
			return failed("make "+link, err)
		}
	}
	// pivot_root(2): the old root comes to lie on top of the new one, and is taken off.
	if err := unix.Chdir(order.Root); err != nil {
		return failed("enter it", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return failed("enter it", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return failed("leave the host's root", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return failed("enter it", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr); err != nil {
		return failed("close its root", err)
	}
	return nil
}

// giveDevices shows devices of the host to an account that may use them already, and makes
// nodes for one that may not.
func giveDevices(order Order) error {
	if len(order.Devices) == 0 {
		return nil
	}
	dir := order.Root + DeviceDir
	if order.UID > 0 {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return failed("make "+DeviceDir, err)
		}
		if err := unix.Mount("devices", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=4k,mode=755"); err != nil {
			return failed("mount "+DeviceDir, err)
		}
	}
	for _, device := range order.Devices {
		var err error
		if order.UID > 0 {
			err = makeNode(device, order.Root+device, order.UID)
		} else {
			err = show(device, order.Root+device, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
		}
		if err != nil {
			return failed("give "+device, err)
		}
	}
	if order.UID == 0 {
		return nil
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &attr); err != nil {
		return failed("close "+DeviceDir, err)
	}
	return nil
}

func makeNode(device, path string, uid int) error {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return errors.New("it is no character device")
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(st.Rdev)); err != nil {
		return err
	}
	return os.Chown(path, uid, uid)
}

// show binds a file or directory with all that is mounted in it.
func show(source, target string, attributes uint64) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	parent := target
	if !info.IsDir() {
		parent = filepath.Dir(target)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	if !info.IsDir() {
		f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: attributes}
	return unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &attr)
}

// keepOnly closes every descriptor of this process at the exec, but its standard ones and
// n from FirstFD on.
func keepOnly(n int) error {
	err := unix.CloseRange(3, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("close what was inherited: %w", err)
	}
	for fd := FirstFD; fd < FirstFD+n; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keep the descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// renounce gives up everything, for good: in this thread, which becomes the program.
func renounce(order Order) error {
	most := uint64(order.MaxFile)
	err := errors.Join(
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: most}),
	)
	if err != nil {
		return fmt.Errorf("bound what can be written: %w", err)
	}
	for bit := uintptr(0); ; bit++ {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, bit, 0, 0, 0); err != nil {
			break // there are no more
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, bit, 0, 0, 0); err != nil {
			return fmt.Errorf("drop a capability from the bounding set: %w", err)
		}
	}
	if order.UID > 0 {
		if err := become(order.UID); err != nil {
			return err
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var nothing [2]unix.CapUserData
	if _, _, errno := syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&nothing[0])), 0); errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// become changes the account of this thread alone: it is the one that goes on.
func become(uid int) error {
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("drop supplementary groups: %w", errno)
	}
	id := uintptr(uid)
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESGID, id, id, id); errno != 0 {
		return fmt.Errorf("set the group: %w", errno)
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
		return fmt.Errorf("set the user: %w", errno)
	}
	return nil
}
