//go:build linux

package docker

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// filter is the list of system calls that a container may make: the daemon's own default,
// spelled out so that it does not depend on the daemon's configuration, with fewer kinds of
// sockets, and without ways to PID 1, which shares the Sprout's account.
var filter = sync.OnceValues(func() (string, error) {
	profile := seccomp.DefaultProfile()
	if profile.DefaultAction != specs.ActErrno {
		return "", fmt.Errorf("the default filter of system calls is no list of those that are allowed: %s", profile.DefaultAction)
	}
	remove := append([]string{"socket", "socketcall"}, aimed...)
	var rules []*seccomp.Syscall
	for _, rule := range profile.Syscalls {
		r := *rule
		r.Names = slices.DeleteFunc(slices.Clone(rule.Names), func(name string) bool { return slices.Contains(remove, name) })
		if len(r.Names) > 0 {
			rules = append(rules, &r)
		}
	}
	profile.Syscalls = slices.Concat(rules, sockets(), awayFromInit())
	text, err := json.Marshal(profile)
	return string(text), err
})

func allow(names []string, args ...specs.LinuxSeccompArg) *seccomp.Syscall {
	return &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: names, Action: specs.ActAllow, Args: args}}
}

// sockets are what a Sprout has a use for: of netlink only the kind by which programs list
// interfaces and addresses.
func sockets() []*seccomp.Syscall {
	is := func(index uint, value uint64) specs.LinuxSeccompArg {
		return specs.LinuxSeccompArg{Index: index, Value: value, Op: specs.OpEqualTo}
	}
	return []*seccomp.Syscall{
		allow([]string{"socket"}, is(0, unix.AF_UNIX)),
		allow([]string{"socket"}, is(0, unix.AF_INET)),
		allow([]string{"socket"}, is(0, unix.AF_INET6)),
		allow([]string{"socket"}, is(0, unix.AF_NETLINK), is(2, unix.NETLINK_ROUTE)),
	}
}

// aimed are the system calls that do something to the process which their first argument
// names, and that need no more than its account.
var aimed = []string{"kill", "rt_sigqueueinfo", "pidfd_open", "prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"}

// awayFromInit allows those with any first argument but 1. The kernel looks at 32 bits of
// it and a filter at 64, so that each rule looks at one of the 32: at least one of them
// differs from those of 1.
func awayFromInit() []*seccomp.Syscall {
	var rules []*seccomp.Syscall
	for bit := range 32 {
		mask, other := uint64(1)<<bit, uint64(1)<<bit
		if bit == 0 {
			other = 0 // 1 has this one
		}
		// With OpMaskedEqual, Value is the mask and ValueTwo what is left of the argument.
		rules = append(rules, allow(aimed, specs.LinuxSeccompArg{Index: 0, Value: mask, ValueTwo: other, Op: specs.OpMaskedEqual}))
	}
	return rules
}
