package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
	"tendril/capability"
	"tendril/display"
	"tendril/fault"
	"tendril/pollen"
	"tendril/run"
)

// notice says something on stderr, without any token in it.
func (c *console) notice(text string) { c.live.Notice(pollen.Redact(text)) }

// printJSON prints one value on one line. What is printed is a record or an event,
// which are all escaped by the encoding.
func (c *console) printJSON(v any) {
	data, err := json.Marshal(v)
	if err != nil { // a record that cannot be encoded is a defect
		c.notice("tendril: encoding the answer: " + err.Error())
		c.stdout.err = err
		return
	}
	c.stdout.Write(append(data, '\n'))
}

// answer is stdout. It remembers that something could not be written: a program
// that reads the answer must not take its absence for one.
type answer struct {
	io.Writer
	err error
}

func (a *answer) Write(p []byte) (int, error) {
	n, err := a.Writer.Write(p)
	if err != nil && a.err == nil {
		a.err = err
	}
	return n, err
}

// liveView shows a run while it lives. With --json it shows nothing but warnings.
type liveView struct {
	c      *console
	all    bool // also what was permitted to be reached
	stdout *display.Stream
	stderr *display.Stream
}

func newLive(c *console) *liveView {
	return &liveView{c: c, stdout: c.live.Stream(display.StdoutPrefix), stderr: c.live.Stream(display.StderrPrefix)}
}

func (l *liveView) event(e run.Event) {
	switch data := e.Data.(type) {
	case run.OutputChunk:
		if l.c.json {
			return
		}
		if data.FD == 2 {
			l.stderr.Write(data.Bytes)
		} else {
			l.stdout.Write(data.Bytes)
		}
	case run.EgressDecision:
		if !l.c.json && (l.all || !data.Allowed) {
			l.c.live.Notice("tendril: " + egressText(data))
		}
	case run.Warning:
		l.c.notice("tendril: " + data.Detail)
	case run.StateChange:
		if data.State == run.Preparing && !l.c.json {
			l.c.notice("tendril: run " + string(e.Run))
		}
	}
}

// egressText is one request to the outside on one line.
func egressText(e run.EgressDecision) string {
	word := "reached"
	if !e.Allowed {
		word = "refused"
	}
	text := fmt.Sprintf("%s: %s %s", word, display.Line(e.Method), display.Line(e.Destination))
	if e.Status != 0 {
		text += fmt.Sprintf(" %d, %s sent, %s received", e.Status, display.Size(e.Sent), display.Size(e.Received))
	}
	if e.Failure != "" {
		text += " (" + display.Line(e.Failure) + ")"
	}
	return text + ", by " + display.Line(e.Rule)
}

// terminal is the caller's, while the Sprout has one of the same size.
type terminal struct {
	size    capability.Size
	resizes <-chan capability.Size
}

// takeTerminal turns off echo and line editing of the caller's terminal, so that
// what is typed reaches the Sprout's terminal as it is.
func (c *console) takeTerminal() (terminal, func(), error) {
	file, ok := c.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return terminal{}, nil, fault.New(fault.Invalid, "--tty needs a terminal on stdin").WithHint("leave --tty out, or run tendril in a terminal")
	}
	cols, rows, err := term.GetSize(int(file.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		cols, rows = 80, 24
	}
	before, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return terminal{}, nil, fault.New(fault.Unavailable, "taking the terminal: %w", err)
	}
	resizes, stop := watchSize(int(file.Fd()))
	restore := func() {
		stop()
		term.Restore(int(file.Fd()), before)
	}
	return terminal{size: capability.Size{Rows: uint16(rows), Cols: uint16(cols)}, resizes: resizes}, restore, nil
}

func (c *console) showProgress(what string, done, total int64) {
	if total > 0 {
		what += " " + display.Size(done) + " of " + display.Size(total)
	}
	c.live.Status(what)
}
