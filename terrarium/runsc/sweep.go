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
	word, start, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	pid, err := strconv.Atoi(word)
	if err != nil || pid <= 1 {
		return nil // cut short by a crash: the keeper never got its order
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the keeper of an abandoned run: %w", err)
	}
	defer unix.Close(fd)
	if now, err := startTime(pid); err != nil || now != start {
		return nil // the pid belongs to somebody else by now
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending the keeper of an abandoned run: %w", err)
	}
	return awaitExit(ctx, fd, pid)
}

// awaitExit waits until the process of the pidfd is gone; its descriptor becomes
// readable then (pidfd_open(2)).
func awaitExit(ctx context.Context, fd, pid int) error {
	for {
		if err := ctx.Err(); err != nil {
			return fault.New(fault.Unavailable, "the keeper %d of an abandoned run does not end: %w", pid, err)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the keeper of an abandoned run: %w", err)
		}
		if n > 0 {
			return nil
		}
	}
}

// startTime is field 22 of /proc/PID/stat, in clock ticks since boot.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The command's name is in parentheses and may hold anything.
	_, rest, ok := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	return fields[19], nil
}
