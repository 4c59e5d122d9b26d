//go:build !linux

package main

import (
	"context"
	"runtime"

	"tendril/capability"
	"tendril/fault"
)

// invoke asks the tendril that serves on the socket that was named: there is no Stem in
// this process, because walls need Linux.
func (c *console) invoke(ctx context.Context, name string, input any) (any, error) {
	if c.caller.flags.Socket == "" {
		return nil, errNoStem()
	}
	token, err := c.caller.presents(ctx)
	if err != nil {
		return nil, err
	}
	return c.ask(capability.WithProgress(ctx, c.showProgress), c.caller.flags.Socket, token, name, input)
}

func errNoStem() error {
	return fault.New(fault.Unavailable, "Terrariums need Linux, and this is %s", runtime.GOOS).
		WithHint("run tendril on a Linux host, or name the socket of one that serves: --socket PATH")
}
