//go:build linux

package guest

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// tree is everything that one command starts.
type tree interface {
	// place prepares the start of the command, so that it belongs to the tree
	// before it runs.
	place(*syscall.SysProcAttr)
	// end kills what is left of the tree and returns when nothing is.
	end()
}

// newTree returns the tree of a command. sv.mu is held.
func (sv *server) newTree(c *command) (tree, error) {
	if sv.groups != nil {
		return sv.groups.newGroup(sv.reaper)
	}
	return &family{server: sv, command: c}, nil
}

// family tracks a tree where there are no control groups, by session and
// ancestry. A process that left its session and lost its parent escapes it while
// another command runs, and ends when no command is left.
type family struct {
	server  *server
	command *command
}

func (f *family) place(*syscall.SysProcAttr) {}

func (f *family) end() {
	r := f.server.reaper
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if f.endAll() {
			return
		}
		changed := r.changes()
		alive := f.members()
		for _, pid := range alive {
			_ = syscall.Kill(pid, syscall.SIGKILL) // tried again until it is gone
		}
		r.reap()
		if len(alive) == 0 {
			return
		}
		r.await(changed, wait)
	}
}

// endAll ends every process there is, if no command but this one may have any.
func (f *family) endAll() bool {
	f.server.admitting.Lock()
	defer f.server.admitting.Unlock()
	if !f.server.onlyCommand(f.command) {
		return false
	}
	f.server.reaper.killAll(func() bool { return false })
	return true
}

// onlyCommand reports whether no command but c is starting or running.
func (sv *server) onlyCommand(c *command) bool {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for _, other := range sv.commands {
		if other != c && other.active {
			return false
		}
	}
	return true
}

// members lists the processes of the family that can be recognised.
func (f *family) members() []int {
	all := processes()
	in := map[int]bool{}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !in[p.pid] && (p.session == f.command.child.pid || in[p.parent]) {
				in[p.pid], grown = true, true
			}
		}
	}
	pids := make([]int, 0, len(in))
	for pid := range in {
		pids = append(pids, pid)
	}
	return pids
}

// process is a line of /proc. Zombies are left out: they are dead.
type process struct{ pid, parent, session int }

// processes lists every live process but this one.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what was read before an error still counts
	var list []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// The command's name is in brackets and may hold anything.
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) < 4 || f[0][0] == 'Z' || f[0][0] == 'X' {
			continue
		}
		parent, _ := strconv.Atoi(string(f[1]))
		session, _ := strconv.Atoi(string(f[3]))
		list = append(list, process{pid, parent, session})
	}
	return list
}
