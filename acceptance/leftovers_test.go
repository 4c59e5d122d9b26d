package acceptance_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tendril/run"
)

// hostProcess is a process of this host as /proc shows it.
type hostProcess struct {
	pid, parent int
	state       string // one letter, see proc_pid_stat(5)
	command     string // its arguments, separated by blanks
}

func processes(t testing.TB) []hostProcess {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var list []hostProcess
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // gone meanwhile
		}
		// The name is in parentheses and may hold anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		parent, _ := strconv.Atoi(fields[1])
		command, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		list = append(list, hostProcess{pid, parent, fields[0], strings.ReplaceAll(string(command), "\x00", " ")})
	}
	return list
}

// descendants are the processes below one that still run.
func descendants(t testing.TB, of int) []hostProcess {
	t.Helper()
	all := processes(t)
	below := map[int]bool{of: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if below[p.parent] && !below[p.pid] {
				below[p.pid], grown = true, true
			}
		}
	}
	return slices.DeleteFunc(all, func(p hostProcess) bool { return p.pid == of || !below[p.pid] || p.state == "Z" })
}

// reap takes the exit status of orphans that have ended. It must only be called
// while no child of this process is being waited for.
func reap(t testing.TB) {
	t.Helper()
	for _, p := range processes(t) {
		if p.parent == os.Getpid() && p.state == "Z" {
			syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// leftovers lists what runs have left behind, while none lives: nothing, that is.
func (g *garden) leftovers() []string {
	g.t.Helper()
	var left []string
	found := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }

	g.eventually("what has lost its memory is gone", func() bool {
		reap(g.t)
		return !slices.ContainsFunc(descendants(g.t, os.Getpid()), func(p hostProcess) bool { return p.command == "" })
	})
	for _, p := range descendants(g.t, os.Getpid()) {
		found("process %d (%s): %s", p.pid, p.state, p.command)
	}
	for _, p := range processes(g.t) {
		if p.pid != os.Getpid() && strings.Contains(p.command, g.state) {
			found("process %d with the state directory in its arguments: %s", p.pid, p.command)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		g.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, g.state+"/") {
			found("mount: %s", line)
		}
	}
	runs := g.runs()
	for _, group := range controlGroups(g.t) {
		if slices.ContainsFunc(runs, func(r run.Run) bool { return filepath.Base(group) == "tendril-"+string(r.ID) }) {
			found("control group: %s", group)
		}
	}
	for _, f := range filesBelow(g.t, g.state) {
		if !belongsInState(f) {
			found("in the state directory: %s", f)
		}
	}
	for _, f := range filesBelow(g.t, g.tmp) {
		found("temporary file: %s", f)
	}
	return append(left, g.repositoryLeftovers()...)
}

// repositoryLeftovers are the files that an interrupted write leaves in a
// repository: locks, temporary objects, quarantines, packs without an index.
func (g *garden) repositoryLeftovers() []string {
	g.t.Helper()
	var left []string
	gitDir := filepath.Join(g.repo, ".git")
	files := filesBelow(g.t, gitDir)
	for _, f := range files {
		name := filepath.Base(f)
		object := strings.HasPrefix(f, "objects/")
		switch {
		case strings.HasSuffix(name, ".lock"),
			object && (strings.HasPrefix(name, "tmp_") || strings.Contains(f, "/incoming-")),
			object && strings.HasSuffix(name, ".pack") && !slices.Contains(files, strings.TrimSuffix(f, ".pack")+".idx"):
			left = append(left, "in the repository: "+f)
		}
	}
	return left
}

// belongsInState reports whether a file may stay in the state directory when no
// run lives.
func belongsInState(name string) bool {
	dir, base := filepath.Split(name)
	switch dir {
	case "":
		return slices.Contains([]string{"state.db", "state.db-wal", "state.db-shm", "ledger.key"}, base) ||
			strings.HasPrefix(base, "stoma-") || strings.HasPrefix(base, "sprout-") || strings.HasPrefix(base, "docker-")
	case "runs/":
		return base == "birth.lock"
	case "store/", "images/":
		return base == "lock"
	case "store/base/":
		return strings.HasSuffix(base, ".erofs")
	case "microvm/": // the guest that setup makes
		return true
	}
	return strings.HasPrefix(dir, "images/sha256-") && (base == "root.erofs" || base == "config.json")
}

// filesBelow lists what is no directory below one, and the directories of runs and
// of scratch space.
func filesBelow(t testing.TB, root string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		switch parent := filepath.Dir(name); {
		case !d.IsDir(), parent == "runs", parent == "store/scratch":
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func controlGroups(t testing.TB) []string {
	t.Helper()
	var groups []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // one of another run that went away meanwhile
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), "tendril-") {
			groups = append(groups, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return groups
}
