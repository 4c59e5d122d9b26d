package probe

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var descriptorProbes = []Probe{
	{ID: "F06", Core: true, Dimension: "filesystem", Seal: Descriptors, What: "nothing above 2 was inherited", Run: inheritedDescriptors},
	{ID: "D01", Dimension: "filesystem", Seal: Descriptors, What: "0, 1 and 2 are no file, directory or socket of the host", Run: standardDescriptors},
	{ID: "F05", Dimension: "filesystem", Seal: Descriptors, What: "descriptors and directories of other accounts' processes are closed", Run: foreignLinks},
}

// inheritedDescriptors tells what was inherited from what this program opened by the
// close-on-exec flag: what has it did not come through execve(2).
func inheritedDescriptors() Result {
	candidates := map[int]bool{}
	var low [61]unix.PollFd // from 3, whatever the list says
	for i := range low {
		low[i].Fd = int32(i + 3)
	}
	_, err := unix.Poll(low[:], 0)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Poll(low[:], 0)
	}
	if err != nil {
		return unknown("poll: %s", errno(err))
	}
	for _, p := range low {
		candidates[int(p.Fd)] = p.Revents&unix.POLLNVAL == 0 // that is: it is open
	}
	names, err := list("/proc/self/fd")
	if err != nil {
		return unknown("/proc/self/fd cannot be read: %s", errno(err))
	}
	for _, n := range names {
		if fd, err := strconv.Atoi(n); err == nil && fd > 2 {
			candidates[fd] = true
		}
	}
	var found []string
	for fd, open := range candidates {
		if !open {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			target, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			found = append(found, fmt.Sprintf("%d (%s)", fd, target))
		}
	}
	if len(found) > 0 {
		return leak("inherited: %s", strings.Join(found, " "))
	}
	return sealed("none")
}

// standardDescriptors wants pipes or a terminal: a socket or file of the host as
// standard stream would be a way around the Stoma.
func standardDescriptors() Result {
	var t tried
	for fd := range 3 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.sealed++ // closed
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFIFO, unix.S_IFCHR:
			t.sealed++
		case unix.S_IFSOCK:
			t.leak(fmt.Sprintf("%d is a socket", fd))
		case unix.S_IFDIR:
			t.leak(fmt.Sprintf("%d is a directory", fd))
		case unix.S_IFREG:
			t.leak(fmt.Sprintf("%d is a regular file", fd))
		default:
			t.unknowns = append(t.unknowns, fmt.Sprintf("%d has mode %o", fd, st.Mode))
		}
	}
	return t.result("pipes, terminals or closed")
}

func foreignLinks() Result {
	var t tried
	for _, pid := range processes() {
		uid, ok := owner(pid)
		if !ok || pid != 1 && int(uid) == os.Geteuid() {
			continue
		}
		base := "/proc/" + strconv.Itoa(pid)
		for _, name := range []string{"/cwd", "/root", "/exe"} {
			if target, err := os.Readlink(base + name); err == nil {
				t.leak(base + name + " leads to " + target)
			}
		}
		if names, err := list(base + "/fd"); err == nil {
			t.leak(fmt.Sprintf("%s/fd lists %d descriptors", base, len(names)))
		}
		if len(t.leaks) > 4 {
			break
		}
	}
	return t.result("closed")
}
