package probe

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

var rootProbes = []Probe{
	{ID: "W01", Core: true, Dimension: "filesystem", Seal: RootReadonly, What: "no file can be made in the root file system", Run: writeRoot},
	{ID: "W02", Dimension: "filesystem", Seal: RootReadonly, What: "programs and libraries cannot be opened for writing", Run: writePrograms},
	{ID: "W03", Core: true, Dimension: "filesystem", Seal: RootReadonly, What: "the root and the toolchain are mounted read-only", Run: readonlyMounts},
	{ID: "W04", Dimension: "filesystem", Seal: RootReadonly, What: "modes and owners of the root file system cannot be changed", Run: changeMode},
	{ID: "K29", Dimension: "process", Seal: RootReadonly, What: "the Stoma's binary cannot be written", Run: writeSelf},
	{ID: "F16", Dimension: "filesystem", Seal: RootReadonly, What: "nothing in /sys can be written", Run: writableSys},
	{ID: "F11", Dimension: "filesystem", Seal: RootReadonly, What: "settings of the kernel in /proc cannot be written", Run: writableProc},
	{ID: "F12", Dimension: "filesystem", Seal: RootReadonly, What: "control groups cannot be changed", Run: writableCgroups},
}

// rootDirs are directories of the root file system in which a file could be planted.
var rootDirs = []string{"/", "/usr", "/usr/bin", "/usr/lib", "/usr/local/bin", "/etc", "/bin", "/lib", "/.tendril", "/opt", "/var", "/run", "/home", "/root"}

// writeRoot asks first and only then tries: where the answer is yes, that is the
// leak, and nothing is made.
func writeRoot() Result {
	var t tried
	for _, dir := range rootDirs {
		err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK, unix.AT_EACCESS)
		if err == nil {
			t.leak(dir + " can be written")
			continue
		}
		path := scratchName(dir)
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
			_ = unix.Unlink(path)
		}
		t.attempt("create a file in "+dir, err)
	}
	return t.result("refused everywhere")
}

func writePrograms() Result {
	var t tried
	for _, path := range []string{"/bin/sh", "/usr/bin/env", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/ld.so.cache", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"} {
		_, err := opens(path, unix.O_WRONLY)
		if errors.Is(err, unix.ETXTBSY) {
			err = unix.EPERM // in use, and so not to be written now
		}
		t.attempt("open "+path+" for writing", err)
	}
	return t.result("refused everywhere")
}

func readonlyMounts() Result {
	all := mounts()
	if len(all) == 0 {
		return unknown("/proc/self/mountinfo cannot be read")
	}
	var t tried
	seen := false
	for _, m := range all {
		switch m.target {
		case "/", "/usr", "/etc", "/bin", "/lib", "/.tendril", "/.tendril/stoma":
			seen = seen || m.target == "/"
			if !m.readonly() {
				t.leak(m.target + " is mounted writable")
			}
		}
	}
	if !seen {
		return unknown("the mount of / is not listed")
	}
	return t.result("read-only")
}

// changeMode sets a mode to what it is.
func changeMode() Result {
	var t tried
	for _, path := range []string{"/", "/usr", "/etc", "/bin/sh"} {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil {
			continue
		}
		if int(st.Uid) == os.Geteuid() || os.Geteuid() == 0 {
			// Allowed by ownership: only the mount can refuse, and asking tells without
			// changing anything.
			if unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil {
				t.leak(path + " belongs to this account and can be written")
				continue
			}
		}
		t.attempt("change the mode of "+path, unix.Chmod(path, st.Mode&0o7777))
	}
	return t.result("refused")
}

// writeSelf tries the binary that the next command's helper will be (CVE-2019-5736).
func writeSelf() Result {
	var t tried
	for _, path := range []string{"/proc/self/exe", "/proc/1/exe", "/.tendril/stoma"} {
		_, err := opens(path, unix.O_WRONLY)
		if errors.Is(err, unix.ETXTBSY) {
			err = unix.EPERM
		}
		t.attempt("open "+path+" for writing", err)
	}
	return t.result("refused")
}

func writableSys() Result {
	var t tried
	for _, path := range []string{"/sys/kernel/uevent_helper", "/sys/kernel/security", "/sys/firmware/efi/efivars", "/sys/kernel/mm/ksm/run", "/sys/power/state", "/sys/module"} {
		if unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil {
			t.leak(path)
		}
	}
	left := maxWalk / 10
	if found := findWritable("/sys", &left, 5); found != "" {
		t.leak(found)
	}
	return t.result("nothing")
}

// findWritable walks a directory without following links and returns the first
// regular file that this account may write.
func findWritable(dir string, left *int, depth int) string {
	names, err := list(dir)
	if err != nil || depth == 0 {
		return ""
	}
	for _, name := range names {
		if *left--; *left <= 0 {
			return ""
		}
		path := dir + "/" + name
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil {
				return path
			}
		case unix.S_IFDIR:
			if found := findWritable(path, left, depth-1); found != "" {
				return found
			}
		}
	}
	return ""
}

func writableProc() Result {
	var t tried
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname",
		"/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/kernel/randomize_va_space", "/proc/sys/kernel/unprivileged_bpf_disabled",
		"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/conf/all/route_localnet",
		"/proc/sys/fs/binfmt_misc/register", "/proc/sys/fs/suid_dumpable", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/bus/pci",
		"/proc/1/oom_score_adj",
	} {
		_, err := opens(path, unix.O_WRONLY)
		if errors.Is(err, unix.EISDIR) {
			continue // a directory is not a setting
		}
		t.attempt("open "+path+" for writing", err)
	}
	return t.result("refused everywhere")
}

func writableCgroups() Result {
	var t tried
	dirs := []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}
	if names, err := list("/sys/fs/cgroup"); err == nil {
		for _, n := range names {
			dirs = append(dirs, "/sys/fs/cgroup/"+n)
		}
	}
	for _, dir := range dirs {
		if exists(dir + "/release_agent") {
			t.leak(dir + "/release_agent")
		}
		if _, err := opens(dir+"/cgroup.procs", unix.O_WRONLY); err == nil {
			t.leak(dir + "/cgroup.procs can be written")
		}
	}
	return t.result("none to write")
}
