//go:build linux

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// harmlessDevices is what stays of a /dev that is the Terrarium's own: what moby
// gives every container.
var harmlessDevices = []string{
	"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "mqueue", "fd", "stdin", "stdout", "stderr",
}

// removeDevices removes every other entry of dev. It is for a /dev that the wall
// made for this Terrarium: gVisor puts fuse and net/tun there for everybody.
func removeDevices(dev string) error {
	entries, err := os.ReadDir(dev)
	if err != nil {
		return fmt.Errorf("remove devices: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !slices.Contains(harmlessDevices, e.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(dev, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove devices: %w", err)
	}
	return nil
}

// enterRoot makes this process, and so every command, chrooted into a second view
// of the same root. Nothing else changes for them, but a chrooted process cannot
// make a user namespace (user_namespaces(7)), in which it would be root and could
// mount: so no Sprout becomes root even inside. Getting out of a chroot takes
// CAP_SYS_CHROOT, which nobody has afterwards.
func enterRoot(scratch string) error {
	view := filepath.Join(scratch, "root")
	if err := os.Mkdir(view, 0o755); err != nil {
		return fmt.Errorf("make a view of the root: %w", err)
	}
	if err := unix.Mount("/", view, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make a view of the root: %w", err)
	}
	if err := unix.Chroot(view); err != nil {
		return fmt.Errorf("enter the view of the root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter the view of the root: %w", err)
	}
	return nil
}
