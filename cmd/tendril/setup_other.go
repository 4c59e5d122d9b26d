//go:build !linux

package main

import "context"

func (*setupGvisorCommand) Run(context.Context, *console) error { return errNoStem() }

func (*setupMicrovmCommand) Run(context.Context, *console) error { return errNoStem() }
