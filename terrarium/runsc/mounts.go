//go:build linux

package runsc

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"tendril/fault"
	"tendril/rootfs"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// readBackMounts refuses a wall that shows other directories of the host than the
// view, or shows one writable. The gofer is the only process that reaches files of
// the host by name, so its mount namespace is all that there is to see.
func readBackMounts(goferPID int, view rootfs.View, stomaPath string) error {
	dir := "/proc/" + strconv.Itoa(goferPID)
	gofer, err := confine.MountsOf(dir + "/mountinfo")
	if err != nil {
		return err
	}
	host, err := confine.MountsOf("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	shown := map[string]string{terrarium.StomaInside: stomaPath} // what is mounted where, and from where
	for _, m := range view.Mounts {
		shown[m.Target] = m.Source
	}
	var masks []string
	for _, m := range view.Masks {
		if !m.Dir { // a masked directory is a file system of the sentry's own
			masks = append(masks, m.Path)
		}
	}
	if err := compareMounts(gofer, host, shown, masks); err != nil {
		return err
	}
	for target, source := range shown {
		is, err := os.Stat(dir + "/root" + target)
		if err != nil {
			return fault.New(fault.BrokenBoundary, "reading back what the wall shows at %s: %w", target, err)
		}
		want, err := os.Stat(source)
		if err != nil {
			return fault.New(fault.BrokenBoundary, "reading back what the wall shows at %s: %w", target, err)
		}
		if !os.SameFile(is, want) {
			return fault.New(fault.BrokenBoundary, "the wall shows something else than %s at %s", source, target).WithRule(sameView)
		}
	}
	return nil
}

const sameView = "the view of the host is what was listed, and read-only"

// compareMounts wants everything that is shown, the masks, and nothing else but what
// the host itself has mounted below a directory that is shown. The root is an image
// that the sentry mounts, so there is none here.
func compareMounts(gofer, host []confine.MountPoint, shown map[string]string, masks []string) error {
	missing := map[string]bool{}
	for target := range shown {
		missing[target] = true
	}
	for _, mask := range masks {
		missing[mask] = true
	}
	for _, m := range gofer {
		_, isShown := shown[m.Target]
		wanted := isShown || slices.Contains(masks, m.Target)
		switch {
		case !wanted && !belongs(m.Target, host, shown):
			return fault.New(fault.BrokenBoundary, "the wall shows %s, which is not part of its view of the host", m.Target).WithRule(sameView)
		case wanted && !m.ReadOnly:
			return fault.New(fault.BrokenBoundary, "the wall's %s is writable", m.Target).WithRule(sameView)
		}
		delete(missing, m.Target)
	}
	for target := range missing {
		return fault.New(fault.BrokenBoundary, "the wall does not mount %s", target).WithRule(sameView)
	}
	return nil
}

// belongs reports whether a mount came along with the directory that it lies in.
func belongs(target string, host []confine.MountPoint, shown map[string]string) bool {
	for inside, source := range shown {
		if rest, ok := strings.CutPrefix(target, inside+"/"); ok {
			if slices.ContainsFunc(host, func(m confine.MountPoint) bool { return m.Target == source+"/"+rest }) {
				return true
			}
		}
	}
	return false
}
