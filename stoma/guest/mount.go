//go:build linux

package guest

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// overlaid is the overlay at the place where the Sprout works, as open
// directories. The Sprout cannot reach upper and lower by any path.
type overlaid struct {
	lower, upper, merged int
	scratch              int
	target               string // the path of merged; the Sprout cannot put anything else there
}

// mountWorkspace mounts the overlay. Its layers are accessed with the privileges
// that this process has now, which it gives up afterwards.
func mountWorkspace(o overlay, sprout identity) (*overlaid, error) {
	// The Sprout meets what is in scratch only where it is mounted.
	if err := os.Chmod(o.scratch, 0o700); err != nil {
		return nil, fmt.Errorf("close the scratch file system: %w", err)
	}
	upper, work := o.scratch+"/upper", o.scratch+"/work"
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o700); err != nil { // a scratch may hold what a run left
			return nil, fmt.Errorf("prepare the workspace: %w", err)
		}
	}
	// The root of the workspace has the owner and mode of its upper layer.
	if err := errors.Join(os.Chmod(upper, 0o755), os.Chown(upper, sprout.uid, sprout.gid)); err != nil {
		return nil, fmt.Errorf("prepare the workspace: %w", err)
	}
	layers := "lowerdir=" + o.lower + ",upperdir=" + upper + ",workdir=" + work
	// A redirected directory or an entry without data would change the workspace
	// without appearing in the upper layer. A kernel that does not know these
	// options does not do it either.
	err := unix.Mount("workspace", o.target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, layers+",redirect_dir=off,metacopy=off")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("workspace", o.target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, layers)
	}
	if err != nil {
		return nil, fmt.Errorf("mount the workspace at %s: %w", o.target, err)
	}
	w := &overlaid{target: o.target}
	for _, d := range []struct {
		fd   *int
		path string
	}{{&w.lower, o.lower}, {&w.upper, upper}, {&w.merged, o.target}, {&w.scratch, o.scratch}} {
		fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", d.path, err)
		}
		*d.fd = fd
	}
	return w, nil
}

// mountWritable puts a directory of scratch where target is, for the Sprout to
// write to, with target's mode. So what is written there counts against the
// size of scratch.
func mountWritable(scratch, target string, sprout identity) error {
	var st unix.Stat_t
	if err := unix.Stat(target, &st); err != nil {
		return fmt.Errorf("make %s writable: %w", target, err)
	}
	dir, err := os.MkdirTemp(scratch, "writable-")
	if err != nil {
		return fmt.Errorf("make %s writable: %w", target, err)
	}
	err = errors.Join(
		os.Chown(dir, sprout.uid, sprout.gid),
		unix.Chmod(dir, st.Mode&0o7777),
		unix.Mount(dir, target, "", unix.MS_BIND, ""),
	)
	if err != nil {
		return fmt.Errorf("make %s writable: %w", target, err)
	}
	// A bind takes its flags from a second call.
	err = unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV, "")
	if err != nil {
		return fmt.Errorf("make %s writable: %w", target, err)
	}
	return nil
}
