package stoma

import (
	"fmt"
	"strings"
	"time"

	"tendril/fault"
)

// The kinds of stream: the first field of an OPEN's header.
const (
	StreamExec     = "exec"     // argv, env, dir, tty, timeout; bytes are stdin and stdout
	StreamStderr   = "stderr"   // exec; bytes from the guest are stderr
	StreamWait     = "wait"     // exec; answers started or failed, then the exit
	StreamSignal   = "signal"   // exec, number; answered by EOF
	StreamResize   = "resize"   // exec, rows, columns; answered by EOF
	StreamPut      = "put"      // dir; bytes from the host are a tar; answered by EOF
	StreamBase     = "base"     // bytes from the host are a tar of the whole workspace; answered by EOF
	StreamCollect  = "collect"  // answers records and a summary
	StreamStat     = "stat"     // answers a Stat
	StreamQuiesce  = "quiesce"  // answered by EOF when nothing but PID 1 is left
	StreamShutdown = "shutdown" // as quiesce; no stream may be opened after it
	StreamConn     = "conn"     // listener; guest to host; bytes are the connection's
)

// Size is a terminal's size in characters.
type Size struct {
	Rows, Cols uint16
}

// ExecRequest is one command to run as the Sprout. Strings are arbitrary bytes
// without NUL.
type ExecRequest struct {
	Argv    []string      // Argv[0] is looked up in the PATH of Env
	Env     []string      // the whole environment; nothing is added
	Dir     string        // absolute; "" is /
	TTY     *Size         // nil: three pipes
	Timeout time.Duration // then the whole tree is killed; 0 is none
}

func (r ExecRequest) check() error {
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return fault.New(fault.Invalid, "no command was given").WithHint("name a program after --")
	}
	for _, list := range [][]string{r.Argv, r.Env, {r.Dir}} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return fault.New(fault.Invalid, "a NUL byte in the command line, environment or directory of a command")
			}
		}
	}
	for _, e := range r.Env {
		if strings.IndexByte(e, '=') < 1 {
			return fault.New(fault.Invalid, "environment entry %q is not NAME=VALUE", e)
		}
	}
	if r.Dir != "" && r.Dir[0] != '/' {
		return fault.New(fault.Invalid, "working directory %q is not absolute", r.Dir)
	}
	if r.Timeout < 0 {
		return fault.New(fault.Invalid, "the timeout %s is negative", r.Timeout)
	}
	return nil
}

func (r ExecRequest) header() []byte {
	b := AppendBytes(nil, StreamExec)
	b = AppendList(b, r.Argv)
	b = AppendList(b, r.Env)
	b = AppendBytes(b, r.Dir)
	var tty []byte
	if r.TTY != nil {
		tty = appendSize(nil, *r.TTY)
	}
	b = AppendBytes(b, tty)
	return AppendUint(b, uint64(r.Timeout.Microseconds()))
}

// maxTimeout is about 290 years, the most that a time.Duration holds.
const maxTimeout = uint64(1<<63-1) / uint64(time.Microsecond)

// ParseExec reads what follows the kind in the header of an exec.
func ParseExec(f *Fields) (ExecRequest, error) {
	r := ExecRequest{Argv: f.List(), Env: f.List(), Dir: f.Text()}
	if tty := f.Bytes(); len(tty) > 0 {
		inner := NewFields(tty)
		size := ParseSize(inner)
		if err := inner.End(); err != nil {
			return ExecRequest{}, err
		}
		r.TTY = &size
	}
	r.Timeout = time.Duration(f.UintMax(maxTimeout)) * time.Microsecond
	if err := f.End(); err != nil {
		return ExecRequest{}, err
	}
	return r, r.check()
}

func appendSize(b []byte, s Size) []byte {
	b = AppendUint(b, uint64(s.Rows))
	return AppendUint(b, uint64(s.Cols))
}

// ParseSize takes two numbers.
func ParseSize(f *Fields) Size {
	return Size{Rows: uint16(f.UintMax(1<<16 - 1)), Cols: uint16(f.UintMax(1<<16 - 1))}
}

// The reasons of an [ExecError].
const (
	NotFound      = "not found"      // no such program in PATH, or no such path
	NotExecutable = "not executable" // it is there, and the Sprout may not run it
	NoInterpreter = "no interpreter" // its #! line or its dynamic loader names what is not there
	BadFormat     = "bad format"     // neither a program of this machine nor a script with a #! line
	NoDirectory   = "no directory"   // Dir is missing or closed to the Sprout
	NoProcess     = "no process"     // the limit of processes is reached
	ExecRefused   = "refused"        // the guest does not start commands now
	ExecFailed    = "failed"         // anything else
)

var execReasons = map[string]bool{
	NotFound: true, NotExecutable: true, NoInterpreter: true, BadFormat: true,
	NoDirectory: true, NoProcess: true, ExecRefused: true, ExecFailed: true,
}

// ExecError is a command that did not start. Name is the command as it was
// asked for; Detail is the guest's text and may be anything.
type ExecError struct {
	Reason string // one of the constants above
	Name   string
	Detail string
}

func (e *ExecError) Error() string {
	s := fmt.Sprintf("command %q did not start: %s", e.Name, e.Reason)
	if e.Detail != "" {
		s += fmt.Sprintf(" (%q)", e.Detail)
	}
	return s
}

