//go:build linux

package runsc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"tendril/fault"
	"tendril/rootfs"
	"tendril/terrarium/confine"
)

// nobody is the uid that gVisor gives a sentry which needs no file of the host.
const nobody = 65534

// processState is what the host's kernel says of a process of the wall.
type processState struct {
	UID          uint32
	Capabilities uint64 // effective
	Seccomp      int    // 2: filtered
	NoNewPrivs   int
}

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
func readBack(sentryPID, goferPID int, view rootfs.View, stomaPath string) (sentry, gofer processState, err error) {
	if err := readBackSettings(sentryPID); err != nil {
		return sentry, gofer, err // the rest follows from these
	}
	wantSentry, wantGofer := expectations()
	if sentry, err = stateOf(sentryPID); err != nil {
		return sentry, gofer, err
	}
	if gofer, err = stateOf(goferPID); err != nil {
		return sentry, gofer, err
	}
	return sentry, gofer, errors.Join(
		wantSentry.compare(sentry),
		wantGofer.compare(gofer),
		readBackNamespaces(sentryPID, "ipc", "mnt", "net", "pid", "user", "uts"),
		readBackNamespaces(goferPID, "ipc", "mnt", "net", "pid", "uts"),
		readBackEnvironment("sentry", sentryPID),
		readBackEnvironment("gofer", goferPID),
		readBackMounts(goferPID, view, stomaPath),
	)
}

func (e expected) compare(got processState) error {
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

// stateOf reads /proc/PID/status, see proc_pid_status(5).
func stateOf(pid int) (processState, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return processState{}, fault.New(fault.BrokenBoundary, "reading back the wall's process %d: %w", pid, err)
	}
	defer f.Close()
	return parseState(bufio.NewScanner(f))
}

func parseState(lines *bufio.Scanner) (processState, error) {
	var state processState
	found := map[string]bool{}
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		var err error
		switch key {
		case "Uid":
			if len(fields) != 4 || fields[0] != fields[1] || fields[1] != fields[2] || fields[2] != fields[3] {
				return state, fault.New(fault.BrokenBoundary, "a process of the wall has more than one uid: %v", fields)
			}
			var uid uint64
			uid, err = strconv.ParseUint(fields[0], 10, 32)
			state.UID = uint32(uid)
		case "CapEff":
			state.Capabilities, err = strconv.ParseUint(fields[0], 16, 64)
		case "Seccomp":
			state.Seccomp, err = strconv.Atoi(fields[0])
		case "NoNewPrivs":
			state.NoNewPrivs, err = strconv.Atoi(fields[0])
		default:
			continue
		}
		if err != nil {
			return state, fmt.Errorf("reading /proc status %s: %w", key, err)
		}
		// The kernel writes each once. Lines that stand twice are not a status of the
		// kernel's, and must not make up for one that is missing.
		if found[key] {
			return state, fault.New(fault.BrokenBoundary, "the status of a process of the wall says %s twice", key)
		}
		found[key] = true
	}
	if err := lines.Err(); err != nil {
		return state, fmt.Errorf("reading /proc status: %w", err)
	}
	if len(found) != 4 {
		return state, fault.New(fault.BrokenBoundary, "the kernel does not say how a process of the wall is confined (%d of 4 lines)", len(found))
	}
	return state, nil
}
