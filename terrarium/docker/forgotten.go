//go:build linux

package docker

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"tendril/fault"
	"tendril/terrarium/confine"
)

// identity is a file with the identifier of the run's container. It outlives what the daemon
// knows: one that is killed while it starts a container can forget it, and what it had
// started of it by then waits for ever.
func identity(dir string) string { return filepath.Join(below(dir), "container") }

// recordedContainer is "" when the run had no container yet.
func recordedContainer(dir string) string {
	data, err := os.ReadFile(identity(dir))
	if id := string(data); err == nil && len(id) == 64 && strings.Trim(id, "0123456789abcdef") == "" {
		return id
	}
	return ""
}

const (
	// leaveTime is how long the processes of a container that is removed may take to go by
	// themselves: those that serve it leave after it, and tidy up.
	leaveTime = time.Second
	leaveLook = 20 * time.Millisecond
)

// endForgotten ends what runs for a container that the daemon does not have any more.
func endForgotten(ctx context.Context, id string) error {
	patience := time.NewTimer(leaveTime)
	defer patience.Stop()
	again := time.NewTicker(leaveLook)
	defer again.Stop()
	for impatient := false; ; {
		left := processesOf(id)
		if len(left) == 0 {
			return nil
		}
		if impatient {
			if err := endTogether(ctx, id, left); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Unavailable, "ending what the daemon forgot of the container %.12s: %w", id, context.Cause(ctx))
		case <-patience.C:
			impatient = true
		case <-again.C:
		}
	}
}

// endTogether holds all of the processes before it ends one: what comes from a process that
// has ended belongs to nobody.
func endTogether(ctx context.Context, id string, pids []int) error {
	held := map[int]*confine.Held{}
	defer func() {
		for _, h := range held {
			h.Release()
		}
	}()
	for _, pid := range pids {
		h, err := confine.Hold(pid)
		if err != nil {
			return err
		}
		if h != nil {
			held[pid] = h
		}
	}
	for pid, h := range held {
		if !belongsTo(id, pid) { // its number is somebody else's by now
			h.Release()
			delete(held, pid)
		}
	}
	for pid, h := range held {
		err := h.Signal(unix.SIGKILL)
		if errors.Is(err, unix.EPERM) {
			return fault.New(fault.Unavailable, "the daemon forgot the process %d of the container %.12s, which it was starting when it ended: %w", pid, id, err).
				WithHint("nothing of a run was started in it; end it as root: kill -9 %d", pid)
		}
		if err != nil {
			return err
		}
	}
	for _, h := range held {
		if err := h.AwaitExit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// processesOf lists the processes of a container, and those that serve it.
func processesOf(id string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc") // without it nothing of this host is seen
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && belongsTo(id, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// belongsTo says whether a process is in a control group that bears a container's identifier,
// is what containerd serves that container with, or comes from that directly: a container's
// first process is in no control group for a moment.
func belongsTo(id string, pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	parent, runs := confine.ParentOf(pid)
	if !runs {
		return false
	}
	groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	return err == nil && bytes.Contains(groups, []byte(id)) || servedBy(id, pid) || servedBy(id, parent)
}

// servedBy knows a shim of containerd by its arguments: containerd-shim-runc-v2 -namespace
// moby -id ID -address SOCKET.
func servedBy(id string, pid int) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	program, _, _ := bytes.Cut(line, []byte{0})
	return err == nil && strings.HasPrefix(filepath.Base(string(program)), "containerd-shim") &&
		bytes.Contains(line, []byte("\x00-id\x00"+id+"\x00"))
}
