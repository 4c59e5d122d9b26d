//go:build linux

package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// pipeSize is what the pipes of a command hold, when the kernel lets them.
const pipeSize = 1 << 20

// maxDrain bounds what is read from a pipe after the command's end. A process of
// another command may hold the pipe's other end and write for ever.
const maxDrain = pipeSize

// pipes are the descriptors 0, 1 and 2 of a command: three pipes, or a terminal.
// This process's ends never block it.
type pipes struct {
	in       *os.File // to stdin
	out, err *os.File // from stdout and stderr; err is nil with a terminal
	theirs   [3]int   // the command's ends
	tty      bool
}

func newPipes(tty *stoma.Size, sprout identity) (*pipes, error) {
	if tty != nil {
		return newTerminal(*tty, sprout)
	}
	p := &pipes{theirs: [3]int{-1, -1, -1}}
	for i, ours := range []**os.File{&p.in, &p.out, &p.err} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			p.close()
			return nil, fmt.Errorf("make a pipe: %w", err)
		}
		mine, theirs := 0, 1
		if i == 0 {
			mine, theirs = 1, 0
		}
		p.theirs[i] = fds[theirs]
		_ = unix.SetNonblock(fds[mine], true)                                 // cannot fail on a pipe
		_, _ = unix.FcntlInt(uintptr(fds[mine]), unix.F_SETPIPE_SZ, pipeSize) // a smaller pipe works too
		*ours = os.NewFile(uintptr(fds[mine]), "pipe")
	}
	return p, nil
}

// newTerminal opens a terminal as the Sprout, so that its device belongs to it.
func newTerminal(size stoma.Size, sprout identity) (*pipes, error) {
	p := &pipes{theirs: [3]int{-1, -1, -1}, tty: true}
	err := sprout.do(func() error {
		master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("open /dev/ptmx: %w", err)
		}
		p.in = os.NewFile(uintptr(master), "terminal")
		p.out = p.in
		if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
			return fmt.Errorf("unlock the terminal: %w", err)
		}
		n, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
		if err != nil {
			return fmt.Errorf("name the terminal: %w", err)
		}
		for i := range p.theirs {
			p.theirs[i], err = unix.Open("/dev/pts/"+strconv.Itoa(int(n)), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open the terminal: %w", err)
			}
		}
		return setSize(p.in, size)
	})
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func setSize(tty *os.File, size stoma.Size) error {
	raw, err := tty.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	return errors.Join(err, failed)
}

// inside lists the command's ends.
func (p *pipes) inside() []uintptr {
	return []uintptr{uintptr(p.theirs[0]), uintptr(p.theirs[1]), uintptr(p.theirs[2])}
}

func (p *pipes) closeInside() {
	for i, fd := range p.theirs {
		if fd >= 0 {
			unix.Close(fd)
			p.theirs[i] = -1
		}
	}
}

func (p *pipes) close() {
	p.closeInside()
	for _, f := range []*os.File{p.in, p.out, p.err} {
		if f != nil {
			_ = f.Close() // nothing was written that could be lost
		}
	}
}

// terminal returns the terminal, if it is one.
func (p *pipes) terminal() *os.File {
	if p.tty {
		return p.in
	}
	return nil
}

// copy moves bytes between the pipes and the command's streams, until both
// outputs are at their end.
func (p *pipes) copy(wg *sync.WaitGroup, c *command) {
	wg.Go(func() { p.feed(c.exec) })
	wg.Go(func() {
		p.pour(p.out, c.exec)
		// The end of the output is the end of the input's reader: a host that
		// still writes is told.
		_ = c.exec.Close()
		if p.tty {
			_ = p.in.Close()
		}
	})
	if p.tty {
		return
	}
	wg.Go(func() {
		defer p.err.Close()
		select {
		case st := <-c.stderr: // opened before the wait stream, which is here
			p.pour(p.err, st)
			_ = st.CloseWrite() // never fails
		default: // a host that did not ask for it does not get it
		}
	})
}

// endOfInput is what a terminal takes for the end of the input.
const endOfInput = 0x04

// feed writes the stream to stdin.
func (p *pipes) feed(st *stoma.Stream) {
	_, err := io.Copy(struct{ io.Writer }{p.in}, struct{ io.Reader }{st})
	switch {
	case !p.tty:
		_ = p.in.Close() // the command reads the end
	case err == nil:
		_, _ = p.in.Write([]byte{endOfInput}) // the command may be gone
	}
}

// pour reads one output to its end and sends it. When the command is dead, what
// is in the pipe then is the rest.
func (p *pipes) pour(f *os.File, st *stoma.Stream) {
	buf := make([]byte, 4*stoma.MaxPayload)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if _, err := st.Write(buf[:n]); err != nil {
				return
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.rest(f, st, buf)
			return
		}
		if err != nil {
			return
		}
	}
}

// rest sends what is in the pipe and does not wait for more.
func (p *pipes) rest(f *os.File, st *stoma.Stream, buf []byte) {
	_ = f.SetReadDeadline(time.Time{}) // it was set, so it can be cleared
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	for left := maxDrain; left > 0; {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), buf)
			return true
		})
		if err != nil || n <= 0 {
			return
		}
		left -= n
		if _, err := st.Write(buf[:n]); err != nil {
			return
		}
	}
}

// drain says that the command's tree is gone: nobody waits for output any more.
func (p *pipes) drain() {
	for _, f := range []*os.File{p.out, p.err} {
		if f != nil {
			_ = f.SetReadDeadline(time.Unix(1, 0)) // fails only when the file is closed already
		}
	}
	if !p.tty {
		_ = p.in.Close() // ends a write that nobody reads
	}
}
