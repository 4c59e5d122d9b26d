//go:build linux

package runsc

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"tendril/fault"
	"tendril/rootfs"
	"tendril/terrarium"
)

// mountPoint is one line of /proc/PID/mountinfo.
type mountPoint struct {
	target   string
	readonly bool
}

// readBackMounts refuses a wall that shows other directories of the host than the
// view, or shows one writable. The gofer is the only process that reaches files of
// the host by name, so its mount namespace is all that there is to see.
func readBackMounts(goferPID int, view rootfs.View, stomaPath string) error {
	dir := "/proc/" + strconv.Itoa(goferPID)
	gofer, err := mountsOf(dir + "/mountinfo")
	if err != nil {
		return err
	}
	host, err := mountsOf("/proc/self/mountinfo")
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
func compareMounts(gofer, host []mountPoint, shown map[string]string, masks []string) error {
	missing := map[string]bool{}
	for target := range shown {
		missing[target] = true
	}
	for _, mask := range masks {
		missing[mask] = true
	}
	for _, m := range gofer {
		_, isShown := shown[m.target]
		wanted := isShown || slices.Contains(masks, m.target)
		switch {
		case !wanted && !belongs(m.target, host, shown):
			return fault.New(fault.BrokenBoundary, "the wall shows %s, which is not part of its view of the host", m.target).WithRule(sameView)
		case wanted && !m.readonly:
			return fault.New(fault.BrokenBoundary, "the wall's %s is writable", m.target).WithRule(sameView)
		}
		delete(missing, m.target)
	}
	for target := range missing {
		return fault.New(fault.BrokenBoundary, "the wall does not mount %s", target).WithRule(sameView)
	}
	return nil
}

// belongs reports whether a mount came along with the directory that it lies in.
func belongs(target string, host []mountPoint, shown map[string]string) bool {
	for inside, source := range shown {
		if rest, ok := strings.CutPrefix(target, inside+"/"); ok {
			if slices.ContainsFunc(host, func(m mountPoint) bool { return m.target == source+"/"+rest }) {
				return true
			}
		}
	}
	return false
}

func mountsOf(path string) ([]mountPoint, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.BrokenBoundary, "reading back the wall's mounts: %w", err)
	}
	defer f.Close()
	return parseMounts(f)
}

// parseMounts reads proc_pid_mountinfo(5): the fifth field is the mount point, the
// sixth its options.
func parseMounts(r io.Reader) ([]mountPoint, error) {
	var list []mountPoint
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			return nil, fault.New(fault.BrokenBoundary, "reading back the wall's mounts: %q is no mount", lines.Text())
		}
		list = append(list, mountPoint{unescape(fields[4]), slices.Contains(strings.Split(fields[5], ","), "ro")})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading back the wall's mounts: %w", err)
	}
	return list, nil
}

// unescape undoes what the kernel does to blanks, newlines and backslashes in paths.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}
