//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// retry is how often a group is looked at that still has processes. The kernel has no
// event for it that both versions share.
const retry = 2 * time.Millisecond

// Kill kills every process of the group, also those that are born meanwhile, and
// returns when none is left or ctx ends. Killing an empty group is no error.
//
// The group is of no further use than to be deleted.
func (g *Group) Kill(ctx context.Context) error {
	dirs := slices.Clone(g.dirs)
	slices.SortStableFunc(dirs, func(a, b place) int {
		return stopRank(a.unified, a.controllers) - stopRank(b.unified, b.controllers)
	})
	for _, d := range dirs {
		if err := killAll(ctx, d.dir, d.unified); err != nil {
			return fmt.Errorf("kill control group %s: %w", g.name, err)
		}
	}
	return nil
}

// stopRank orders hierarchies by how well they stop a group from growing while it is
// killed: all have the same processes, so what the first one killed is gone from the
// others.
func stopRank(unified bool, controllers []string) int {
	switch {
	case unified:
		return 0 // cgroup.kill
	case slices.Contains(controllers, "freezer"):
		return 1
	case slices.Contains(controllers, "pids"):
		return 2
	}
	return 3
}

// Delete removes the group, which must have no process left; it waits for those that
// are just dying until ctx ends. A group that is gone is no error.
func (g *Group) Delete(ctx context.Context) error {
	for _, d := range g.dirs {
		if err := removeDir(ctx, d.dir); err != nil {
			return fmt.Errorf("delete control group %s: %w", g.name, err)
		}
	}
	return nil
}

// killAll empties the group at dir and all groups below it.
func killAll(ctx context.Context, dir string, unified bool) error {
	ticker := time.NewTicker(retry)
	defer ticker.Stop()
	for {
		left, err := killOnce(dir, unified)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes are left in %s: %w", left, dir, ctx.Err())
		case <-ticker.C:
		}
	}
}

// killOnce stops the group from growing, kills what is in it and returns how many
// processes that were.
func killOnce(dir string, unified bool) (left int, err error) {
	dirs, err := subtree(dir)
	if err != nil {
		return 0, err
	}
	if unified && write(dir, "cgroup.kill", "1") == nil { // Linux 5.14, atomic
		for _, d := range dirs {
			left += len(members(d))
		}
		return left, nil
	}
	// A frozen process does not fork, and on version 1 does not die either.
	freezer, frozen, thawed := "freezer.state", "FROZEN", "THAWED"
	if unified {
		freezer, frozen, thawed = "cgroup.freeze", "1", "0"
	}
	for _, d := range dirs {
		_ = write(d, freezer, frozen)
		_ = write(d, "pids.max", "0") // no more forks, where there is no freezer
	}
	for _, d := range dirs {
		for _, pid := range members(d) {
			left++
			kill(d, pid)
		}
	}
	for _, d := range dirs {
		_ = write(d, freezer, thawed)
	}
	return left, nil
}

// kill kills a process of the group. The pidfd holds on to the process, so that a
// second look at the list tells whether it is still the one that was meant.
func kill(dir string, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if slices.Contains(members(dir), pid) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

func members(dir string) []int {
	data, err := read(dir, "cgroup.procs")
	if err != nil {
		return nil
	}
	return parsePids(data)
}

// subtree returns dir and the groups below it, parents first. A group that is gone has
// none, and so has one that this process may not read: it is of another account.
func subtree(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			out = append(out, path)
		}
		if len(out) > maxGroups {
			return fmt.Errorf("more than %d groups below %s", maxGroups, dir)
		}
		return nil
	})
	return out, err
}

// maxGroups bounds how many groups are looked at.
const maxGroups = 100_000

// removeDir removes the group at dir with those below it, children first.
func removeDir(ctx context.Context, dir string) error {
	ticker := time.NewTicker(retry)
	defer ticker.Stop()
	for {
		dirs, err := subtree(dir)
		if err != nil {
			return err
		}
		err = nil
		for _, d := range slices.Backward(dirs) {
			if e := unix.Rmdir(d); e != nil && !errors.Is(e, unix.ENOENT) {
				err = &os.PathError{Op: "rmdir", Path: d, Err: e}
			}
		}
		if err == nil || !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-ticker.C:
		}
	}
}

// Remove kills and deletes the group of that name, wherever in the hierarchies it is:
// a process of another session made it below its own group. That there is none is no
// error.
func Remove(ctx context.Context, name string) error {
	return sweep(ctx, hostTree, func(n string) bool { return n == name })
}

// Sweep kills and deletes every group of this account whose name begins with prefix,
// but those that keep wants. An empty prefix is refused.
func Sweep(ctx context.Context, prefix string, keep func(name string) bool) error {
	if !validName(prefix) {
		return fmt.Errorf("%q is no prefix of control groups to sweep", prefix)
	}
	return sweep(ctx, hostTree, func(n string) bool { return strings.HasPrefix(n, prefix) && !keep(n) })
}

func sweep(ctx context.Context, t tree, match func(name string) bool) error {
	mounts, _, err := t.read()
	if err != nil {
		return fmt.Errorf("sweep control groups: %w", err)
	}
	slices.SortStableFunc(mounts, func(a, b mount) int {
		return stopRank(a.unified, a.controllers) - stopRank(b.unified, b.controllers)
	})
	var errs []error
	for _, m := range mounts {
		dirs, err := subtree(t.prefix + m.target)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, dir := range dirs {
			var st unix.Stat_t
			if !match(filepath.Base(dir)) || unix.Lstat(dir, &st) != nil || int(st.Uid) != t.uid {
				continue
			}
			if err := killAll(ctx, dir, m.unified); err != nil {
				errs = append(errs, err)
				continue
			}
			if err := removeDir(ctx, dir); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sweep control groups: %w", err)
	}
	return nil
}
