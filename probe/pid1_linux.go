package probe

import (
	"errors"
	"os"
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

var pid1Probes = []Probe{
	{ID: "P01", Core: true, Dimension: "process", Seal: PID1, What: "PID 1 cannot be signalled", Run: signalInit},
	{ID: "P02", Dimension: "process", Seal: PID1, What: "the memory of PID 1 cannot be opened", Run: initMemory},
	{ID: "P03", Core: true, Dimension: "process", Seal: PID1, What: "the streams of PID 1 cannot be opened", Run: initStreams},
	{ID: "K10", Core: true, Dimension: "process", Seal: PID1, What: "PID 1 cannot be traced, read or robbed of a descriptor", Run: traceInit},
	{ID: "K09", Dimension: "process", Seal: PID1, What: "the namespaces of PID 1 cannot be joined", Run: joinInit},
	{ID: "F04", Dimension: "filesystem", Seal: PID1, What: "the root and working directory of PID 1 are closed", Run: initRoot},
	{ID: "S08", Dimension: "credentials", Seal: PID1, What: "the environment of PID 1 is closed and its arguments say nothing", Run: initEnvironment},
	{ID: "P04", Dimension: "process", Seal: PID1, What: "the Stoma's directory cannot be listed, nor its layers reached", Run: stomaDirectory},
}

// isInit is for a process that is PID 1 itself: then there is nobody to protect.
func isInit() bool { return os.Getpid() == 1 }

func signalInit() Result {
	if isInit() {
		return unknown("this process is PID 1")
	}
	return verdict("kill(1, 0)", unix.Kill(1, 0))
}

func initMemory() Result {
	var t tried
	for _, name := range []string{"/proc/1/mem", "/proc/1/auxv", "/proc/1/syscall", "/proc/1/stack", "/proc/1/personality", "/proc/1/io"} {
		_, err := opens(name, unix.O_RDONLY)
		if err == nil {
			_, err = read(name) // the check may be at the first read (proc_pid_mem(5))
			if errors.Is(err, unix.EIO) {
				err = nil // address 0 is not mapped; the memory was open
			}
		}
		t.attempt("read "+name, err)
	}
	_, err := opens("/proc/1/mem", unix.O_WRONLY)
	t.attempt("open /proc/1/mem for writing", err)
	return t.result("closed")
}

func initStreams() Result {
	if isInit() {
		return unknown("this process is PID 1")
	}
	var t tried
	names, err := list("/proc/1/fd")
	t.attempt("list /proc/1/fd", err)
	if err != nil {
		names = []string{"0", "1", "2", "3", "10", "11"} // the last two are the Stoma's carrier
	}
	for _, n := range names[:min(len(names), 32)] {
		for _, flags := range []int{unix.O_WRONLY, unix.O_RDONLY} {
			if ok, _ := opens("/proc/1/fd/"+n, flags); ok {
				t.leak("/proc/1/fd/" + n + " opens")
				break
			}
		}
		if len(t.leaks) > 4 {
			break
		}
	}
	return t.result("closed")
}

// traceInit seizes PID 1, which does not stop it, and lets it go with this thread.
func traceInit() Result {
	if isInit() {
		return unknown("this process is PID 1")
	}
	var t tried
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0, 0, 0)
	t.attempt("PTRACE_SEIZE", errOf(e))

	var word [8]byte
	local := unix.Iovec{Base: &word[0], Len: uint64(len(word))}
	remote := unix.RemoteIovec{Base: 0x1000, Len: len(word)}
	_, err := unix.ProcessVMReadv(1, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
	if errors.Is(err, unix.EFAULT) {
		t.leak("process_vm_readv looked into the memory")
	} else {
		t.attempt("process_vm_readv", err)
	}

	pidfd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		if !refused(err) {
			t.unknowns = append(t.unknowns, "pidfd_open: "+errno(err))
		}
		return t.result("refused")
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, 1, 0)
	if err == nil {
		unix.Close(fd)
	}
	if errors.Is(err, unix.EBADF) {
		t.leak("pidfd_getfd looked for the descriptor")
	} else {
		t.attempt("pidfd_getfd", err)
	}
	t.attempt("pidfd_send_signal", unix.PidfdSendSignal(pidfd, 0, nil, 0))
	return t.result("refused")
}

func joinInit() Result {
	if isInit() {
		return unknown("this process is PID 1")
	}
	var t tried
	for _, name := range []string{"net", "uts", "ipc", "cgroup", "pid", "mnt", "user"} {
		fd, err := unix.Open("/proc/1/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			if !refused(err) {
				t.unknowns = append(t.unknowns, name+": "+errno(err))
			}
			continue
		}
		err = unix.Setns(fd, 0)
		unix.Close(fd)
		if name == "mnt" || name == "user" || name == "pid" {
			// Joining is also refused for other reasons than permission: a thread that
			// shares its root directory, a namespace that is its own (setns(2)).
			if errors.Is(err, unix.EINVAL) {
				continue
			}
		}
		t.attempt("join the "+name+" namespace of PID 1", err)
	}
	return t.result("refused")
}

func initRoot() Result {
	if isInit() {
		return unknown("this process is PID 1")
	}
	var t tried
	for _, p := range []string{"/proc/1/root/", "/proc/1/cwd/", "/proc/1/root/etc/passwd", "/proc/1/task/1/root/", "/proc/1/map_files"} {
		_, err := opens(p, unix.O_RDONLY)
		t.attempt("open "+p, err)
	}
	return t.result("closed")
}

func initEnvironment() Result {
	if isInit() {
		return unknown("this process is PID 1")
	}
	var t tried
	data, err := read("/proc/1/environ")
	if err == nil && len(data) == 0 {
		err = unix.EACCES // readable, and nothing in it
	}
	t.attempt("read /proc/1/environ", err)
	line, err := read("/proc/1/cmdline")
	switch argv0, _, _ := strings.Cut(string(line), "\x00"); {
	case err != nil || len(line) == 0:
		t.sealed++
	case path.Base(argv0) != "stoma":
		t.leak("PID 1 is " + strconv.Quote(path.Base(argv0)) + " and not the Stoma")
	}
	return t.result("closed")
}

// stomaDirectory: the Sprout executes the Stoma in there for probes, and that is all
// it may do.
func stomaDirectory() Result {
	if !exists("/.tendril") {
		return notApplicable("there is no /.tendril")
	}
	var t tried
	_, err := list("/.tendril")
	t.attempt("list /.tendril", err)
	if exists("/.tendril/private") {
		_, err = list("/.tendril/private")
		t.attempt("list /.tendril/private", err)
		t.attempt("enter /.tendril/private", unix.Faccessat(unix.AT_FDCWD, "/.tendril/private", unix.X_OK, unix.AT_EACCESS))
	}
	return t.result("closed")
}

func errOf(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// pointer is for raw system calls that x/sys has no function for.
func pointer[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
