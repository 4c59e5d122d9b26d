//go:build linux

// Command cgroup2 is the first process of a guest that is a host with control groups of
// version 2 alone: it mounts what a host has, runs the commands of its second drive, one a
// line, and restarts the machine.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Where the second drive is.
const place = "/opt/tests"

func main() {
	if err := run(); err != nil {
		fmt.Println("cgroup2:", err)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

func run() error {
	if err := prepare(); err != nil {
		return err
	}
	commands, err := os.ReadFile(place + "/commands")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(commands)) {
		status, err := shell(strings.TrimSpace(line))
		if err != nil {
			return err
		}
		fmt.Printf("### %s: exit status %d\n", strings.TrimSpace(line), status.ExitStatus())
	}
	return nil
}

// shell runs a command, and reaps whatever ends meanwhile, as a first process has to.
func shell(command string) (syscall.WaitStatus, error) {
	child, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", command}, &syscall.ProcAttr{
		Dir: "/tmp", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "TMPDIR=/tmp"},
		Files: []uintptr{0, 1, 1},
	})
	if err != nil {
		return 0, err
	}
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || ended == child:
			return status, err
		}
	}
}

func prepare() error {
	for _, m := range []struct{ kind, dir string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.kind, err)
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	// The root is an image; what is written to it stays in memory.
	for _, dir := range []string{"/lower", "/upper"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	steps := []func() error{
		func() error { return unix.Mount("/dev/vda", "/lower", "erofs", unix.MS_RDONLY, "") },
		func() error { return unix.Mount("tmpfs", "/upper", "tmpfs", 0, "") },
		func() error { return errors.Join(os.Mkdir("/upper/upper", 0o755), os.Mkdir("/upper/work", 0o755)) },
		func() error {
			return unix.Mount("root", "/root", "overlay", 0, "lowerdir=/lower,upperdir=/upper/upper,workdir=/upper/work")
		},
		func() error { return os.MkdirAll("/root"+place, 0o755) },
		func() error { return unix.Mount("/dev/vdb", "/root"+place, "erofs", unix.MS_RDONLY, "") },
		func() error { return unix.Mount("/proc", "/root/proc", "", unix.MS_MOVE, "") },
		func() error { return unix.Mount("/sys", "/root/sys", "", unix.MS_MOVE, "") },
		func() error { return unix.Mount("/dev", "/root/dev", "", unix.MS_MOVE, "") },
		func() error { return os.Chdir("/root") },
		func() error { return unix.Mount(".", "/", "", unix.MS_MOVE, "") },
		func() error { return unix.Chroot(".") },
		func() error { return os.Chdir("/") },
		func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777") },
		func() error { return unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "") },
		// As a host's first process does: what runs is in a group of its own, and the
		// controllers are there for others beside it.
		func() error {
			return os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0)
		},
		func() error { return os.Mkdir("/sys/fs/cgroup/init", 0o755) },
		func() error { return os.WriteFile("/sys/fs/cgroup/init/cgroup.procs", []byte("0"), 0) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func loadModules() error {
	list, err := os.ReadFile("/modules/list")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		f, err := os.Open("/modules/" + name + ".ko")
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		if errors.Is(err, syscall.EEXIST) {
			err = nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}