const (
	waitStarted = "started"
	waitFailed  = "failed"
	waitExited  = "exited"
)

// Started is the first message on a wait stream when the command runs.
func Started() []byte { return AppendBytes(nil, waitStarted) }

// Message is the first message on a wait stream when the command does not run.
func (e *ExecError) Message() []byte {
	b := AppendBytes(nil, waitFailed)
	b = AppendBytes(b, e.Reason)
	return AppendBytes(b, cutReason(e.Detail))
}

// parseStart reads the first message. An *ExecError is an answer, anything else
// a violation.
func parseStart(f *Fields, name string) error {
	switch f.Text() {
	case waitStarted:
		if f.End() == nil {
			return nil
		}
	case waitFailed:
		e := &ExecError{Reason: f.Text(), Detail: f.Text(), Name: name}
		if f.End() == nil && execReasons[e.Reason] && len(e.Detail) <= MaxReason {
			return e
		}
	}
	return violation("malformed answer to exec")
}

// Usage is what a command and everything it started consumed.
type Usage struct {
	User, System time.Duration
	MaxRSS       int64 // bytes, of the largest process
}

// Exit is how a command ended. Exactly one of Code and Signal is set. It is the
// guest's word.
type Exit struct {
	Code   *int
	Signal *int
	Killed string // why the guest killed it: KilledTimeout, KilledCanceled, KilledQuiesce; else ""
	Usage  Usage
}

// The reasons for which the guest half kills a command.
const (
	KilledTimeout  = "timeout"  // its deadline passed
	KilledCanceled = "canceled" // the host closed the Process
	KilledQuiesce  = "quiesce"  // the host asked for quiet, or collected
)

var killReasons = map[string]bool{"": true, KilledTimeout: true, KilledCanceled: true, KilledQuiesce: true}

// Message is the second message on a wait stream.
func (e Exit) Message() []byte {
	b := AppendBytes(nil, waitExited)
	code, signal := uint64(0), uint64(0) // one more than the value; 0 is none
	if e.Code != nil {
		code = uint64(*e.Code) + 1
	}
	if e.Signal != nil {
		signal = uint64(*e.Signal) + 1
	}
	b = AppendUint(b, code)
	b = AppendUint(b, signal)
	b = AppendBytes(b, e.Killed)
	b = AppendUint(b, uint64(e.Usage.User.Microseconds()))
	b = AppendUint(b, uint64(e.Usage.System.Microseconds()))
	return AppendUint(b, uint64(e.Usage.MaxRSS))
}

func parseExit(f *Fields) (Exit, error) {
	kind := f.Text()
	code, signal := int(f.UintMax(256)), int(f.UintMax(65))
	e := Exit{
		Killed: f.Text(),
		Usage: Usage{
			User:   time.Duration(f.UintMax(maxTimeout)) * time.Microsecond,
			System: time.Duration(f.UintMax(maxTimeout)) * time.Microsecond,
			MaxRSS: int64(f.UintMax(1<<63 - 1)),
		},
	}
	if f.End() != nil || kind != waitExited || !killReasons[e.Killed] || (code == 0) == (signal == 0) {
		return Exit{}, violation("malformed exit")
	}
	if code > 0 {
		code--
		e.Code = &code
	} else {
		signal--
		e.Signal = &signal
	}
	return e, nil
}

// Stat is what is going on inside, in the guest's words.
type Stat struct {
	Processes   int   // alive, PID 1 aside
	ProcessMax  int   // the limit of processes and threads; 0: this guest keeps none
	AtMax       int64 // how often that limit refused a process so far
	ScratchUsed int64 // bytes
	ScratchSize int64 // bytes; 0: no scratch
	OOMKills    int64 // processes that a kernel of this guest's own killed for want of memory; 0 where there is none
	Memory      int64 // bytes that such a kernel has; 0 where there is none
}

// ScratchFull reports whether not even one more page fits.
func (s Stat) ScratchFull() bool {
	const page = 4096
	return s.ScratchSize > 0 && s.ScratchUsed+page > s.ScratchSize
}

// Message is the answer to stat.
func (s Stat) Message() []byte {
	b := AppendUint(nil, uint64(s.Processes))
	b = AppendUint(b, uint64(s.ProcessMax))
	b = AppendUint(b, uint64(s.AtMax))
	b = AppendUint(b, uint64(s.ScratchUsed))
	b = AppendUint(b, uint64(s.ScratchSize))
	b = AppendUint(b, uint64(s.OOMKills))
	return AppendUint(b, uint64(s.Memory))
}

func parseStat(f *Fields) (Stat, error) {
	s := Stat{
		Processes:   int(f.UintMax(1<<31 - 1)),
		ProcessMax:  int(f.UintMax(1<<31 - 1)),
		AtMax:       int64(f.UintMax(1<<63 - 1)),
		ScratchUsed: int64(f.UintMax(1<<63 - 1)),
		ScratchSize: int64(f.UintMax(1<<63 - 1)),
		OOMKills:    int64(f.UintMax(1<<63 - 1)),
		Memory:      int64(f.UintMax(1<<63 - 1)),
	}
	if f.End() != nil {
		return Stat{}, violation("malformed stat")
	}
	return s, nil
}

// ConnHeader is the header of a connection that was accepted inside.
func ConnHeader(listener string) []byte {
	return AppendBytes(AppendBytes(nil, StreamConn), listener)
}
