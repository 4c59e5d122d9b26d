//go:build linux

package confine

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// Rootless reports whether this is an ordinary user.
func Rootless() bool { return os.Geteuid() != 0 }

// InUserNamespace starts a process in a user namespace of its own, in which this account
// is the only one and goes by uid:gid, if this is an ordinary user.
func InUserNamespace(attr *syscall.SysProcAttr, uid, gid int) {
	if !Rootless() {
		return
	}
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: os.Getgid(), Size: 1}}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}
}

// UserNamespacesWork says what keeps an ordinary user from having one, if anything is known
// to.
func UserNamespacesWork() error {
	if !Rootless() {
		return nil
	}
	if remedy := userNamespaceRemedy(); remedy != unknownRemedy {
		return fault.New(fault.Unavailable, "this host gives ordinary users no user namespace, and this wall needs one").WithHint("%s", remedy)
	}
	return nil
}

// StartError is the error of starting a program in a user namespace, with what may help.
func StartError(program string, err error) error {
	f := fault.New(fault.Unavailable, "starting %s: %w", program, err)
	if Rootless() && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EUSERS)) {
		return f.WithHint("%s", userNamespaceRemedy())
	}
	return f
}

const unknownRemedy = "run as root, or ask the administrator why unshare(CLONE_NEWUSER) is refused"

// userNamespaceRemedy looks for the three switches that distributions have for
// user namespaces (Documentation/admin-guide/sysctl/user.rst; the other two are
// Debian's and Ubuntu's).
func userNamespaceRemedy() string {
	value := func(path string) (int, bool) {
		data, err := os.ReadFile(path)
		if err != nil {
			return 0, false
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(data)))
		return n, err == nil
	}
	if n, ok := value("/proc/sys/user/max_user_namespaces"); ok && n == 0 {
		return "let an administrator run `sysctl user.max_user_namespaces=15000`"
	}
	if n, ok := value("/proc/sys/kernel/unprivileged_userns_clone"); ok && n == 0 {
		return "let an administrator run `sysctl kernel.unprivileged_userns_clone=1`"
	}
	if n, ok := value("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); ok && n != 0 {
		return "let an administrator run `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or give tendril an AppArmor profile with `userns,`"
	}
	return unknownRemedy
}
