//go:build linux

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// mountAll makes the machine's own root below newRoot.
func (m order) mountAll() error {
	const sealed = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	for _, drive := range []string{rootDrive, baseDrive, scratchDrive} {
		if err := await(drive); err != nil {
			return err
		}
	}
	if err := mount(rootDrive, newRoot, "erofs", sealed, ""); err != nil {
		return err
	}
	for i, target := range m.over {
		if err := layOver(filesDir+"/over/"+strconv.Itoa(i), newRoot+target); err != nil {
			return err
		}
	}
	return errors.Join(
		mount(baseDrive, newRoot+m.overlay.lower, "erofs", sealed, ""),
		mount(scratchDrive, newRoot+m.overlay.scratch, "ext4", unix.MS_NOSUID|unix.MS_NODEV, "errors=remount-ro"),
		mount("proc", newRoot+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=invisible"),
		makeDevices(newRoot+"/dev"),
	)
}

// layOver shows a file, read-only, in the place of one that is there.
func layOver(file, target string) error {
	if err := mount(file, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	// A bind takes its flags from a second call.
	return mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// makeDevices makes a /dev with what is harmless. Terminals are of its own.
func makeDevices(dev string) error {
	err := mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=1m,mode=755")
	if err != nil {
		return err
	}
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}} {
		path := dev + "/" + d.name
		err := errors.Join(
			unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))),
			unix.Chmod(path, 0o666), // whatever the umask
		)
		if err != nil {
			return fmt.Errorf("make the device %s: %w", d.name, err)
		}
	}
	for _, l := range []struct{ name, target string }{
		{"ptmx", "pts/ptmx"}, {"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
	} {
		if err := os.Symlink(l.target, dev+"/"+l.name); err != nil {
			return fmt.Errorf("make the device %s: %w", l.name, err)
		}
	}
	for _, d := range []struct {
		name, kind, data string
		flags            uintptr
	}{
		{"pts", "devpts", "newinstance,ptmxmode=0666,mode=620", 0},
		{"shm", "tmpfs", "size=64m,mode=1777", unix.MS_NODEV},
	} {
		if err := os.Mkdir(dev+"/"+d.name, 0o755); err != nil {
			return fmt.Errorf("make the device %s: %w", d.name, err)
		}
		if err := mount(d.kind, dev+"/"+d.name, d.kind, d.flags|unix.MS_NOSUID|unix.MS_NOEXEC, d.data); err != nil {
			return err
		}
	}
	return nil
}

// settings of the kernel that the boundary rests on, and what they keep. One that the
// kernel does not have is a part that it does not have.
var kernelSettings = []struct{ name, value string }{
	{"user/max_user_namespaces", "0"}, // nobody becomes root of a namespace
	{"kernel/dmesg_restrict", "1"},
	{"kernel/kptr_restrict", "2"},
	{"kernel/unprivileged_bpf_disabled", "1"},
	{"kernel/perf_event_paranoid", "3"},
	{"kernel/sysrq", "0"},
	{"kernel/kexec_load_disabled", "1"},
	{"kernel/panic_on_oops", "1"}, // a kernel that failed is not to be relied on
	{"kernel/core_pattern", ""},
	{"vm/panic_on_oom", "0"}, // what used the memory ends, not the machine
	{"vm/unprivileged_userfaultfd", "0"},
	// What was written is on the drive soon, so that it can be collected when the machine
	// ended without a word.
	{"vm/dirty_expire_centisecs", "300"},
	{"vm/dirty_writeback_centisecs", "100"},
}

// The limits of open files and of core files that the Sprout begins with.
var machineLimits = []struct {
	what  int
	limit unix.Rlimit
}{
	{unix.RLIMIT_CORE, unix.Rlimit{}},
	{unix.RLIMIT_NOFILE, unix.Rlimit{Cur: 65536, Max: 65536}},
}

// tune sets what a machine's kernel has otherwise by default.
func tune() error {
	for _, s := range kernelSettings {
		err := os.WriteFile("/proc/sys/"+s.name, []byte(s.value+"\n"), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set %s: %w", s.name, err)
		}
	}
	for _, l := range machineLimits {
		if err := unix.Setrlimit(l.what, &l.limit); err != nil {
			return fmt.Errorf("set the limit %d: %w", l.what, err)
		}
	}
	return nil
}

// enterMachineRoot leaves the first root for good. What it returns ends the machine at
// once, without the noise of a panic.
func enterMachineRoot() (restart func(), err error) {
	trigger, err := unix.Open("/proc/sysrq-trigger", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		trigger = -1 // this kernel has no such thing: it panics
	}
	if err := unix.Chdir(newRoot); err != nil {
		return nil, fmt.Errorf("enter the root: %w", err)
	}
	if err := mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return nil, err
	}
	if err := errors.Join(unix.Chroot("."), unix.Chdir("/")); err != nil {
		return nil, fmt.Errorf("enter the root: %w", err)
	}
	return func() {
		// What was written is on the drive: the work may still be wanted.
		unix.Sync()
		if trigger >= 0 {
			_, _ = unix.Write(trigger, []byte("b")) // it does not return
		}
	}, nil
}
