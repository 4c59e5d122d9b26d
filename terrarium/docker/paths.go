//go:build linux

package docker

import "path/filepath"

// hidden is what no container sees of /proc and /sys. It is spelled out, because older
// daemons hide less: the first twelve and those of [masked] are what Docker 29 hides, the
// others tell of the host's hardware and kernel.
var hidden = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
	"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware",
	"/sys/devices/virtual/powercap",
	"/proc/iomem", "/proc/ioports", "/sys/kernel/notes", "/sys/kernel/vmcoreinfo",
}

// masked adds what there is of each processor and, where the container has no control group
// of its own, those of the host.
func masked(s support) []string {
	// It fails only for a pattern that is none.
	all, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")
	if !s.groups {
		all = append(all, "/sys/fs/cgroup")
	}
	return append(hidden[:len(hidden):len(hidden)], all...)
}

// readonly is what can be read and not written of them, the same in every version of
// Docker.
var readonly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
