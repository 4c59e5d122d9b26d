//go:build linux

package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"tendril/cgroup"
	"tendril/fault"
)

// Record names a process in a file for whoever comes after a Stem that was killed: its
// pid and, since pids are used again, when it started.
func Record(path string, pid int) error {
	start, err := startTime(pid)
	if err != nil {
		return fmt.Errorf("recording the sandbox's process: %w", err)
	}
	return os.WriteFile(path, fmt.Appendf(nil, "%d %s\n", pid, start), 0o600)
}

// Sweep ends the process that a record names with everything that comes from it, and
// removes the run's control group.
func Sweep(ctx context.Context, run, record string) error {
	return errors.Join(endRecorded(ctx, record), cgroup.Remove(ctx, groupName(run)))
}

func endRecorded(ctx context.Context, path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding the process of an abandoned run: %w", err)
	}
	pid, start, ok := parseRecord(data)
	if !ok {
		return nil // cut short by a crash: the process never got its order
	}
	root, err := Hold(pid)
	if err != nil || root == nil {
		return err
	}
	defer root.Release()
	if now, err := startTime(pid); err != nil || now != start {
		return nil // the pid belongs to somebody else by now
	}
	// Stopped, it starts no more processes while those that it has are looked for.
	if err := root.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	all := []*Held{root}
	for _, child := range descendants(pid) {
		p, err := Hold(child)
		if err != nil {
			return err
		}
		if p != nil {
			defer p.Release()
			all = append(all, p)
		}
	}
	for _, p := range all {
		if err := p.Signal(unix.SIGKILL); err != nil {
			return err
		}
	}
	for _, p := range all {
		if err := p.AwaitExit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Held is a process by its pidfd, which belongs to it and to no later one of that pid.
type Held struct{ pid, fd int }

// Hold returns nil when there is no such process.
func Hold(pid int) (*Held, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening the process %d of an abandoned run: %w", pid, err)
	}
	return &Held{pid, fd}, nil
}

func (p *Held) Release() { unix.Close(p.fd) }

func (p *Held) Signal(n unix.Signal) error {
	if err := unix.PidfdSendSignal(p.fd, n, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending the process %d of an abandoned run: %w", p.pid, err)
	}
	return nil
}

// AwaitExit waits until the process is gone; its descriptor becomes readable then
// (pidfd_open(2)).
func (p *Held) AwaitExit(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return fault.New(fault.Unavailable, "the process %d of an abandoned run does not end: %w", p.pid, err)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the process %d of an abandoned run: %w", p.pid, err)
		}
		if n > 0 {
			return nil
		}
	}
}

// descendants lists what comes from a process that does not start more.
func descendants(root int) []int {
	parents := map[int]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, _ := ParentOf(pid); parent > 0 {
			parents[pid] = parent
		}
	}
	var list []int
	for pid := range parents {
		for p, hops := parents[pid], 0; p > 1 && hops < len(parents); p, hops = parents[p], hops+1 {
			if p == root {
				list = append(list, pid)
				break
			}
		}
	}
	return list
}

// ParentOf is the process that a process comes from, and whether it still runs: one that has
// ended and was not reaped has a parent too. 0 is nobody: there is no such process.
func ParentOf(pid int) (parent int, runs bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	fields := statFields(string(stat))
	if len(fields) < 2 {
		return 0, false
	}
	parent, _ = strconv.Atoi(fields[1]) // the kernel writes a number
	return parent, fields[0] != "Z" && fields[0] != "X"
}

// parseRecord reads what Record wrote: "PID START\n".
func parseRecord(data []byte) (pid int, start string, ok bool) {
	line, whole := strings.CutSuffix(string(data), "\n")
	word, start, _ := strings.Cut(line, " ")
	pid, err := strconv.Atoi(word)
	if _, notATime := strconv.ParseUint(start, 10, 64); notATime != nil || err != nil || !whole || pid <= 1 {
		return 0, "", false
	}
	return pid, start, true
}

// startTime is field 22 of /proc/PID/stat, in clock ticks since boot.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	start, ok := parseStartTime(string(data))
	if !ok {
		return "", fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	return start, nil
}

func parseStartTime(stat string) (string, bool) {
	fields := statFields(stat)
	if len(fields) < 20 {
		return "", false
	}
	return fields[19], true
}

// statFields splits proc_pid_stat(5) from its third field on. The second, the
// command's name, is in parentheses and may hold anything.
func statFields(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}
