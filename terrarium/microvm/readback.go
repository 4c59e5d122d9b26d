//go:build linux

package microvm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tendril/fault"
	"tendril/terrarium/confine"
)

const confinedRule = "the wall's own processes are confined"

func broken(format string, args ...any) error {
	return fault.New(fault.BrokenBoundary, "the machine's process "+format, args...).WithRule(confinedRule)
}

// readBack refuses a machine whose process is not as it was ordered to be.
func (p *provider) readBack(pid int, asked plan, l *launch) (confine.State, error) {
	state, err := stateOf(pid)
	if err != nil {
		return state, err
	}
	kinds := []string{"ipc", "mnt", "net", "pid", "uts"}
	if confine.Rootless() {
		kinds = append(kinds, "user")
	}
	return state, errors.Join(
		compareState(state, asked.uid),
		confine.Apart(pid, kinds...),
		compareWords("command line", pid, "cmdline", l.argv),
		compareWords("environment", pid, "environ", func(words []string) bool { return len(words) == 0 }),
		compareFiles(pid, asked.drives),
		compareMounts(pid, l.mounts),
	)
}

// stateOf is the state of the process, which all of its threads have.
func stateOf(pid int) (confine.State, error) {
	state, err := confine.StateOf(pid)
	if err != nil {
		return state, err
	}
	threads, err := os.ReadDir(procFile(pid, "task"))
	if err != nil {
		return state, fault.New(fault.BrokenBoundary, "reading back the threads of the machine's process: %w", err)
	}
	for _, e := range threads {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		other, err := confine.StateOf(tid)
		if errors.Is(err, os.ErrNotExist) {
			continue // it ended
		}
		if err != nil {
			return state, err
		}
		if other != state {
			return state, broken("has threads that are confined in different ways: %+v and %+v", state, other)
		}
	}
	return state, nil
}

func compareState(got confine.State, uid int) error {
	if confine.Rootless() {
		uid = os.Getuid()
	}
	switch {
	case int64(got.UID) != int64(uid):
		return broken("runs as host uid %d instead of %d", got.UID, uid)
	case got.Capabilities != 0:
		return broken("holds the capabilities %#x", got.Capabilities)
	case got.Seccomp != 2:
		return broken("runs without a seccomp filter (mode %d)", got.Seccomp)
	case got.NoNewPrivs != 1:
		return broken("can gain privileges by executing a file")
	}
	return nil
}

// compareWords reads a file of /proc that holds strings, each of which ends with a NUL.
func compareWords(what string, pid int, file string, fits func([]string) bool) error {
	text, err := os.ReadFile(procFile(pid, file))
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the %s of the machine's process: %w", what, err)
	}
	var got []string
	if text = bytes.TrimSuffix(text, []byte{0}); len(text) > 0 {
		got = strings.Split(string(text), "\x00")
	}
	if !fits(got) {
		return broken("has the %s %q, which is not what was asked", what, got)
	}
	return nil
}

func procFile(pid int, parts ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(pid)}, parts...)...)
}

// compareFiles refuses a process that has a file of the host open which is no drive of its
// machine, or one that it may not write, for writing.
func compareFiles(pid int, drives []drive) error {
	dir := procFile(pid, "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the open files of the machine's process: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // closed by now
		}
		if err != nil {
			return fault.New(fault.BrokenBoundary, "reading back an open file of the machine's process: %w", err)
		}
		if !filepath.IsAbs(target) || strings.HasPrefix(target, "/memfd:") || target == "/dev/null" || target == kvmDevice() {
			continue // a pipe, a socket, memory; and what it has for itself or is given
		}
		if err := compareFile(pid, e.Name(), path, target, drives); err != nil {
			return err
		}
	}
	return nil
}

func compareFile(pid int, fd, path, target string, drives []drive) error {
	is, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back an open file of the machine's process: %w", err)
	}
	for _, d := range drives {
		ours, err := os.Stat(d.path)
		if err != nil || !os.SameFile(is, ours) {
			continue
		}
		writable, err := openForWriting(pid, fd)
		if err == nil && writable && !d.writable {
			err = broken("has the drive %s open for writing", d.name)
		}
		return err
	}
	return broken("has %q open, which is none of its machine's", target)
}

// openForWriting reads the flags of an open file (proc_pid_fdinfo(5)).
func openForWriting(pid int, fd string) (bool, error) {
	text, err := os.ReadFile(procFile(pid, "fdinfo", fd))
	if err != nil {
		return false, fault.New(fault.BrokenBoundary, "reading back an open file of the machine's process: %w", err)
	}
	return parseFlags(string(text))
}

func parseFlags(text string) (writable bool, err error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(value), 8, 32)
			if err != nil {
				return false, fmt.Errorf("reading back an open file: %w", err)
			}
			return flags&uint64(os.O_WRONLY|os.O_RDWR) != 0, nil
		}
	}
	return false, fault.New(fault.BrokenBoundary, "the kernel does not say how a file is open: %q", text)
}

// compareMounts refuses a process that sees other files of the host than its order lists,
// or could write one that is not a device.
func compareMounts(pid int, want []mounted) error {
	got, err := confine.MountsOf(procFile(pid, "mountinfo"))
	if err != nil {
		return err
	}
	return compareMountPoints(got, want)
}

func compareMountPoints(got []confine.MountPoint, want []mounted) error {
	missing := map[string]mounted{}
	for _, m := range want {
		missing[m.target] = m
	}
	seen := map[string]bool{}
	for _, m := range got {
		asked, known := missing[m.Target]
		switch {
		case !known && !belongs(m.Target, want):
			return broken("sees %s of the host", m.Target)
		case !m.ReadOnly && !(known && asked.writable):
			return broken("could write to %s", m.Target)
		}
		seen[m.Target] = true
	}
	for target := range missing {
		if !seen[target] {
			return broken("does not see %s", target)
		}
	}
	return nil
}

// belongs reports whether a mount came along with the directory in which it lies.
func belongs(target string, want []mounted) bool {
	return slices.ContainsFunc(want, func(m mounted) bool { return m.target != "/" && strings.HasPrefix(target, m.target+"/") })
}
