//go:build !linux

package main

import "context"

type serveCommand struct {
	SocketMode string `default:"0600" placeholder:"MODE" help:"Who of this host may connect."`
}

func (*serveCommand) Run(context.Context, *console) error { return errNoStem() }
