//go:build linux

package runsc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"tendril/cgroup"
	"tendril/fault"
)

// keeperFile names the keeper of a Terrarium for whoever comes after a Stem that
// was killed: its pid and, since pids are used again, when it started.
const keeperFile = "keeper"

func recordKeeper(dir string, pid int) error {
	start, err := startTime(pid)
	if err != nil {
		return fmt.Errorf("recording the sandbox's keeper: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, keeperFile), fmt.Appendf(nil, "%d %s\n", pid, start), 0o600)
}

// Sweep implements [terrarium.Provider]. The keeper ends by itself when its Stem
// is gone, and takes the sandbox along; this is for what was killed before it
// could.
func (p *provider) Sweep(ctx context.Context, run, dir string) error {
	err := endKeeper(ctx, dir)
	return errors.Join(err, cgroup.Remove(ctx, groupName(run)), removeRemains(dir))
}

func endKeeper(ctx context.Context, dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, keeperFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding the keeper of an abandoned run: %w", err)
	}
	pid, start, ok := parseKeeper(data)
	if !ok {
		return nil // cut short by a crash: the keeper never got its order
	}
	keeper, err := holdProcess(pid)
	if err != nil || keeper == nil {
		return err
	}
	defer keeper.release()
	if now, err := startTime(pid); err != nil || now != start {
		return nil // the pid belongs to somebody else by now
	}
	// Stopped, it starts no more processes while those that it has are looked for.
	if err := keeper.signal(unix.SIGSTOP); err != nil {
		return err
	}
	all := []*held{keeper}
	for _, child := range descendants(pid) {
		p, err := holdProcess(child)
		if err != nil {
			return err
		}
		if p != nil {
			defer p.release()
			all = append(all, p)
		}
	}
	for _, p := range all {
		if err := p.signal(unix.SIGKILL); err != nil {
			return err
		}
	}
	for _, p := range all {
		if err := p.awaitExit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// held is a process by its pidfd, which belongs to it and to no later one of that pid.
type held struct{ pid, fd int }

// holdProcess returns nil when there is no such process.
func holdProcess(pid int) (*held, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening the process %d of an abandoned run: %w", pid, err)
	}
	return &held{pid, fd}, nil
}

func (p *held) release() { unix.Close(p.fd) }

func (p *held) signal(n unix.Signal) error {
	if err := unix.PidfdSendSignal(p.fd, n, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending the process %d of an abandoned run: %w", p.pid, err)
	}
	return nil
}

// awaitExit waits until the process is gone; its descriptor becomes readable then
// (pidfd_open(2)).
func (p *held) awaitExit(ctx context.Context) error {
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
		if stat, err := os.ReadFile("/proc/" + e.Name() + "/stat"); err == nil {
			if fields := statFields(string(stat)); len(fields) > 1 {
				parents[pid], _ = strconv.Atoi(fields[1]) // 0 is nobody's
			}
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

// parseKeeper reads what recordKeeper wrote: "PID START\n".
func parseKeeper(data []byte) (pid int, start string, ok bool) {
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
