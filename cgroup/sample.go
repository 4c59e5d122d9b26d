//go:build linux

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxTree bounds how many processes a sample looks at.
const maxTree = 100_000

// Sample measures the processes and everything that descends from them, for hosts on
// which no group can be made. Memory is what they hold alone (RssAnon) and what their
// memfds hold (memfd_create(2); a sandbox keeps its guests' memory in one), each file
// once. CPU is that of the living and of those that they waited for. A process that
// ends meanwhile is left out, and of one that closed itself to us (PR_SET_DUMPABLE in
// prctl(2)) what it has mapped of shared memory stands for its memfds. The error is for when
// none of pids is there, or one cannot be measured.
func Sample(pids []int) (Usage, error) {
	var u Usage
	files := map[inode]bool{}
	seen := map[int]bool{}
	queue := slices.Clone(pids)
	measured := 0
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		if seen[pid] {
			continue
		}
		if seen[pid] = true; len(seen) > maxTree {
			return Usage{}, fmt.Errorf("sample processes: more than %d descend from %v", maxTree, pids)
		}
		p, err := sampleOne(pid, files)
		if gone(err) {
			continue
		}
		if err != nil {
			return Usage{}, fmt.Errorf("sample process %d: %w", pid, err)
		}
		measured++
		u.Memory += p.Memory
		u.CPU += p.CPU
		u.Pids += p.Pids
		children, err := childrenOf(pid)
		if err != nil && !gone(err) {
			return Usage{}, fmt.Errorf("sample process %d: %w", pid, err)
		}
		queue = append(queue, children...)
	}
	if measured == 0 {
		return Usage{}, fmt.Errorf("sample processes %v: %w", pids, unix.ESRCH)
	}
	return u, nil
}

// SampleMemory measures the memory of one process as [Sample] does, without its
// children. It is cheap enough to be asked every few milliseconds: of the process's
// descriptors it looks at the [maxDescriptors] lowest.
func SampleMemory(pid int) (int64, error) {
	memory, err := memoryOf(pid, map[inode]bool{})
	if err != nil {
		return 0, fmt.Errorf("sample memory of process %d: %w", pid, err)
	}
	return memory, nil
}

// maxDescriptors bounds how many descriptors of one process are looked at for memfds.
// A sandbox opens the file for its memory at its start, so that it has a low number.
const maxDescriptors = 512

type inode struct{ dev, ino uint64 }

func sampleOne(pid int, files map[inode]bool) (Usage, error) {
	stat, err := procFile(pid, "stat")
	if err != nil {
		return Usage{}, err
	}
	ticks, threads, err := parseStat(string(stat))
	if err != nil {
		return Usage{}, err
	}
	memory, err := memoryOf(pid, files)
	if err != nil {
		return Usage{}, err
	}
	// USER_HZ is 100 on every architecture that Go runs on (time(7)).
	return Usage{Memory: memory, CPU: time.Duration(ticks) * (time.Second / 100), Pids: threads}, nil
}

// memoryOf adds the memfds that files does not hold yet, and puts them there.
func memoryOf(pid int, files map[inode]bool) (int64, error) {
	status, err := procFile(pid, "status")
	if err != nil {
		return 0, err
	}
	memory, ok := parseRss(string(status), "RssAnon:")
	if !ok {
		return 0, nil // it ended and waits to be waited for: it holds nothing
	}
	names, err := descriptors(pid)
	if errors.Is(err, os.ErrPermission) {
		shared, _ := parseRss(string(status), "RssShmem:")
		return memory + shared, nil
	}
	if err != nil {
		return 0, err
	}
	base := "/proc/" + strconv.Itoa(pid) + "/fd/"
	var target [64]byte
	for _, name := range names {
		path := base + name
		n, err := unix.Readlink(path, target[:])
		if err != nil || !bytes.HasPrefix(target[:n], []byte("/memfd:")) {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil {
			continue // closed meanwhile
		}
		if key := (inode{st.Dev, st.Ino}); !files[key] {
			files[key] = true
			memory += st.Blocks * 512
		}
	}
	return memory, nil
}

// descriptors returns the lowest descriptors of a process, by name.
func descriptors(pid int) ([]string, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The kernel lists them in ascending order.
	names, err := f.Readdirnames(maxDescriptors)
	if len(names) > 0 {
		return names, nil
	}
	if gone(err) {
		return nil, err
	}
	return nil, nil // none, or none left
}

// childrenOf reads /proc/PID/task/TID/children (proc_tid_children(5)) of each thread.
func childrenOf(pid int) ([]int, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	threads, err := f.Readdirnames(maxTree)
	if err != nil && len(threads) == 0 {
		return nil, err
	}
	var out []int
	for _, tid := range threads {
		data, err := os.ReadFile(dir + "/" + tid + "/children")
		if err != nil {
			if _, e := os.Stat(dir + "/" + tid); e == nil {
				return nil, err // the thread is there, the file is not: CONFIG_PROC_CHILDREN is off
			}
			continue
		}
		out = append(out, parseChildren(string(data))...)
	}
	return out, nil
}

func procFile(pid int, name string) ([]byte, error) {
	return os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + name)
}

// gone reports whether err is that of a process that ended.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// parseStat reads the clock ticks that a process and the children it waited for used,
// and its threads, out of proc_pid_stat(5).
func parseStat(stat string) (ticks uint64, threads int, err error) {
	// The command's name is in parentheses and may hold anything, also parentheses.
	i := strings.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, 0, fmt.Errorf("%w: no command in %.60q", errNotANumber, stat)
	}
	f := strings.Fields(stat[i+1:]) // f[0] is field 3, the state
	if len(f) < 18 {
		return 0, 0, fmt.Errorf("%w: %d fields in stat", errNotANumber, len(f))
	}
	for _, s := range f[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			return 0, 0, fmt.Errorf("%w: %.40q in stat", errNotANumber, s)
		}
		ticks += n
	}
	threads, err = strconv.Atoi(f[17])
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %.40q in stat", errNotANumber, f[17])
	}
	return ticks, threads, nil
}

// parseRss reads RssAnon or RssShmem out of proc_pid_status(5), in bytes. A zombie has none.
func parseRss(status, key string) (int64, bool) {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, key)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 53)
		if err != nil || n < 0 {
			return 0, false
		}
		return n * 1024, true
	}
	return 0, false
}

func parseChildren(data string) []int {
	var out []int
	for s := range strings.FieldsSeq(data) {
		if n, err := strconv.ParseInt(s, 10, 32); err == nil && n > 0 {
			out = append(out, int(n))
		}
	}
	return out
}
