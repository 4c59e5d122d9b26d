//go:build linux

package terrariumtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tendril/terrarium"
)

// traces is what the host has of a run now. What names the run, its directory or what
// a daemon calls it belongs to it: in a process's arguments, environment, control group,
// mounts, directories or open files, among control groups and mounts, and as a file.
type traces struct {
	processes, groups, mounts, files, named []string
}

func (tr traces) none() bool {
	return len(tr.processes)+len(tr.groups)+len(tr.mounts)+len(tr.files)+len(tr.named) == 0
}

func (tr traces) String() string {
	return fmt.Sprintf("processes %q, control groups %q, mounts %q, files %q, known to a daemon %q", tr.processes, tr.groups, tr.mounts, tr.files, tr.named)
}

// tracesOf looks for the run, and for all that a daemon has called it so far.
func (g *ground) tracesOf(t *testing.T, spec terrarium.Spec) traces {
	t.Helper()
	if g.options.Traces == nil {
		return search(spec, nil)
	}
	now := g.options.Traces(t, spec.Run)
	g.mu.Lock()
	for _, name := range now {
		if !slices.Contains(g.names[spec.Run], name) {
			g.names[spec.Run] = append(g.names[spec.Run], name)
		}
	}
	ever := slices.Clone(g.names[spec.Run])
	g.mu.Unlock()
	tr := search(spec, ever)
	tr.named = now
	return tr
}

func search(spec terrarium.Spec, names []string) traces {
	marks := [][]byte{[]byte(spec.Run), []byte(spec.Workspace.Dir)}
	for _, name := range names {
		marks = append(marks, []byte(name))
	}
	marked := func(data []byte) bool {
		return slices.ContainsFunc(marks, func(m []byte) bool { return bytes.Contains(data, m) })
	}
	var tr traces
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if what := processMark(pid, marked); what != "" {
			tr.processes = append(tr.processes, what)
		}
	}
	// A process that is just ending makes parts of the walk fail; it is no trace then.
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && marked([]byte(d.Name())) {
			tr.groups = append(tr.groups, path)
		}
		return nil
	})
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range bytes.Lines(mounts) {
		if marked(line) {
			tr.mounts = append(tr.mounts, string(line))
		}
	}
	left, _ := os.ReadDir(spec.Workspace.Dir)
	for _, e := range left {
		tr.files = append(tr.files, filepath.Join(spec.Workspace.Dir, e.Name()))
	}
	for _, dir := range []string{"/run", "/tmp", "/dev/shm", os.TempDir()} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if marked([]byte(e.Name())) {
				tr.files = append(tr.files, filepath.Join(dir, e.Name()))
			}
		}
	}
	return tr
}

// processMark says which process this is and why it belongs to a run, if it does. A
// zombie that is not ours to reap is gone.
func processMark(pid int, marked func([]byte) bool) string {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return ""
	}
	state, parent := parseStat(stat)
	name := func(why string) string { return fmt.Sprintf("%s (%s)", stat[:min(len(stat), 48)], why) }
	if state == "Z" {
		if parent == os.Getpid() {
			return name("not reaped")
		}
		return ""
	}
	for _, file := range []string{"cmdline", "environ", "cgroup", "mountinfo"} {
		if data, err := os.ReadFile(dir + "/" + file); err == nil && marked(data) {
			return name(file)
		}
	}
	for _, link := range []string{"cwd", "root", "exe"} {
		if target, err := os.Readlink(dir + "/" + link); err == nil && marked([]byte(target)) {
			return name(link)
		}
	}
	fds, _ := os.ReadDir(dir + "/fd")
	for _, fd := range fds {
		if target, err := os.Readlink(dir + "/fd/" + fd.Name()); err == nil && marked([]byte(target)) {
			return name("fd " + fd.Name())
		}
	}
	return ""
}

// parseStat reads the state and the parent from /proc/PID/stat. The command's name is
// in brackets and may hold anything.
func parseStat(stat []byte) (state string, parent int) {
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(f[1])
	return f[0], parent
}

// descendants are the processes that come from this one, by pid and start.
func descendants() map[string]bool {
	type process struct {
		parent int
		name   string
	}
	all := map[int]process{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) < 20 {
			continue
		}
		parent, _ := strconv.Atoi(f[1])
		all[pid] = process{parent, fmt.Sprintf("%d since %s", pid, f[19])}
	}
	found := map[string]bool{}
	for pid := range all {
		for p := pid; p > 1; p = all[p].parent {
			if all[p].parent == os.Getpid() {
				found[all[pid].name] = true
				break
			}
		}
	}
	return found
}

// LeavesNothing fails the test when the host has anything of the run: a process, a
// control group, a mount or a file. After says after what.
func LeavesNothing(t *testing.T, spec terrarium.Spec, after string) {
	t.Helper()
	search(spec, nil).wantNone(t, after)
}

func (g *ground) leavesNothing(t *testing.T, spec terrarium.Spec, after string) {
	t.Helper()
	g.tracesOf(t, spec).wantNone(t, after)
}

func (tr traces) wantNone(t *testing.T, after string) {
	t.Helper()
	if !tr.none() {
		t.Errorf("%s there is still: %s", after, tr)
	}
}

// leavesSomething fails when the host has nothing of an open Terrarium: then the
// search is blind, and finding nothing later would mean nothing.
func (g *ground) leavesSomething(t *testing.T, spec terrarium.Spec) {
	t.Helper()
	if tr := g.tracesOf(t, spec); len(tr.processes) == 0 || len(tr.files)+len(tr.named) == 0 {
		t.Fatalf("the search for traces does not see an open Terrarium: %s", tr)
	}
}
