//go:build unix

package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"tendril/capability"
)

// watchSize yields the terminal's size whenever it changes, until stop.
func watchSize(fd int) (sizes <-chan capability.Size, stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	out := make(chan capability.Size)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-changed:
			}
			cols, rows, err := term.GetSize(fd)
			if err != nil || cols <= 0 || rows <= 0 {
				continue
			}
			select {
			case out <- capability.Size{Rows: uint16(rows), Cols: uint16(cols)}:
			case <-quit:
				return
			}
		}
	}()
	return out, func() {
		signal.Stop(changed)
		close(quit)
		<-done
	}
}
