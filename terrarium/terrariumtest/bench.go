//go:build linux

package terrariumtest

import (
	"context"
	"fmt"
	"io"

	"tendril/stoma"
)

// Zeros is a command that prints a gibibyte, for measuring.
var Zeros = []string{"/usr/bin/dd", "if=/dev/zero", "bs=1M", "count=1024", "status=none"}

// RunTrue runs the least that can be run in an open Terrarium.
func RunTrue(ctx context.Context, inside *stoma.Client) error {
	process, err := inside.Exec(ctx, stoma.ExecRequest{Argv: []string{"/usr/bin/true"}, Dir: "/workspace"})
	if err != nil {
		return err
	}
	defer process.Close()
	return Success(process.Wait(ctx))
}

// Success is how a command ended that had to end well.
func Success(exit stoma.Exit, err error) error {
	if err == nil && (exit.Code == nil || *exit.Code != 0) {
		err = fmt.Errorf("the command ended with %+v", exit)
	}
	return err
}

// StreamZeros runs [Zeros] in an open Terrarium and takes all that it prints.
func StreamZeros(ctx context.Context, inside *stoma.Client) error {
	process, err := inside.Exec(ctx, stoma.ExecRequest{Argv: Zeros, Dir: "/workspace"})
	if err != nil {
		return err
	}
	defer process.Close()
	// In pieces as large as the Stem's; those of io.Discard are 8 KiB.
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, process.Stdout, make([]byte, 64<<10))
	if err != nil {
		return err
	}
	if err := Counter(n).ExpectZeros(); err != nil {
		return err
	}
	return Success(process.Wait(ctx))
}

// Counter counts what is written to it.
type Counter int64

func (c *Counter) Write(p []byte) (int, error) {
	*c += Counter(len(p))
	return len(p), nil
}

// ExpectZeros wants all of [Zeros].
func (c Counter) ExpectZeros() error {
	if c != 1<<30 {
		return fmt.Errorf("%d bytes arrived instead of a gibibyte", c)
	}
	return nil
}
