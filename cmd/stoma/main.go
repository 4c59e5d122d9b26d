//go:build linux

// Command stoma is PID 1 in every Terrarium: the guest's half of the Stoma.
package main

import (
	"fmt"
	"os"
	"runtime"

	"tendril/probe"
	"tendril/stoma/guest"
)

// The first thread is main's own, which waits. The runtime has a thread on which it blocks
// most signals, and would take the first one for it: see guest's shield against signals.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	if os.Args[1] == "look" || os.Args[1] == "probe" {
		runtime.UnlockOSThread() // no PID 1, and with fewer threads there is less to be refused
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
