//go:build linux

// Command stoma is PID 1 in every Terrarium: the guest's half of the Stoma.
package main

import (
	"fmt"
	"os"

	"tendril/probe"
	"tendril/stoma/guest"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	switch os.Args[1] {
	case "init":
		os.Exit(guest.Main(os.Args[2:]))
	case "probe":
		os.Exit(probe.Main(os.Args[2:]))
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: stoma init --user UID:GID [--overlay LOWER:SCRATCH:TARGET] [--writable DIR]... [--pids N] [--listen NAME=PORT]...\n       stoma probe ID...")
	os.Exit(2)
}
