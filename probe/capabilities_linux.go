package probe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var capabilityProbes = []Probe{
	{ID: "C01", Core: true, Dimension: "capabilities", Seal: Capabilities, What: "no capability is held", Run: heldCapabilities},
	{ID: "C02", Core: true, Dimension: "capabilities", Seal: Capabilities, What: "no dangerous capability is in any set, the bounding set included", Run: dangerousCapabilities},
	{ID: "C03", Dimension: "capabilities", Seal: Capabilities, What: "no capability can be added or raised", Run: raiseCapabilities},
	{ID: "C04", Dimension: "capabilities", Seal: Capabilities, What: "this is not a privileged container", Run: privileged},
	{ID: "F13", Dimension: "filesystem", Seal: Capabilities, What: "control groups cannot be mounted", Run: func() Result { return mountKinds("cgroup", "cgroup2") }},
	{ID: "F14", Dimension: "filesystem", Seal: Capabilities, What: "nothing can be mounted", Run: func() Result { return mountKinds("proc", "sysfs", "tmpfs", "bind") }},
	{ID: "C09", Dimension: "capabilities", Seal: Capabilities, What: "the root directory cannot be changed", Run: changeRoot},
	{ID: "C10", Dimension: "capabilities", Seal: Capabilities, What: "the clock cannot be set", Run: setClock},
	{ID: "C11", Dimension: "capabilities", Seal: Capabilities, What: "the host name cannot be set", Run: setHostname},
	{ID: "C12", Dimension: "capabilities", Seal: Capabilities, What: "no device node can be made", Run: makeDevice},
	{ID: "C13", Dimension: "capabilities", Seal: Capabilities, What: "priorities and limits cannot be raised", Run: raisePriority},
	{ID: "C14", Dimension: "capabilities", Seal: Capabilities, What: "no namespace can be made or left", Run: newNamespaces},
}

var capabilitySetNames = []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}

// capabilitySets reads all sets at once. An empty map says that it could not.
func capabilitySets() map[string]uint64 {
	data, err := read("/proc/self/status")
	if err != nil {
		return nil
	}
	sets := map[string]uint64{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && slices.Contains(capabilitySetNames, name) {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return nil
			}
			sets[name] = n
		}
	}
	return sets
}

func heldCapabilities() Result {
	var held []string
	sets := capabilitySets()
	for _, name := range capabilitySetNames {
		n, ok := sets[name]
		if !ok {
			return unknown("%s cannot be read", name)
		}
		if n != 0 && name != "CapBnd" {
			held = append(held, fmt.Sprintf("%s %x", name, n))
		}
	}
	if len(held) > 0 {
		return leak("%s", strings.Join(held, " "))
	}
	return sealed("none")
}

// dangerous are capabilities that lead out of a container by known ways.
var dangerous = map[uint]string{
	unix.CAP_SYS_ADMIN: "SYS_ADMIN", unix.CAP_SYS_PTRACE: "SYS_PTRACE", unix.CAP_SYS_MODULE: "SYS_MODULE", unix.CAP_SYS_RAWIO: "SYS_RAWIO",
	unix.CAP_SYS_TIME: "SYS_TIME", unix.CAP_DAC_READ_SEARCH: "DAC_READ_SEARCH", unix.CAP_NET_ADMIN: "NET_ADMIN", unix.CAP_NET_RAW: "NET_RAW",
	unix.CAP_BPF: "BPF", unix.CAP_PERFMON: "PERFMON", unix.CAP_MKNOD: "MKNOD", unix.CAP_SETFCAP: "SETFCAP",
	unix.CAP_CHECKPOINT_RESTORE: "CHECKPOINT_RESTORE", unix.CAP_SYS_BOOT: "SYS_BOOT", unix.CAP_SYS_CHROOT: "SYS_CHROOT",
	unix.CAP_DAC_OVERRIDE: "DAC_OVERRIDE", unix.CAP_SYSLOG: "SYSLOG", unix.CAP_LINUX_IMMUTABLE: "LINUX_IMMUTABLE",
}

func dangerousCapabilities() Result {
	var t tried
	sets := capabilitySets()
	for _, name := range capabilitySetNames {
		n, ok := sets[name]
		if !ok {
			return unknown("%s cannot be read", name)
		}
		var in []string
		for bit := range uint(64) {
			if n&(1<<bit) != 0 && dangerous[bit] != "" {
				in = append(in, dangerous[bit])
			}
		}
		if len(in) > 0 {
			t.leak(name + ": " + strings.Join(in, " "))
		}
	}
	return t.result("none")
}

// privileged knows what `docker run --privileged` gives: every capability the kernel
// has.
func privileged() Result {
	n, ok := capabilitySets()["CapEff"]
	if !ok {
		return unknown("CapEff cannot be read")
	}
	const common = 1<<38 - 1 // up to CAP_AUDIT_READ, which every kernel since 3.16 has
	if n&common&^(1<<unix.CAP_SYS_RESOURCE) == common&^(1<<unix.CAP_SYS_RESOURCE) {
		return leak("CapEff is %x", n)
	}
	return sealed("CapEff is %x", n)
}

