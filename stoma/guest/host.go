//go:build linux

package guest

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// hostRootFD is where a run on the host itself is told its root.
const hostRootFD = 3

// Host runs `stoma host` with the arguments that follow host, and returns its exit status.
// It is `stoma init --plain` on the host itself: its account is that of whoever starts it,
// who reaches all of the host, and nothing here is meant to keep it from that. It waits
// until it is told what to make its root of.
func Host(args []string) int { return report(runHost(args)) }

func runHost(args []string) error {
	cfg, err := parseFlags(args)
	if err != nil {
		return err
	}
	if cfg.plain == "" || cfg.uid != 0 {
		return errors.New("host needs --plain, and goes without --user: the account is whoever starts it")
	}
	if os.Getpid() != 1 {
		return errors.New("host has to be PID 1 of its PID namespace, because it ends every process that it can see")
	}
	cfg.uid, cfg.gid = os.Getuid(), os.Getgid()
	order := os.NewFile(hostRootFD, "order")
	fields, err := stoma.ReadMessage(bufio.NewReader(order), stoma.MaxHeader)
	if err != nil {
		return fmt.Errorf("read what to make the root of: %w", err)
	}
	root, err := stoma.ParseHostRoot(fields)
	if err := errors.Join(err, order.Close()); err != nil {
		return fmt.Errorf("read what to make the root of: %w", err)
	}
	if err := enterHostRoot(root); err != nil {
		return err
	}
	// Its groups stay, as its account does.
	return begin(cfg, func(identity) error { return dropCapabilities(0) })
}

// enterHostRoot makes the root and enters it.
func enterHostRoot(r stoma.HostRoot) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	if err := unix.Mount("tmpfs", r.Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=16m"); err != nil {
		return fmt.Errorf("make a root at %s: %w", r.Dir, err)
	}
	if err := (composer{r}).compose("/"); err != nil {
		return err
	}
	if err := unix.Mount("proc", r.Dir+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc of a PID namespace of our own: %w", err)
	}
	// What is only in this root would be gone with it: nobody is to write it.
	if err := readOnly(r.Dir); err != nil {
		return err
	}
	if err := unix.Chdir(r.Dir); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	// The old root lands on top of the new one, and goes (pivot_root(2)).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return unix.Chdir("/")
}

// readOnly adds to what a mount's flags are; some of those of an ordinary user cannot be
// taken away.
func readOnly(path string) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	return nil
}
