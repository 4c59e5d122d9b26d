//go:build linux

package microvm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// carrier is the Stoma's stream, whose end says what became of the machine.
type carrier struct {
	io.ReadWriteCloser
	process *process
}

// exitTime is how long a machine whose stream ended may take to end, before somebody is
// told only that it did.
const exitTime = 2 * time.Second

// over is the end of a stream, with what is known of why.
type over struct {
	what  string
	cause error
}

func (o *over) Error() string { return o.what + ": " + o.cause.Error() }
func (o *over) Unwrap() error { return o.cause }

func (c *carrier) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	if err == nil || n > 0 || errors.Is(err, os.ErrClosed) {
		return n, err
	}
	what := "the machine ended"
	timer := time.NewTimer(exitTime)
	defer timer.Stop()
	select {
	case <-c.process.exited:
	case <-timer.C:
		what = "the machine closed its stream"
	}
	return 0, &over{fmt.Sprintf("%s (%s)", what, c.process.lastWords()), err}
}
