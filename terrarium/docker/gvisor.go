//go:build linux

package docker

import (
	"os"
	"slices"
	"strconv"
	"strings"

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

// compareSandbox wants the process of the host that is gVisor's kernel to be confined, and
// to have the settings that the boundary rests on.
func compareSandbox(pid int) error {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the sandbox's settings: %w", err)
	}
	if err := compareSettings(strings.Split(string(line), "\x00")); err != nil {
		return err
	}
	return compareStatus(pid, map[string]string{"Uid": nobody, "NoNewPrivs": "1", "Seccomp": "2"}, capSysPtrace)
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
