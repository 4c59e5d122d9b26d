package probe

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxRead bounds what a probe reads of one file, in bytes.
const maxRead = 1 << 20

// read returns the beginning of a file without ever blocking on it.
func read(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var out []byte
	chunk := make([]byte, 32<<10)
	for len(out) < maxRead {
		n, err := unix.Read(fd, chunk)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			return out, err
		}
		out = append(out, chunk[:n]...)
	}
	return out, nil
}

// opens reports whether path can be opened that way. It opens and closes, and does
// nothing in between.
func opens(path string, flags int) (bool, error) {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return false, err
	}
	unix.Close(fd)
	return true, nil
}

// exists reports whether there is anything at path that this account can name.
func exists(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil
}

// maxList bounds how many names of a directory are read.
const maxList = 4096

// list returns up to 4096 names in a directory.
func list(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxList)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// processes returns the pids in /proc.
func processes() []int {
	names, err := list("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// owner returns the effective uid of a process.
func owner(pid int) (uint32, bool) {
	v, ok := status("/proc/"+strconv.Itoa(pid)+"/status", "Uid")
	f := strings.Fields(v)
	if !ok || len(f) < 2 {
		return 0, false
	}
	n, err := strconv.ParseUint(f[1], 10, 32)
	return uint32(n), err == nil
}

// status returns one field of a file in the form of proc_pid_status(5).
func status(path, key string) (string, bool) {
	data, err := read(path)
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && k == key {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

// mountEntry is one line of proc_pid_mountinfo(5).
type mountEntry struct {
	target, kind, options, super string
}

func (m mountEntry) readonly() bool {
	return has(m.options, "ro") || has(m.super, "ro")
}

func has(options, want string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == want {
			return true
		}
	}
	return false
}

// mounts lists what is mounted. One process asks once: the list takes a sandbox's
// kernel milliseconds to make, and nobody mounts meanwhile.
var mounts = sync.OnceValue(func() []mountEntry {
	data, err := read("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var out []mountEntry
	for line := range strings.Lines(string(data)) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 2 {
			continue
		}
		m := mountEntry{target: l[4], options: l[5], kind: r[0]}
		if len(r) > 2 {
			m.super = r[2]
		}
		out = append(out, m)
	}
	return out
})

// leadsToMount reports whether path is a mount point or a parent of one: a directory
// that exists only so that something below it can be shown.
func leadsToMount(path string) bool {
	for _, m := range mounts() {
		if m.target != "/" && (m.target == path || strings.HasPrefix(m.target, path+"/")) {
			return true
		}
	}
	return false
}

// ofImage reports whether what path names came with the image that is the root file
// system: it lies on that file system, wherever links lead.
func ofImage(path string) bool {
	if os.Getenv(ImageRoot) == "" {
		return false
	}
	var root, st unix.Stat_t
	if unix.Stat("/", &root) != nil {
		return false
	}
	if unix.Stat(path, &st) != nil && unix.Lstat(path, &st) != nil {
		return false
	}
	return st.Dev == root.Dev
}

// gvisor reports whether the kernel is gVisor's: it says so in its log or by its
// release.
func gvisor() bool {
	var u unix.Utsname
	if unix.Uname(&u) == nil && strings.Contains(unix.ByteSliceToString(u.Release[:]), "gvisor") {
		return true
	}
	buf := make([]byte, 16<<10)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	return err == nil && bytes.Contains(buf[:max(n, 0)], []byte("Starting gVisor"))
}

// ownKernel reports whether this is a kernel that was started for the Terrarium alone: it
// is then the one of a virtual machine.
func ownKernel() bool {
	host := os.Getenv(HostBoot)
	id, err := read("/proc/sys/kernel/random/boot_id")
	return host != "" && err == nil && len(id) > 0 && BootDigest(id) != host
}

// errno names an error for a detail.
func errno(err error) string {
	var e unix.Errno
	if errors.As(err, &e) {
		return unix.ErrnoName(e)
	}
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// refused reports whether err is one of the answers of a closed door, as opposed to
// a broken attempt.
func refused(err error) bool {
	for _, e := range []unix.Errno{
		unix.EPERM, unix.EACCES, unix.ENOSYS, unix.ENOENT, unix.EROFS, unix.ENODEV, unix.ENXIO, unix.ESRCH,
		unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT, unix.ENOTDIR, unix.ELOOP,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// verdict turns an attempt that must fail into a result.
func verdict(what string, err error) Result {
	switch {
	case err == nil:
		return leak("%s succeeded", what)
	case refused(err):
		return sealed("%s: %s", what, errno(err))
	default:
		return unknown("%s: %s", what, errno(err))
	}
}

// tried collects several attempts of one probe: a leak outranks what is unknown, and
// that outranks sealed.
type tried struct {
	leaks, unknowns []string
	sealed          int
}

func (t *tried) attempt(what string, err error) {
	switch r := verdict(what, err); r.Status {
	case Leak:
		t.leaks = append(t.leaks, what)
	case Unknown:
		t.unknowns = append(t.unknowns, r.Detail)
	default:
		t.sealed++
	}
}

func (t *tried) leak(what string) { t.leaks = append(t.leaks, what) }

// result sums up. ok says what it means that nothing got through.
func (t *tried) result(ok string) Result {
	switch {
	case len(t.leaks) > 0:
		return leak("%s", strings.Join(t.leaks, "; "))
	case len(t.unknowns) > 0:
		return unknown("%s", strings.Join(t.unknowns, "; "))
	default:
		return sealed("%s", ok)
	}
}
