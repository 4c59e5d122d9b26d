//go:build linux

package stem

import (
	"context"
	"io"

	"tendril/capability"
)

// feed copies the caller's input to the Sprout and follows the caller's terminal.
// The function that it returns ends both.
func (g *growth) feed(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	input := capability.Input(ctx)
	if input == nil {
		g.process.Stdin.Close()
	} else {
		go func() { // may outlive the run in a Read that does not return, see capability.WithInput
			source := &failing{Reader: input}
			io.Copy(g.process.Stdin, source)
			if source.err != nil && ctx.Err() == nil { // the Sprout takes it for the end
				g.warn(ctx, "the input broke off: "+source.err.Error())
			}
			g.process.Stdin.Close()
		}()
	}
	resized := make(chan struct{})
	go func() {
		defer close(resized)
		for {
			select {
			case <-ctx.Done():
				return
			case size, more := <-capability.Resizes(ctx):
				if !more {
					return
				}
				if g.process.Resize(ctx, size.Rows, size.Cols) != nil {
					return
				}
			}
		}
	}()
	return func() {
		cancel()
		<-resized
	}
}

// failing is a reader that remembers why it ended, if that was not its end.
type failing struct {
	io.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}
