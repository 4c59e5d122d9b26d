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
	case "machine":
		os.Exit(guest.Machine(os.Args[2:]))
	case "look":
		os.Exit(guest.Look(os.Args[2:]))
	case "host":
		os.Exit(guest.Host(os.Args[2:]))
	case "probe":
		os.Exit(probe.Main(os.Args[2:]))
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: stoma init --user UID:GID [--overlay LOWER:SCRATCH:TARGET | --plain TARGET --disk BYTES] [--writable DIR]... [--pids N] [--listen NAME=PORT]...\n       stoma machine CARRIER\n       stoma look PATH...\n       stoma probe ID...")
	os.Exit(2)
}
