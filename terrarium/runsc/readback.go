//go:build linux

package runsc

import (
	"errors"
	"fmt"
	"os"

	"tendril/fault"
	"tendril/rootfs"
	"tendril/terrarium/confine"
)

// nobody is the uid that gVisor gives a sentry which needs no file of the host.
const nobody = 65534

// Capabilities that a process of the wall may keep in the user namespace of an
// ordinary user, where they reach nothing but that user's own files in an empty
// mount namespace: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID for
// both, SYS_PTRACE for the sentry (systrap), SYS_CHROOT for the gofer.
// include/uapi/linux/capability.h has the numbers.
const (
	fileCapabilities = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<4
	capSysChroot     = 1 << 18
	capSysPtrace     = 1 << 19
)

// expected says what each process of the wall must look like.
type expected struct {
	role         string
	uid          uint32
	capabilities uint64 // no other bit
}

func expectations() (sentry, gofer expected) {
	if confine.Rootless() {
		uid := uint32(os.Getuid())
		return expected{"sentry", uid, fileCapabilities | capSysPtrace}, expected{"gofer", uid, fileCapabilities | capSysChroot}
	}
	return expected{"sentry", nobody, capSysPtrace}, expected{"gofer", 0, fileCapabilities | capSysChroot}
}

// readBack refuses a wall whose processes are not as expected, or that shows
// something else of the host than the view.
func readBack(sentryPID, goferPID int, view rootfs.View, stomaPath string) (sentry, gofer confine.State, err error) {
	if err := readBackSettings(sentryPID); err != nil {
		return sentry, gofer, err // the rest follows from these
	}
	wantSentry, wantGofer := expectations()
	if sentry, err = confine.StateOf(sentryPID); err != nil {
		return sentry, gofer, err
	}
	if gofer, err = confine.StateOf(goferPID); err != nil {
		return sentry, gofer, err
	}
	return sentry, gofer, errors.Join(
		wantSentry.compare(sentry),
		wantGofer.compare(gofer),
		confine.Apart(sentryPID, "ipc", "mnt", "net", "pid", "user", "uts"),
		confine.Apart(goferPID, "ipc", "mnt", "net", "pid", "uts"),
		readBackEnvironment("sentry", sentryPID),
		readBackEnvironment("gofer", goferPID),
		readBackMounts(goferPID, view, stomaPath),
	)
}

func (e expected) compare(got confine.State) error {
	broken := func(what string, args ...any) error {
		return fault.New(fault.BrokenBoundary, "the wall's %s %s", e.role, fmt.Sprintf(what, args...)).
			WithRule("the wall's own processes are confined")
	}
	switch {
	case got.UID != e.uid:
		return broken("runs as host uid %d instead of %d", got.UID, e.uid)
	case got.Capabilities&^e.capabilities != 0:
		return broken("holds capabilities %#x beyond %#x", got.Capabilities&^e.capabilities, e.capabilities)
	case got.Seccomp != 2:
		return broken("runs without a seccomp filter (mode %d)", got.Seccomp)
	case got.NoNewPrivs != 1:
		return broken("can gain privileges by executing a file")
	}
	return nil
}
