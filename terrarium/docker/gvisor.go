//go:build linux

package docker

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"tendril/cgroup"
	"tendril/fault"
	"tendril/terrarium/docker/registration"
)

// sealing are those of them that a running sandbox has to show.
var sealing = []string{
	"platform", "network", "host-uds", "host-fifo", "net-raw", "character-device-policy", "overlay2", "allow-suid", "allow-flag-override",
	"oci-seccomp", "in-sandbox-cgroup", "directfs", "debug", "profile",
}

// nobody is the host's account that gVisor gives a sandbox which needs no file of the host.
const nobody = "65534\t65534\t65534\t65534"

// compareSandbox wants the processes of the host that are gVisor to be confined: its kernel
// with the settings that the boundary rests on, and the gofer, the one that reaches files of
// the host by name, with no others before it than are shown.
func compareSandbox(b blueprint, pid int, group *cgroup.Other) error {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the sandbox's settings: %w", err)
	}
	if err := compareSettings(strings.Split(string(line), "\x00")); err != nil {
		return err
	}
	if err := compareStatus(pid, map[string]string{"Uid": nobody, "NoNewPrivs": "1", "Seccomp": "2"}, capSysPtrace); err != nil || group == nil {
		return err
	}
	pids, err := group.Processes()
	if err != nil {
		return fault.New(fault.BrokenBoundary, "listing the sandbox's processes: %w", err)
	}
	for _, other := range pids {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(other) + "/cmdline")
		if err != nil || !strings.HasPrefix(string(line), "runsc-gofer\x00") {
			continue // one that serves system calls, and comes and goes
		}
		if err := compareStatus(other, map[string]string{"NoNewPrivs": "1", "Seccomp": "2"}, goferCapabilities); err != nil {
			return err
		}
		return b.compareGofer(other)
	}
	return differs("gofer", "one process", "none")
}

// goferCapabilities are those for files (CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER,
// FSETID) and SYS_CHROOT, see include/uapi/linux/capability.h.
const goferCapabilities = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<18

// compareGofer looks at what of the host's files is in the gofer's mount namespace.
func (b blueprint) compareGofer(pid int) error {
	table, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/mountinfo")
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the gofer's mounts: %w", err)
	}
	shown := map[string]bool{"/": true}
	for _, m := range b.host.Mounts {
		shown[m.Target] = true
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 6 {
			return differs("table of the gofer's mounts", "proc_pid_mountinfo(5)", line)
		}
		target, readonly := unescape(f[4]), slices.Contains(strings.Split(f[5], ","), "ro")
		switch {
		case !shown[target]:
			return differs("mount "+target+" of the gofer", "nothing", line)
		case !readonly && !(target == "/" && b.spec.WritableRoot):
			return differs("mount "+target+" of the gofer", "read-only", f[5])
		}
	}
	return nil
}

// capSysPtrace is by which it serves the system calls of what runs inside, in processes of
// its own.
const capSysPtrace = 1 << 19

func compareSettings(args []string) error {
	boot := slices.Index(args, "boot")
	if boot < 0 {
		return differs("sandbox's command", "boot", args)
	}
	applied := map[string]string{}
	for _, arg := range args[:boot] {
		if name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "="); ok {
			applied[name] = value
		}
	}
	for _, arg := range registration.Args {
		name, want, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if slices.Contains(sealing, name) && applied[name] != want {
			return fault.New(fault.BrokenBoundary, "the runtime runs gVisor with %s=%q instead of %q", name, applied[name], want).
				WithRule("the wall's own settings are read back").
				WithHint("register the runtime with these settings: `tendril terrarium setup gvisor`")
		}
	}
	return nil
}
