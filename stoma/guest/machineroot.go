//go:build linux

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// driveOptions bring what was written onto the drive within about a second, whole: a machine
// that is killed then leaves it. Without delayed allocation a file's size and its data go
// together with the journal's next commit (ext4(5), nodelalloc and commit=).
const driveOptions = "noinit_itable,errors=remount-ro,nodelalloc,commit=1"

// mountAll makes the machine's own root below newRoot.
func (o order) mountAll() error {
	const sealed = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	for _, drive := range []string{rootDrive, baseDrive, scratchDrive} {
		if err := await(drive); err != nil {
			return err
		}
	}
	if err := mount(rootDrive, newRoot, "erofs", sealed, ""); err != nil {
		return err
	}
	for i, target := range o.over {
		if err := layOver(filesDir+"/over/"+strconv.Itoa(i), newRoot+target); err != nil {
			return err
		}
	}
	return errors.Join(
		mount(baseDrive, newRoot+o.overlay.lower, "erofs", sealed, ""),
		mount(scratchDrive, newRoot+o.overlay.scratch, "ext4", unix.MS_NOSUID|unix.MS_NODEV, driveOptions),
		makeDevices(newRoot+"/dev"),
	)
}

// hiddenFiles and hiddenDirs are what a /proc shows everybody of hardware and of the
// kernel's tables. The rest of that is root's alone by itself.
var (
	hiddenFiles = []string{"iomem", "ioports", "kallsyms", "key-users", "keys", "latency_stats", "mtrr", "sched_debug", "timer_stats"}
	hiddenDirs  = []string{"acpi", "asound", "scsi"}
)

// mountProc shows the processes of this namespace, to the Sprout only its own.
func mountProc() error {
	err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=invisible")
	if err != nil {
		return err
	}
	if testOnlyOpen == "proc" {
		return nil
	}
	for _, name := range hiddenFiles {
		if err := hide("/proc/"+name, "/dev/null", ""); err != nil {
			return err
		}
	}
	for _, name := range hiddenDirs {
		if err := hide("/proc/"+name, "tmpfs", "tmpfs"); err != nil {
			return err
		}
	}
	return nil
}

// hide puts nothing in the place of what is there, if it is.
func hide(path, source, kind string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if kind == "" {
		return mount(source, path, "", unix.MS_BIND, "")
	}
	return mount(source, path, kind, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=555")
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
	if testOnlyOpen == "devices" {
		return mount("devtmpfs", dev, "devtmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "")
	}
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
	// The Stoma hands over the work, so it is the last that is killed for want of memory.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
		return fmt.Errorf("spare the Stoma: %w", err)
	}
	for _, l := range machineLimits {
		if err := unix.Setrlimit(l.what, &l.limit); err != nil {
			return fmt.Errorf("set the limit %d: %w", l.what, err)
		}
	}
	return nil
}

// enterMachineRoot leaves the first root for good.
func enterMachineRoot() error {
	if err := unix.Chdir(newRoot); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := errors.Join(unix.Chroot("."), unix.Chdir("/")); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	name, err := os.ReadFile("/etc/hostname")
	if err != nil {
		return fmt.Errorf("name the machine: %w", err)
	}
	if err := unix.Sethostname(bytes.TrimSpace(name)); err != nil {
		return fmt.Errorf("name the machine: %w", err)
	}
	return nil
}

// oomKills counts the processes that the kernel ended for want of memory.
func oomKills() int64 { return numberIn("/proc/vmstat", "oom_kill ") }

// memoryTotal is what the kernel has to give, in bytes.
func memoryTotal() int64 { return numberIn("/proc/meminfo", "MemTotal:") << 10 }

// numberIn is the number after a line's beginning, and 0 if there is none.
func numberIn(path, begin string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, begin); ok {
			word, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			n, _ := strconv.ParseInt(word, 10, 64) // 0 when it is something else
			return n
		}
	}
	return 0
}
