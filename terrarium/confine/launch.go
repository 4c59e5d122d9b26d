//go:build linux

package confine

import "os/exec"

// Launch starts a process, which what names in errors, after connect has given it its ends of
// pipes. The channel is closed when the process has been reaped. After an error there is no
// process, and no pipe is open.
func Launch(cmd *exec.Cmd, what string, connect func(*Ends) error) (exited <-chan struct{}, err error) {
	var ends Ends
	if err := connect(&ends); err != nil {
		ends.Close()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		ends.Close()
		return nil, StartError(what, err)
	}
	ends.Started()
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		_ = cmd.Wait() // that it ended is what counts
	}()
	return reaped, nil
}
