package source

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// HardenProcess keeps the memory of this process, and of those that it starts, out of
// core dumps. It is for the Stem, before it reads a secret.
//
// The limit is 1 byte and not 0: of a file both mean none, but of a program that takes
// core dumps (systemd-coredump, apport) the kernel ignores every limit but 1 (Linux
// fs/coredump.c, core(5)). PR_SET_DUMPABLE is left alone: a process without it cannot
// write the uid map of a child (its /proc belongs to root), which is how an ordinary
// user's wall is made; and it would keep out only who has the Stem's own uid.
func HardenProcess() error {
	none := unix.Rlimit{Cur: 1, Max: 1}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &none); err != nil {
		return fmt.Errorf("limit core dumps: %w", err)
	}
	return nil
}
