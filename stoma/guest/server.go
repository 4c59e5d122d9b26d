//go:build linux

package guest

import (
	"sync"

	"tendril/stoma"
)

// server answers what the host opens.
type server struct {
	sprout    identity
	reaper    *reaper
	workspace workspace // nil: this Terrarium has none
	groups    *groups   // nil: processes are tracked without control groups
	tasks     *tasks    // the limit that the container has; nil: none, or it is that of groups
	ownKernel bool      // what the kernel counts is of this Terrarium alone
	listeners []*listening
	session   *stoma.Session

	admitting sync.Mutex // held to start a command, or to end every process

	mu       sync.Mutex
	commands map[uint32]*command // by the id of their exec stream
	starting int                 // commands that were admitted and do not run yet
	quiet    int                 // commands wait while it is above 0
	shutdown bool                // commands are refused
	begun    bool                // a command was admitted, or a base was brought
	loud     sync.Cond           // quiet or shutdown changed
}

func newServer(sprout identity) *server {
	sv := &server{sprout: sprout, reaper: newReaper(), commands: make(map[uint32]*command)}
	sv.loud.L = &sv.mu
	return sv
}

// accept takes a stream that the host opened. It runs where the session reads,
// so that the streams of a command find it, and hands on what takes time.
func (sv *server) accept(st *stoma.Stream, f *stoma.Fields) {
	switch kind := f.Text(); kind {
	case stoma.StreamExec:
		r, err := stoma.ParseExec(f)
		if err != nil {
			st.Reset(stoma.CodeInvalid, err.Error())
			return
		}
		c := newCommand(sv, st, r)
		sv.mu.Lock()
		sv.commands[st.ID()] = c
		sv.mu.Unlock()
		go c.run()
	case stoma.StreamStderr, stoma.StreamWait:
		c := sv.command(st, f)
		if c == nil {
			return
		}
		attach := c.stderr
		if kind == stoma.StreamWait {
			attach = c.wait
		}
		select {
		case attach <- st:
		default:
			st.Reset(stoma.CodeRefused, "a second stream of the same kind for one command")
		}
	case stoma.StreamSignal:
		id, n := f.UintMax(1<<32-1), f.UintMax(64)
		sv.control(st, f, id, func(c *command) bool { return c.signal(int(n)) })
	case stoma.StreamResize:
		id := f.UintMax(1<<32 - 1)
		size := stoma.ParseSize(f)
		sv.control(st, f, id, func(c *command) bool { return c.resize(size) })
	case stoma.StreamCollect:
		sv.answer(st, f, func() error { return sv.collect(st) })
	case stoma.StreamPut:
		dir := f.Text()
		sv.answer(st, f, func() error { return sv.put(dir, st) })
	case stoma.StreamBase:
		sv.answer(st, f, func() error { return sv.plant(st) })
	case stoma.StreamStat:
		sv.answer(st, f, func() error { return stoma.WriteMessage(st, sv.stat().Message()) })
	case stoma.StreamQuiesce:
		sv.answer(st, f, func() error {
			sv.quiesce()
			sv.resume()
			return nil
		})
	case stoma.StreamShutdown:
		sv.answer(st, f, func() error {
			sv.mu.Lock()
			sv.shutdown = true
			sv.loud.Broadcast()
			sv.mu.Unlock()
			sv.quiesce()
			return nil
		})
	default:
		st.Reset(stoma.CodeUnsupported, "unknown kind of stream")
	}
}

// command returns the command that a stderr or wait stream names.
func (sv *server) command(st *stoma.Stream, f *stoma.Fields) *command {
	id := f.UintMax(1<<32 - 1)
	if f.End() != nil {
		st.Reset(stoma.CodeInvalid, "malformed header")
		return nil
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	c := sv.commands[uint32(id)]
	if c == nil {
		st.Reset(stoma.CodeNotFound, "no such command")
	}
	return c
}

// control does something small to a command and answers with the end.
func (sv *server) control(st *stoma.Stream, f *stoma.Fields, id uint64, do func(*command) bool) {
	if f.End() != nil {
		st.Reset(stoma.CodeInvalid, "malformed header")
		return
	}
	sv.mu.Lock()
	c := sv.commands[uint32(id)]
	sv.mu.Unlock()
	if c == nil || !do(c) {
		st.Reset(stoma.CodeNotFound, "the command has ended")
		return
	}
	_ = st.CloseWrite() // never fails
}

// answer runs do on a goroutine and ends the stream well or with its error.
func (sv *server) answer(st *stoma.Stream, f *stoma.Fields, do func() error) {
	if f.End() != nil {
		st.Reset(stoma.CodeInvalid, "malformed header")
		return
	}
	go func() {
		if err := do(); err != nil {
			st.Reset(stoma.CodeFailed, err.Error())
			return
		}
		_ = st.CloseWrite() // never fails
	}()
}

// quiesce keeps commands from starting, until resume, and returns when no process
// but this one is left.
func (sv *server) quiesce() {
	sv.mu.Lock()
	sv.quiet++
	for _, c := range sv.commands {
		c.kill(stoma.KilledQuiesce)
	}
	sv.mu.Unlock()
	sv.reaper.killAll(func() bool {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		return sv.starting > 0
	})
}

// resume lets commands start again.
func (sv *server) resume() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.quiet--
	sv.loud.Broadcast()
}

// stat counts what is going on.
func (sv *server) stat() stoma.Stat {
	var s stoma.Stat
	s.Processes = len(processes())
	if sv.groups != nil {
		s.ProcessMax = sv.groups.limit
		s.AtMax = sv.groups.atMax()
	}
	if sv.tasks != nil {
		s.ProcessMax = sv.tasks.limit
		s.AtMax = sv.tasks.atMax()
	}
	if sv.workspace != nil {
		s.ScratchUsed, s.ScratchSize = sv.workspace.usage()
	}
	if sv.ownKernel {
		s.OOMKills, s.Memory = oomKills(), memoryTotal()
	}
	return s
}
