package probe

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var deviceProbes = []Probe{
	{ID: "F17", Core: true, Dimension: "filesystem", Seal: Devices, What: "/dev holds the harmless devices and no block device", Run: deviceList},
	{ID: "F19", Dimension: "filesystem", Seal: Devices, What: "devices of the host's kernel cannot be opened", Run: openDevices},
	{ID: "F21", Dimension: "filesystem", Seal: Devices, What: "memory and ports cannot be opened", Run: openMemory},
	{ID: "F09", Dimension: "filesystem", Seal: Devices, What: "hardware and kernel tables in /proc and /sys are hidden", Run: maskedFiles},
}

var harmlessDevices = []string{
	"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "mqueue", "fd", "stdin", "stdout", "stderr", "core", "char",
}

func deviceList() Result {
	names, err := list("/dev")
	if err != nil {
		return unknown("/dev: %s", errno(err))
	}
	var extra []string
	for _, n := range names {
		var st unix.Stat_t
		if unix.Lstat("/dev/"+n, &st) != nil {
			continue
		}
		switch kind := st.Mode & unix.S_IFMT; {
		case kind == unix.S_IFBLK:
			extra = append(extra, n+" (block)")
		case kind == unix.S_IFCHR && !slices.Contains(harmlessDevices, n):
			// A node that this account cannot open is no way to the device.
			if ok, err := opens("/dev/"+n, unix.O_RDONLY); ok || !refused(err) {
				extra = append(extra, n)
			}
		case kind == unix.S_IFDIR && !slices.Contains(harmlessDevices, n):
			if below, err := list("/dev/" + n); err == nil {
				for _, b := range below {
					if ok, _ := opens("/dev/"+n+"/"+b, unix.O_RDONLY); ok && isDevice("/dev/"+n+"/"+b) {
						extra = append(extra, n+"/"+b)
					}
				}
			}
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		return leak("%s", strings.Join(extra, " "))
	}
	return sealed("harmless ones only")
}

func isDevice(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return false
	}
	kind := st.Mode & unix.S_IFMT
	return kind == unix.S_IFCHR || kind == unix.S_IFBLK
}

// tryDevices opens read-only: that starts nothing on any of them.
func tryDevices(paths ...string) Result {
	var t tried
	for _, path := range paths {
		_, err := opens(path, unix.O_RDONLY)
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL) {
			t.leak(path + " answered " + errno(err))
			continue
		}
		t.attempt(path, err)
	}
	return t.result("none opens")
}

func openDevices() Result {
	paths := []string{
		"/dev/kvm", "/dev/vhost-vsock", "/dev/vhost-net", "/dev/net/tun", "/dev/fuse", "/dev/loop-control", "/dev/loop0",
		"/dev/mapper/control", "/dev/btrfs-control", "/dev/vsock", "/dev/userfaultfd", "/dev/uinput", "/dev/snd/timer",
		"/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/nvme0", "/dev/xvda", "/dev/dm-0", "/dev/zram0", "/dev/cuse", "/dev/tpm0", "/dev/hwrng",
	}
	for _, dir := range []string{"/dev/dri", "/dev/input", "/dev/bus/usb", "/dev/vfio", "/dev/cpu/0"} {
		if names, err := list(dir); err == nil {
			for _, n := range names[:min(len(names), 8)] {
				paths = append(paths, dir+"/"+n)
			}
		}
	}
	if names, err := list("/dev"); err == nil {
		for _, n := range names {
			if strings.HasPrefix(n, "nvidia") || strings.HasPrefix(n, "sd") || strings.HasPrefix(n, "vd") {
				paths = append(paths, "/dev/"+n)
			}
		}
	}
	return tryDevices(paths...)
}

func openMemory() Result {
	return tryDevices("/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/oldmem", "/dev/mcelog", "/proc/kcore", "/proc/kmsg")
}

// maskedFiles reads a byte of what container runtimes mask.
func maskedFiles() Result {
	var t tried
	for _, path := range []string{
		"/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/iomem", "/proc/ioports", "/proc/kpagecount", "/proc/kpageflags", "/proc/vmallocinfo", "/proc/slabinfo",
		"/sys/kernel/notes", "/sys/kernel/vmcoreinfo",
	} {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		n, _ := unix.Read(fd, make([]byte, 1))
		unix.Close(fd)
		if n > 0 {
			t.leak(path)
		}
	}
	for _, dir := range []string{"/proc/asound", "/proc/acpi", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/fs/bpf"} {
		if names, err := list(dir); err == nil && len(names) > 0 {
			t.leak(dir + "/" + names[0])
		}
	}
	return t.result("hidden")
}
