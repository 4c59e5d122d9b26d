package probe

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var userProbes = []Probe{
	{ID: "U01", Core: true, Dimension: "process", Seal: User, What: "no uid, gid or group is 0, and all are those that were applied", Run: identity},
	{ID: "U02", Core: true, Dimension: "process", Seal: User, What: "the account cannot become another one", Run: becomeOther},
	{ID: "U03", Dimension: "process", Seal: User, What: "a setuid program gains nothing", Run: setuidProgram},
	{ID: "U04", Core: true, Dimension: "process", Seal: User, What: "no user namespace in which the account is root", Run: userNamespace},
	{ID: "K05", Dimension: "process", Seal: User, What: "no_new_privs is set", Run: noNewPrivs},
	{ID: "K07", Core: true, Dimension: "process", Seal: Accounts, What: "root of the Terrarium is not root of the host's kernel", Run: uidMap},
}

func identity() Result {
	var t tried
	r, e, s := unix.Getresuid()
	rg, eg, sg := unix.Getresgid()
	if r == 0 || e == 0 || s == 0 {
		t.leak(fmt.Sprintf("uids %d %d %d", r, e, s))
	}
	if rg == 0 || eg == 0 || sg == 0 {
		t.leak(fmt.Sprintf("gids %d %d %d", rg, eg, sg))
	}
	if want := os.Getenv(ExpectedUser); want != "" && want != fmt.Sprintf("%d:%d", r, rg) {
		t.leak(fmt.Sprintf("uid:gid %d:%d where %s was applied", r, rg, printable(want)))
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return unknown("getgroups: %s", errno(err))
	}
	for _, g := range groups {
		if g != rg {
			t.leak(fmt.Sprintf("supplementary group %d", g))
		}
	}
	return t.result(fmt.Sprintf("uid %d gid %d", r, rg))
}

// becomeOther changes this thread alone: the raw system calls do not reach the other
// threads as the functions of the runtime would.
func becomeOther() Result {
	var t tried
	if os.Geteuid() == 0 {
		return leak("already root, which may become anybody")
	}
	keep := ^uintptr(0)
	call := func(what string, nr, a, b, c uintptr) {
		_, _, e := unix.RawSyscall(nr, a, b, c)
		var err error
		if e != 0 {
			err = e
		}
		t.attempt(what, err)
	}
	call("setresgid to 0", unix.SYS_SETRESGID, keep, 0, keep)
	call("setgroups to none", unix.SYS_SETGROUPS, 0, 0, 0)
	call("setresuid to 0", unix.SYS_SETRESUID, keep, 0, keep)
	call("setresuid to 1", unix.SYS_SETRESUID, keep, 1, keep)
	return t.result("refused")
}

// setuidPrograms are looked for in this order; --help ends each of them at once.
var setuidPrograms = []string{"/usr/bin/su", "/usr/bin/passwd", "/usr/bin/mount", "/usr/bin/chsh", "/usr/bin/newgrp", "/usr/bin/sudo", "/bin/su", "/bin/mount"}

// setuidProgram runs one and looks at its account in /proc while it is not yet
// waited for: a zombie still has its credentials.
func setuidProgram() Result {
	if os.Geteuid() == 0 {
		return leak("already root")
	}
	for _, path := range setuidPrograms {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || st.Mode&unix.S_ISUID == 0 || st.Uid == uint32(os.Geteuid()) {
			continue
		}
		null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
		if err != nil {
			return unknown("/dev/null: %s", errno(err))
		}
		defer null.Close()
		p, err := os.StartProcess(path, []string{path, "--help"}, &os.ProcAttr{Files: []*os.File{null, null, null}})
		if err != nil {
			return unknown("%s does not start: %s", path, errno(err))
		}
		uid, ok := owner(p.Pid)
		_ = p.Kill()
		_, _ = p.Wait()
		switch {
		case !ok:
			return unknown("the account of %s cannot be read", path)
		case uid != uint32(os.Geteuid()):
			return leak("%s ran as uid %d", path, uid)
		default:
			return sealed("%s ran as uid %d", path, uid)
		}
	}
	return notApplicable("no setuid program is here")
}

// userNamespace starts a child of this program in a user namespace of its own, with
// this account as root, and lets it mount there. That is power over the sandbox's
// kernel: file systems without a size, code that an account never reaches.
func userNamespace() Result {
	p, err := startChild(childMount, unix.CLONE_NEWUSER|unix.CLONE_NEWNS, nil)
	switch {
	case err != nil && (refused(err) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS)):
		return sealed("clone with CLONE_NEWUSER: %s", errno(err))
	case err != nil:
		return unknown("clone with CLONE_NEWUSER: %s", errno(err))
	}
	switch state, err := p.Wait(); {
	case err != nil:
		return unknown("wait for the child: %s", errno(err))
	case state.ExitCode() == childDid:
		return leak("root in a user namespace of its own, and mounted a file system there")
	default:
		return leak("a user namespace of its own, although without a mount")
	}
}

func noNewPrivs() Result {
	v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	switch {
	case err != nil:
		return unknown("prctl: %s", errno(err))
	case v != 1:
		return leak("not set")
	case gvisor():
		return notApplicable("gVisor always reports 1; a setuid program is tried instead")
	default:
		return sealed("set")
	}
}

func uidMap() Result {
	if gvisor() {
		return notApplicable("gVisor's accounts are its own; those of the host are read back outside")
	}
	if ownKernel() {
		return sealed("the accounts of a kernel that was started for this Terrarium alone")
	}
	data, err := read("/proc/self/uid_map")
	if err != nil {
		return unknown("/proc/self/uid_map: %s", errno(err))
	}
	f := strings.Fields(string(data))
	if slices.Equal(f, []string{"0", "0", "4294967295"}) {
		return leak("accounts are those of the host's kernel")
	}
	return sealed("%s", strings.Join(f, " "))
}
