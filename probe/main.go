//go:build linux

package probe

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// Exit statuses of [Main] besides those of the results.
const exitUsage = 64

// exitStatus maps a result to the exit status of `probe ID`.
var exitStatus = map[Status]int{Sealed: 0, Leak: 1, Unknown: 2, NotApplicable: 3}

// Main is `stoma probe`. Arguments are `list`, `all`, or ids; each probe prints one
// line that [Parse] reads. It returns the exit status: that of the one probe, or of
// the worst of several (leak, unknown, sealed), and 64 for a wrong command line.
func Main(args []string) int {
	if len(args) == 2 && args[0] == childArgument {
		return child(args[1])
	}
	if len(args) == 1 && args[0] == "list" {
		for _, p := range All() {
			fmt.Printf("%s\t%s\t%s\t%s\n", p.ID, p.Dimension, p.Seal, p.What)
		}
		return 0
	}
	var probes []Probe
	if len(args) == 1 && args[0] == "all" {
		probes = All()
	} else {
		for _, id := range args {
			p, ok := Find(id)
			if !ok {
				fmt.Fprintf(os.Stderr, "stoma probe: no probe %q; try: stoma probe list\n", id)
				return exitUsage
			}
			probes = append(probes, p)
		}
	}
	if len(probes) == 0 {
		fmt.Fprintln(os.Stderr, "usage: stoma probe list | all | ID...")
		return exitUsage
	}
	var worst Status
	for _, p := range probes {
		r := run(p)
		if _, err := os.Stdout.Write(append(r.encode(), '\n')); err != nil {
			return exitStatus[Unknown]
		}
		if len(probes) == 1 || worse(r.Status, worst) {
			worst = r.Status
		}
	}
	return exitStatus[worst]
}

// worse reports whether a outranks b as the result of several probes.
func worse(a, b Status) bool {
	rank := map[Status]int{"": 0, NotApplicable: 1, Sealed: 2, Unknown: 3, Leak: 4}
	return rank[a] > rank[b]
}

// run calls one probe on a thread of its own, which ends with it, and gives up at
// the deadline: the process ends soon after, and with it what still runs.
func run(p Probe) Result {
	done := make(chan Result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: a changed thread is not reused
		defer func() {
			if v := recover(); v != nil {
				done <- unknown("the probe failed: %v", v)
			}
		}()
		done <- p.Run()
	}()
	timer := time.NewTimer(p.Deadline())
	defer timer.Stop()
	var r Result
	select {
	case r = <-done:
	case <-timer.C:
		r = unknown("no answer within %s", p.Deadline())
	}
	r.ID = p.ID
	r.Detail = printable(r.Detail)
	return r
}
