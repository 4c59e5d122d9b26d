//go:build linux

package confine

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"tendril/fault"
)

// State is what the host's kernel says of a process of the wall.
type State struct {
	UID          uint32
	Capabilities uint64 // effective
	Seccomp      int    // 2: filtered
	NoNewPrivs   int
}

// StateOf reads /proc/PID/status, see proc_pid_status(5).
func StateOf(pid int) (State, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return State{}, fault.New(fault.BrokenBoundary, "reading back the wall's process %d: %w", pid, err)
	}
	defer f.Close()
	return parseState(bufio.NewScanner(f))
}

func parseState(lines *bufio.Scanner) (State, error) {
	var state State
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

// Apart refuses a process of a wall that shares a namespace with the host that it must
// not share.
func Apart(pid int, kinds ...string) error {
	for _, kind := range kinds {
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return fault.New(fault.BrokenBoundary, "reading our own %s namespace: %w", kind, err)
		}
		theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/" + kind)
		if err != nil {
			return fault.New(fault.BrokenBoundary, "reading back the wall's %s namespace: %w", kind, err)
		}
		if ours == theirs {
			return fault.New(fault.BrokenBoundary, "the wall's process %d is in the host's %s namespace", pid, kind).
				WithRule("the wall's own processes are confined")
		}
	}
	return nil
}

// MountPoint is one line of /proc/PID/mountinfo.
type MountPoint struct {
	Target   string
	ReadOnly bool
}

func MountsOf(path string) ([]MountPoint, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.BrokenBoundary, "reading back the wall's mounts: %w", err)
	}
	defer f.Close()
	return parseMounts(f)
}

// parseMounts reads proc_pid_mountinfo(5): the fifth field is the mount point, the
// sixth its options.
func parseMounts(r io.Reader) ([]MountPoint, error) {
	var list []MountPoint
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			return nil, fault.New(fault.BrokenBoundary, "reading back the wall's mounts: %q is no mount", lines.Text())
		}
		list = append(list, MountPoint{unescape(fields[4]), slices.Contains(strings.Split(fields[5], ","), "ro")})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading back the wall's mounts: %w", err)
	}
	return list, nil
}

// unescape undoes what the kernel does to blanks, newlines and backslashes in paths.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}
