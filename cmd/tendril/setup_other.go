//go:build !linux

package main

import "context"

func (*setupMicrovmCommand) Run(context.Context, *console) error { return errNoStem() }
