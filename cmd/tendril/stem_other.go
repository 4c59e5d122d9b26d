//go:build !linux

package main

import (
	"context"
	"runtime"

	"tendril/fault"
)

// invoke has no Stem to ask: walls need Linux.
func (c *console) invoke(context.Context, string, any) (any, error) {
	return nil, fault.New(fault.Unavailable, "Terrariums need Linux, and this is %s", runtime.GOOS).
		WithHint("run tendril on a Linux host")
}
