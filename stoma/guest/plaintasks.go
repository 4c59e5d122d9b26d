//go:build linux

package guest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// tasks is the limit of processes and threads that whoever made the container set, and how
// it is learnt that it refused one.
type tasks struct {
	limit int
	dir   int // the container's own control group; -1: it cannot be read

	// events says that the group keeps the limit and counts what it refused. Otherwise the
	// kernel counts for each account (RLIMIT_NPROC) and says nothing: then it was
	// reached when so many were there at once.
	events bool
	shared bool // the account is this process's too

	mu      sync.Mutex
	own     int   // threads of this process at the last look
	reached int64 // looks that met the limit
}

// containerTasks finds where the limit is kept. 0: there is none.
func containerTasks(limit int, sprout identity) *tasks {
	if limit == 0 {
		return nil
	}
	t := &tasks{limit: limit, dir: -1, shared: sprout.ours()}
	for _, path := range containerGroups() {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		most, err := readAt(fd, "pids.max")
		_, eventsErr := readAt(fd, "pids.events")
		_, peakErr := readAt(fd, "pids.peak")
		if t.events = err == nil && eventsErr == nil && most == strconv.Itoa(limit); t.events || peakErr == nil {
			t.dir = fd
			break
		}
		unix.Close(fd)
	}
	t.own = threads(os.Getpid())
	return t
}

// containerGroups lists where this process's group may appear: at the top of a namespace of
// its own, or below it where there is none.
func containerGroups() []string {
	paths := []string{"/sys/fs/cgroup", "/sys/fs/cgroup/pids"}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return paths
	}
	for line := range strings.Lines(string(own)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/"); ok && path != "" {
			paths = append(paths, "/sys/fs/cgroup/"+path)
		}
	}
	return paths
}

// atMax says how often the limit refused a process, or at least whether it did.
func (t *tasks) atMax() int64 {
	if t.events {
		s, err := readAt(t.dir, "pids.events")
		if err != nil {
			return 0
		}
		n, _ := strconv.ParseInt(strings.TrimPrefix(s, "max "), 10, 64) // 0 when it is something else
		return n
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.own
	t.own = threads(os.Getpid())
	if t.most(own) >= t.limit {
		t.reached++
	}
	return t.reached
}

// most is how many there were at once of the account, at the peak or, where nobody keeps
// that, now. Own is how many threads this process had then at least.
func (t *tasks) most(own int) int {
	if t.dir >= 0 {
		if s, err := readAt(t.dir, "pids.peak"); err == nil {
			peak, _ := strconv.Atoi(s) // the kernel writes a number
			if !t.shared {
				peak -= own
			}
			return peak
		}
	}
	n := 0
	if t.shared {
		n = own
	}
	for _, p := range processes() {
		n += threads(p.pid)
	}
	return n
}

// threads counts those of a process, 0 when it has ended.
func threads(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The 20th field of proc_pid_stat(5); the command's name is the second.
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 18 {
		return 0
	}
	n, _ := strconv.Atoi(string(f[17])) // the kernel writes a number
	return n
}
