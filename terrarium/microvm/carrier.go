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

func (c *carrier) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	if err == nil || n > 0 || errors.Is(err, os.ErrClosed) {
		return n, err
	}
	timer := time.NewTimer(exitTime)
	defer timer.Stop()
	select {
	case <-c.process.exited:
		return 0, fmt.Errorf("the machine ended (%s): %w", c.process.lastWords(), err)
	case <-timer.C:
		return 0, fmt.Errorf("the machine closed its stream (%s): %w", c.process.lastWords(), err)
	}
}
