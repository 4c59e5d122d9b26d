//go:build linux

package guest

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// reaper starts processes and collects all that end: the commands it started,
// and every orphan that PID 1 inherits.
type reaper struct {
	signals chan os.Signal
	deaf    bool          // no signal says that something ended
	started chan struct{} // gets a word when a start is over, if deaf
	victim  *victim       // nil: commands are as likely to be killed as this process

	marking sync.Mutex // held while what is started is marked as the victim

	mu       sync.Mutex
	forking  int // starts that are going on
	children map[int]*child
	changed  chan struct{} // closed and replaced when something ended
}

// child is a process that was started.
type child struct {
	pid   int
	ended chan stoma.Exit // gets one value
}

func newReaper() *reaper {
	r := &reaper{
		signals:  make(chan os.Signal, 1),
		started:  make(chan struct{}, 1),
		children: make(map[int]*child),
		changed:  make(chan struct{}),
	}
	signal.Notify(r.signals, syscall.SIGCHLD)
	return r
}

// watch reaps for as long as the process lives.
func (r *reaper) watch() {
	if r.deaf {
		r.listen()
		return
	}
	for range r.signals {
		r.reap()
	}
}

// listen reaps without being told by a signal. Whoever runs here descends from this process:
// while it has no children there is nobody whose end it could miss.
func (r *reaper) listen() {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		// What cannot be reaped now is unknown until the start that goes on is over.
		if err == unix.ECHILD || !r.reap() {
			<-r.started
		}
	}
}

// start runs a program. While a start goes on its pid is not known yet, so no
// process is reaped but those that are: an unknown one stays a zombie until
// then.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr) (*child, error) {
	r.mu.Lock()
	r.forking++
	r.mu.Unlock()
	pid, err := r.fork(path, argv, attr)
	r.mu.Lock()
	r.forking--
	var c *child
	if err == nil {
		c = &child{pid: pid, ended: make(chan stoma.Exit, 1)}
		r.children[pid] = c
	}
	r.mu.Unlock()
	r.reap()
	select {
	case r.started <- struct{}{}:
	default:
	}
	return c, err
}

// fork starts a process that is marked from its first instruction. The runtime forks one
// at a time anyway.
func (r *reaper) fork(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	if r.victim == nil {
		return syscall.ForkExec(path, argv, attr)
	}
	r.marking.Lock()
	defer r.marking.Unlock()
	if err := r.victim.raise(); err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	_ = r.victim.lower() // a failure is met again, and reported, by the next start
	return pid, err
}

// reap collects every process that has ended, and says whether there was one.
func (r *reaper) reap() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := false
	for pid := range r.children {
		ended = r.waitFor(pid) > 0 || ended
	}
	for r.forking == 0 && r.waitFor(-1) > 0 {
		ended = true
	}
	if ended {
		close(r.changed)
		r.changed = make(chan struct{})
	}
	return ended
}

// waitFor collects one process without blocking and returns its pid, if any.
// r.mu is held.
func (r *reaper) waitFor(pid int) int {
	var status syscall.WaitStatus
	var usage syscall.Rusage
	for {
		got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, &usage)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || got <= 0 {
			return 0
		}
		if c := r.children[got]; c != nil {
			delete(r.children, got)
			c.ended <- exitOf(status, usage)
		}
		return got
	}
}

func exitOf(status syscall.WaitStatus, usage syscall.Rusage) stoma.Exit {
	e := stoma.Exit{Usage: stoma.Usage{
		User:   time.Duration(usage.Utime.Nano()),
		System: time.Duration(usage.Stime.Nano()),
		MaxRSS: usage.Maxrss << 10,
	}}
	n := status.ExitStatus()
	if status.Signaled() {
		n = int(status.Signal())
		e.Signal = &n
	} else {
		e.Code = &n
	}
	return e
}

// signal sends a signal to the child's process group, unless it has ended.
func (r *reaper) signal(c *child, n syscall.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children[c.pid] != c {
		return false
	}
	return syscall.Kill(-c.pid, n) == nil
}

// changes returns a channel that is closed when a process ended after the call.
func (r *reaper) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// await waits for changed, but no longer than d: not every end of a process is
// one that PID 1 sees.
func (r *reaper) await(changed <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

// killAll kills every process but this one and returns when none is left and
// starting says that none will come.
func (r *reaper) killAll(starting func() bool) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		changed := r.changes()
		more := starting()
		err := syscall.Kill(-1, syscall.SIGKILL)
		r.reap()
		if err == syscall.ESRCH && !more {
			return
		}
		r.await(changed, wait)
	}
}
