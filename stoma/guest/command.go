//go:build linux

package guest

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// command is one exec: a process, its tree and its streams.
type command struct {
	server  *server
	request stoma.ExecRequest
	exec    *stoma.Stream
	stderr  chan *stoma.Stream // gets the stderr stream, when the host opens it
	wait    chan *stoma.Stream // gets the wait stream

	killed chan string // gets the reason why the command is to be killed
	active bool        // it is starting or running; guarded by server.mu

	mu    sync.Mutex
	child *child   // nil until it runs
	tty   *os.File // the terminal's master side, if it has one
}

func newCommand(sv *server, exec *stoma.Stream, r stoma.ExecRequest) *command {
	return &command{
		server:  sv,
		request: r,
		exec:    exec,
		stderr:  make(chan *stoma.Stream, 1),
		wait:    make(chan *stoma.Stream, 1),
		killed:  make(chan string, 1),
	}
}

// kill asks for the end of the command. The first reason counts.
func (c *command) kill(reason string) {
	select {
	case c.killed <- reason:
	default:
	}
}

func (c *command) signal(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.child != nil && c.server.reaper.signal(c.child, syscall.Signal(n))
}

func (c *command) resize(size stoma.Size) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tty != nil && setSize(c.tty, size) == nil
}

// run is the life of the command, from the request to the last byte of output.
func (c *command) run() {
	defer c.forget()
	var wait *stoma.Stream
	select {
	case wait = <-c.wait:
	case <-c.exec.Over():
		return
	}
	pipes, tree, failed := c.start()
	if failed != nil {
		_ = stoma.WriteMessage(wait, failed.Message()) // a host that is gone needs no answer
		_ = wait.CloseWrite()
		_ = c.exec.Close()
		return
	}
	_ = stoma.WriteMessage(wait, stoma.Started()) // as above
	var copies sync.WaitGroup
	pipes.copy(&copies, c)
	exit := c.supervise(wait, tree)
	// Nothing that belongs to the command is left. What is in the pipes is its
	// output; what somebody else may still write is not.
	pipes.drain()
	_ = stoma.WriteMessage(wait, exit.Message()) // as above
	_ = wait.CloseWrite()
	copies.Wait()
}

func (c *command) forget() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.commands, c.exec.ID())
}

// start looks the program up and starts it.
func (c *command) start() (*pipes, tree, *stoma.ExecError) {
	refuse := func(reason string, err error) (*pipes, tree, *stoma.ExecError) {
		e := &stoma.ExecError{Reason: reason}
		if err != nil {
			e.Detail = err.Error()
		}
		return nil, nil, e
	}
	sv := c.server
	path, failed := sv.lookup(c.request)
	if failed != nil {
		return nil, nil, failed
	}
	p, err := newPipes(c.request.TTY, sv.sprout)
	if err != nil {
		return refuse(stoma.ExecFailed, err)
	}
	t, err := c.admit()
	if err != nil {
		p.close()
		return refuse(stoma.ExecRefused, err)
	}
	dir := c.request.Dir
	if dir == "" {
		dir = "/"
	}
	attr := &syscall.ProcAttr{
		Dir:   dir,
		Env:   c.request.Env,
		Files: p.inside(),
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if !sv.sprout.ours() {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(sv.sprout.uid), Gid: uint32(sv.sprout.gid)}
	}
	if c.request.TTY != nil {
		attr.Sys.Setctty = true
		attr.Sys.Ctty = 0
	}
	t.place(attr.Sys)
	child, err := sv.reaper.start(path, c.request.Argv, attr)
	c.started()
	p.closeInside()
	if err != nil {
		t.end()
		c.retire()
		p.close()
		return refuse(startReason(err), err)
	}
	c.mu.Lock()
	c.child, c.tty = child, p.terminal()
	c.mu.Unlock()
	return p, t, nil
}

// admit makes the command's tree, once commands may start.
func (c *command) admit() (tree, error) {
	sv := c.server
	sv.admitting.Lock()
	defer sv.admitting.Unlock()
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for sv.quiet > 0 && !sv.shutdown {
		// Whoever keeps it quiet may need the lock to end trees.
		sv.admitting.Unlock()
		sv.loud.Wait()
		sv.mu.Unlock()
		sv.admitting.Lock()
		sv.mu.Lock()
	}
	if sv.shutdown {
		return nil, errors.New("the Terrarium is shut down")
	}
	t, err := sv.newTree(c)
	if err != nil {
		return nil, err
	}
	c.active, sv.begun = true, true
	sv.starting++
	return t, nil
}

// started marks the end of the command's start, good or bad.
func (c *command) started() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.starting--
}

// retire marks the command as ended.
func (c *command) retire() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.active = false
}

func startReason(err error) string {
	switch {
	case errors.Is(err, unix.ENOENT):
		// The program itself was found: what its #! line or its program header
		// names was not.
		return stoma.NoInterpreter
	case errors.Is(err, unix.ENOEXEC):
		return stoma.BadFormat
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return stoma.NotExecutable
	case errors.Is(err, unix.EAGAIN):
		return stoma.NoProcess
	default:
		return stoma.ExecFailed
	}
}

// supervise waits for the command's end, or brings it about, and ends its tree.
func (c *command) supervise(wait *stoma.Stream, t tree) stoma.Exit {
	defer c.retire()
	var deadline <-chan time.Time
	if c.request.Timeout > 0 {
		timer := time.NewTimer(c.request.Timeout)
		defer timer.Stop()
		deadline = timer.C
	}
	killed := ""
	select {
	case exit := <-c.child.ended:
		t.end()
		return exit
	case <-deadline:
		killed = stoma.KilledTimeout
	case <-wait.Over():
		killed = stoma.KilledCanceled
	case killed = <-c.killed:
	}
	t.end()
	exit := <-c.child.ended
	exit.Killed = killed
	return exit
}
