package substrate

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// CheckWritable refuses a repository that no Fruit could be brought into. It is
// asked before the work; that it still is so afterwards nobody can promise.
func (r *Repository) CheckWritable() error {
	for _, name := range []string{"objects", "objects/pack", "refs", "refs/heads", "refs/heads/" + BranchOf("")} {
		err := unix.Faccessat(int(r.common.dir.Fd()), name, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		if err != nil && !absent(err) { // what is absent is made
			return fault.New(fault.Unavailable, "the result could not be brought into %s: %w", r.where(), &os.PathError{Op: "write", Path: r.CommonDir + "/" + name, Err: err}).
				WithHint("make it writable for this account, or work on a clone of it")
		}
	}
	// Any run's branch will do: what is in its way is in the way of all of them.
	if err := r.checkNewRef("refs/heads/" + BranchOf("0")); err != nil {
		var f *fault.Error
		if !errors.As(err, &f) || f.Hint == "" {
			err = fault.New(fault.Invalid, "the result could not get a branch in %s: %w", r.where(), err).
				WithHint("see what git pack-refs --all and git fsck say there, or work on a clone of it")
		}
		return err
	}
	return nil
}
