//go:build linux

package docker

import (
	"strings"

	"tendril/cgroup"
	"tendril/probe"
	"tendril/terrarium"
)

// kind is what one wall of this package differs from another in.
type kind struct {
	name      string
	primitive string
	runtime   string // as the daemon calls it
	remedy    string // what to do when the daemon does not have it
	seals     []string

	// kernel refuses a container that sees another kernel than it has to, by its
	// /proc/version.
	kernel func(version string) bool
	// outside refuses a container whose process on the host is not confined.
	outside func(b blueprint, pid int, group *cgroup.Other) error
	// own says that the container has a kernel of its own: what it sees of namespaces,
	// inodes and system calls is that kernel's, and its processes on the host are the wall's.
	own bool

	// apart gives the Stoma an account of its own, root of the container's own kernel, with
	// the capabilities there to become the Sprout and to signal it.
	apart bool
}

func sealsOf(more ...string) []string {
	return append([]string{
		probe.Network, probe.HostFiles, probe.Descriptors, probe.Environment, probe.Capabilities,
		probe.User, probe.RootReadonly, probe.Devices, probe.KernelSurface, probe.Processes, probe.Limits,
	}, more...)
}

var runc = kind{
	name:      "docker",
	primitive: "namespaces and control groups, made by a Docker daemon of this host",
	runtime:   "runc",
	remedy:    "it comes with Docker: look at the daemon's configuration",
	seals:     sealsOf(), // not pid1: the Stoma is of the Sprout's account, and its threads can be ended and bounded
	kernel:    func(version string) bool { return !isGVisor(version) },
	outside:   compareProcess,
}

var gvisor = kind{
	name:      "gvisor",
	primitive: "gVisor's user-space kernel, started by a Docker daemon of this host",
	runtime:   "runsc",
	remedy:    "register it: `tendril terrarium setup gvisor`",
	seals:     sealsOf(probe.PID1, probe.Kernel),
	kernel:    isGVisor,
	outside:   compareSandbox,
	own:       true,
	apart:     true, // its kernel lets the Sprout look into and end what runs as the same account
}

func isGVisor(version string) bool { return strings.Contains(version, "gvisor") }

// capabilitiesOfStoma are those that PID 1 begins with.
func (k kind) capabilitiesOfStoma() []string {
	if !k.apart {
		return nil
	}
	return []string{"CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"}
}

// capabilities are the same for all of them but for the kernel.
func (k kind) capabilities() terrarium.Capabilities {
	return terrarium.Capabilities{
		Primitive: k.primitive, Runtime: "container", SharedKernel: !k.own, Seals: k.seals,
		Fields: map[string]terrarium.Enforcement{
			"Run":                 terrarium.ByHost,
			"Rootfs.Host.Dirs":    terrarium.ByHost,
			"Rootfs.Image.Path":   terrarium.ByHost,
			"Rootfs.Image.Digest": terrarium.ByHost,
			"Rootfs.Authority":    terrarium.ByHost,
			"Rootfs.Programs":     terrarium.ByHost,
			"Workspace.Image":     terrarium.ByHost,
			"Workspace.Dir":       terrarium.ByHost,
			"Env":                 terrarium.ByHost,
			"User":                terrarium.ByHost,
			"CPUs":                terrarium.ByHost,
			"Memory":              terrarium.ByHost,
			"Disk":                terrarium.Sampled,
			"Output":              terrarium.ByHost,
			"Pids":                terrarium.ByHost,
			"Wall":                terrarium.ByHost,
			"Idle":                terrarium.ByHost,
			"Network":             terrarium.ByHost,
			"Listeners":           terrarium.ByHost,
			"WritableRoot":        terrarium.ByHost,
		},
	}
}
