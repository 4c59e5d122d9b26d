package probe

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The children that probes start from this program's own file.
const (
	childArgument = "-child"
	childNothing  = "nothing"
	childMount    = "mount"
	childThreads  = "threads"
	childDid      = 42 // exit status: it did what it was to try
)

// startChild runs this program again as `probe -child NAME`, in new namespaces if any
// are given, with this account as root of a new user namespace. It dies with the
// thread that started it. Its standard error is stderr, or nothing.
func startChild(name string, namespaces uintptr, stderr *os.File) (*os.Process, error) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if stderr == nil {
		stderr = null
	}
	attr := &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: unix.SIGKILL}
	if namespaces&unix.CLONE_NEWUSER != 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return os.StartProcess("/proc/self/exe", []string{"stoma", "probe", childArgument, name}, &os.ProcAttr{
		Files: []*os.File{null, null, stderr},
		Env:   []string{"GOTRACEBACK=none"},
		Sys:   attr,
	})
}

// child is the other end of startChild.
func child(name string) int {
	switch name {
	case childMount:
		runtime.LockOSThread()
		_ = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		if unix.Mount("probe", "/tmp", "tmpfs", 0, "size=4k") == nil {
			return childDid
		}
	case childThreads:
		return startThreads()
	}
	return 0
}
