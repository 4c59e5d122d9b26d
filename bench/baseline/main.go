//go:build linux

// Command baseline is gVisor's own runsc with the few commands that a bundle
// needs: what a user would run by hand, and what `make bench` compares with.
package main

import (
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

func main() {
	cli.Run(nil, map[util.SubCommand]string{
		new(cmd.Run):          "",
		new(cmd.Delete):       "",
		new(cmd.Kill):         "",
		new(cmd.State):        "",
		new(sentrycmd.Boot):   "",
		new(cmd.Gofer):        "",
		new(sentrycmd.Umount): "",
	}, nil)
}
