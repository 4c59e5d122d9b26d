package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

var limitProbes = []Probe{
	{ID: "Q03", Dimension: "resources", Seal: Limits, What: "memory-backed scratch has a size", Run: func() Result { return sized("/dev/shm", "/tmp") }},
	{ID: "Q04", Core: true, Dimension: "resources", Seal: Limits, What: "the workspace and scratch have a size of their own", Run: func() Result {
		return sized("/workspace", "/tmp", "/home/sprout")
	}},
	{ID: "Q05", Dimension: "resources", Seal: Limits, What: "no core file can be written", Run: coreFiles},
	{ID: "Q07", Dimension: "resources", Seal: Limits, What: "a thread is refused at the limit of processes", Stress: true, Run: taskLimit},
}

// sized wants each directory on a file system other than the root's, with a size of its own:
// one in memory with less than all of it.
func sized(dirs ...string) Result {
	var t tried
	var root unix.Stat_t
	if err := unix.Stat("/", &root); err != nil {
		return unknown("/: %s", errno(err))
	}
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return unknown("sysinfo: %s", errno(err))
	}
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil {
			continue
		}
		if unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK, unix.AT_EACCESS) != nil {
			continue // cannot be filled by this account
		}
		if st.Dev == root.Dev {
			t.leak(dir + " is part of the root file system")
			continue
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			t.unknowns = append(t.unknowns, dir+": "+errno(err))
			continue
		}
		size := fs.Blocks * uint64(fs.Bsize)
		memory := uint64(machine.Totalram) * uint64(machine.Unit)
		switch {
		case fs.Blocks == 0 || size >= 1<<62:
			t.leak(dir + " has no size")
		case fs.Type == unix.TMPFS_MAGIC && size >= memory && !gvisor(): // whose tmpfs can be in a file of the host's
			t.leak(fmt.Sprintf("%s holds %d bytes, all the memory there is", dir, size))
		default:
			t.sealed++
		}
	}
	return t.result("each has one")
}

func coreFiles() Result {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &r); err != nil {
		return unknown("getrlimit: %s", errno(err))
	}
	if r.Cur == 0 {
		return sealed("limit 0")
	}
	if gvisor() {
		return sealed("gVisor writes none")
	}
	return leak("limit %d", r.Cur)
}

// maxThreads is more than the default limit of processes and threads (512) and
// little for a host.
const maxThreads = 600

// taskLimit lets a child of this program start threads, which count like processes,
// until one is refused. The Go runtime does not survive that refusal and says why.
func taskLimit() Result {
	haveThreads()
	r, w, err := os.Pipe()
	if err != nil {
		return unknown("pipe: %s", errno(err))
	}
	p, err := startChild(childThreads, 0, w)
	w.Close()
	if err != nil {
		r.Close()
	}
	if errors.Is(err, unix.EAGAIN) {
		return sealed("refused at once: %s", errno(err))
	}
	if err != nil {
		return unknown("start a child: %s", errno(err))
	}
	said, _ := io.ReadAll(io.LimitReader(r, 4<<10))
	r.Close() // a child that says more than that must not wait for a reader
	state, err := p.Wait()
	switch {
	case err != nil:
		return unknown("wait for the child: %s", errno(err))
	case state.ExitCode() == childDid:
		return leak("%d threads and no end", maxThreads)
	case bytes.Contains(said, []byte("failed to create new OS thread")) || bytes.Contains(said, []byte("Resource temporarily unavailable")): // the latter with cgo
		return sealed("refused before %d threads", maxThreads)
	default:
		return unknown("the child ended with %s", state)
	}
}

// spareThreads is how many threads this program may come to need while its child uses up
// all that are left.
const spareThreads = 8

// haveThreads makes the runtime start threads now, and keep them: it does not survive that
// one is refused when it needs it.
func haveThreads() {
	runtime.GOMAXPROCS(1)
	var ready, done sync.WaitGroup
	ready.Add(spareThreads)
	for range spareThreads {
		done.Go(func() {
			runtime.LockOSThread()
			ready.Done()
			ready.Wait()
			runtime.UnlockOSThread()
		})
	}
	done.Wait()
}

// startThreads is the child of taskLimit.
func startThreads() int {
	var started sync.WaitGroup
	for range maxThreads {
		started.Add(1)
		go func() {
			runtime.LockOSThread()
			started.Done()
			select {} // until the program ends
		}()
	}
	started.Wait()
	return childDid
}
