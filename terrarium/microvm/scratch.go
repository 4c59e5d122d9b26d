//go:build linux

package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"tendril/fault"
)

// scratchBlock is the size of a block of the scratch file system.
const scratchBlock = 4096

// formatTime bounds the making of a file system, which writes a few megabytes at most.
const formatTime = time.Minute

// formatter finds the program that makes file systems.
func formatter() (string, error) {
	for _, name := range []string{"mke2fs", "/usr/sbin/mke2fs", "/sbin/mke2fs"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fault.New(fault.Unavailable, "mke2fs is not here, which makes a machine's scratch drive").
		WithHint("install it: `apt-get install e2fsprogs`")
}

// makeScratch makes the drive on which everything lies that the Sprout writes: a file of
// the size of the disk limit, of which the host's disk holds what was written. It has a
// journal, so that what is on it can be read when the machine ended without a word. It is
// made before the machine exists and never read by the host afterwards.
func makeScratch(ctx context.Context, format, path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size/scratchBlock*scratchBlock), f.Close()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, formatTime, errors.New("it took too long"))
	defer cancel()
	cmd := exec.CommandContext(ctx, format, "-q", "-F", "-t", "ext4", "-b", fmt.Sprint(scratchBlock), "-m", "0", "-J", "size=4",
		"-O", "^resize_inode", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0", path)
	cmd.Env = []string{"MKE2FS_CONFIG=/dev/null", "MKE2FS_SYNC=0"} // no setting of the host's changes it
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fault.New(fault.Unavailable, "making the scratch file system with %s: %w (it said %q)", format, errors.Join(err, context.Cause(ctx)), said.Bytes())
	}
	return nil
}