func raiseCapabilities() Result {
	var t tried
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return unknown("capget: %s", errno(err))
	}
	if have[0].Permitted != 0 || have[1].Permitted != 0 {
		t.leak(fmt.Sprintf("permitted: %08x%08x", have[1].Permitted, have[0].Permitted))
	}
	want := have
	want[0].Permitted |= 1 << unix.CAP_SYS_ADMIN
	want[0].Effective |= 1 << unix.CAP_SYS_ADMIN
	if want != have {
		t.attempt("capset with SYS_ADMIN", unix.Capset(&header, &want[0]))
	}
	t.attempt("raise ambient NET_RAW", unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_RAW, 0, 0))
	t.attempt("drop from the bounding set", dropUnused())
	return t.result("refused")
}

// dropUnused asks for what needs SETPCAP and changes nothing: dropping a capability
// that the bounding set lacks. Where it lacks none, the last known one is asked for.
func dropUnused() error {
	for bit := uintptr(0); bit < 41; bit++ {
		if v, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, bit, 0, 0, 0); err == nil && v == 0 {
			return unix.Prctl(unix.PR_CAPBSET_DROP, bit, 0, 0, 0)
		}
	}
	return unix.Prctl(unix.PR_CAPBSET_DROP, 40, 0, 0, 0) // of this thread, which ends
}

// mountKinds tries to mount in the current namespace where it cannot hurt: a thread
// that may make a namespace of its own does so first, and that alone is the leak.
func mountKinds(kinds ...string) Result {
	var t tried
	if err := unix.Unshare(unix.CLONE_NEWNS); err == nil {
		t.leak("a mount namespace of its own")
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return t.result("")
		}
	}
	for _, kind := range kinds {
		var err error
		if kind == "bind" {
			err = unix.Mount("/", "/tmp", "", unix.MS_BIND, "")
		} else {
			data := ""
			if kind == "tmpfs" {
				data = "size=4k"
			}
			err = unix.Mount("probe", "/tmp", kind, unix.MS_RDONLY, data)
		}
		t.attempt("mount "+kind, err)
		if err == nil {
			_ = unix.Unmount("/tmp", unix.MNT_DETACH)
		}
	}
	return t.result("refused")
}

// changeRoot asks for the root directory that it has.
func changeRoot() Result {
	var t tried
	t.attempt("chroot", unix.Chroot("/"))
	err := unix.PivotRoot("/", "/")
	if err == unix.EBUSY || err == unix.EINVAL { // looked at beyond the permission
		t.leak("pivot_root was considered: " + errno(err))
	} else {
		t.attempt("pivot_root", err)
	}
	return t.result("refused")
}

// setClock asks for the tick that the clock has.
func setClock() Result {
	var t tried
	var x unix.Timex
	if _, err := unix.Adjtimex(&x); err == nil {
		x.Modes = unix.ADJ_TICK
		_, err := unix.Adjtimex(&x)
		t.attempt("adjtimex", err)
	} else if !refused(err) {
		t.attempt("adjtimex", err)
	}
	if len(t.leaks) == 0 { // not allowed to adjust, so not expected to set either
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
			return unknown("clock_gettime: %s", errno(err))
		}
		t.attempt("clock_settime", unix.ClockSettime(unix.CLOCK_REALTIME, &now))
	}
	return t.result("refused")
}

// setHostname sets the name that there is.
func setHostname() Result {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unknown("uname: %s", errno(err))
	}
	var t tried
	t.attempt("sethostname", unix.Sethostname([]byte(unix.ByteSliceToString(u.Nodename[:]))))
	t.attempt("setdomainname", unix.Setdomainname([]byte(unix.ByteSliceToString(u.Domainname[:]))))
	return t.result("refused")
}

func makeDevice() Result {
	var t tried
	for _, d := range []struct {
		what         string
		mode         uint32
		major, minor uint32
	}{
		{"character device 1:1 (memory)", unix.S_IFCHR, 1, 1},
		{"block device 8:0 (disk)", unix.S_IFBLK, 8, 0},
	} {
		path := scratchName("/tmp")
		err := unix.Mknod(path, d.mode|0o600, int(unix.Mkdev(d.major, d.minor)))
		if err == nil {
			_ = unix.Unlink(path)
		}
		t.attempt("mknod of "+d.what, err)
	}
	return t.result("refused")
}

// raisePriority asks for a better priority of this thread and a higher limit of this
// process.
func raisePriority() Result {
	var t tried
	// In gVisor a priority is a number that nothing reads.
	if old, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && !gvisor() {
		nice := 20 - old // the system call answers 20-nice (getpriority(2))
		err := unix.Setpriority(unix.PRIO_PROCESS, 0, nice-1)
		t.attempt("a better priority", err)
	}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err == nil {
		up := r
		up.Max++
		err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &up, nil)
		t.attempt("a higher limit of open files", err)
	}
	return t.result("refused")
}

func newNamespaces() Result {
	var t tried
	for _, n := range []struct {
		name string
		flag int
	}{
		{"mnt", unix.CLONE_NEWNS}, {"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC},
		{"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP}, {"time", unix.CLONE_NEWTIME},
	} {
		if !exists("/proc/self/ns/" + n.name) {
			continue // this kernel has no such namespace, and may accept the flag for it
		}
		t.attempt("a "+n.name+" namespace", unix.Unshare(n.flag))
	}
	// gVisor refuses unshare(CLONE_NEWPID) to a program with threads before it looks at
	// the permission; clone it does not.
	p, err := startChild(childNothing, unix.CLONE_NEWPID, nil)
	if err == nil {
		_, _ = p.Wait()
	}
	t.attempt("a pid namespace", err)
	return t.result("refused")
}
