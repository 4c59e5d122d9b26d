//go:build linux

package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// maxListed bounds how many directories may be listed.
const maxListed = 64

// tooWide are directories that hold more than a toolchain on every system, which
// may not be listed themselves.
var tooWide = []string{
	"/", "/boot", "/etc", "/home", "/lost+found", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/var",
	"/var/lib", "/var/cache", "/run/user", "/Users",
}

// reserved are directories that the wall makes itself; nothing below them can be
// shown.
var reserved = []string{"/.tendril", "/dev", "/proc", "/sys", "/tmp", "/var/tmp", "/workspace"}

// credentialDirs are directory names that hold credentials by their purpose,
// wherever they are.
var credentialDirs = []string{
	".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store", ".mozilla", ".thunderbird",
}

// settingsDirs are directory names that may not be listed themselves, because
// several tools keep settings and tokens side by side in them.
var settingsDirs = []string{".config", ".local", ".docker", "share", "keyrings", "gcloud", "gh", "google-chrome", "chromium"}

// addListed checks, scans and adds the directories that the Botanist listed.
func addListed(v *View, dirs map[string]fs.FileMode, listed []string, user User) error {
	if len(listed) == 0 {
		return nil
	}
	if len(listed) > maxListed {
		return fault.New(fault.Invalid, "toolchain lists %d directories, more than %d", len(listed), maxListed)
	}
	private := privateDirs()
	sorted := slices.Sorted(slices.Values(listed)) // a parent comes before what it contains
	var shown []string
	for _, dir := range sorted {
		if err := checkListed(dir, private, user); err != nil {
			return err
		}
		if slices.ContainsFunc(shown, func(s string) bool { return within(dir, s) }) {
			continue // its parent shows it
		}
		if within(dir, "/usr") {
			if i := slices.IndexFunc(v.Masks, func(m Mask) bool { return within(dir, m.Path) }); i >= 0 {
				return fault.New(fault.Invalid, "toolchain directory %s cannot be shown: %s stays out of every view", dir, v.Masks[i].Path).
					WithHint("move what is needed to a directory outside of it")
			}
			v.Notes = append(v.Notes, fmt.Sprintf("toolchain directory %s need not be listed: /usr is always shown", dir))
			continue
		}
		hidden, err := scan(dir, scanLimits)
		if err != nil {
			return err
		}
		for _, h := range hidden {
			v.Masks = append(v.Masks, Mask{Path: h.dir, Dir: true})
			v.Notes = append(v.Notes, fmt.Sprintf("%s is hidden: %s %s", h.dir, h.path, h.what))
		}
		shown = append(shown, dir)
		v.Mounts = append(v.Mounts, Mount{dir, dir})
		addDir(dirs, dir, 0o755)
	}
	// The parents of a shown directory are on the way of the Sprout: /root has to
	// let it through when something below is shown.
	for path := range dirs {
		if slices.ContainsFunc(shown, func(s string) bool { return within(s, path) }) {
			dirs[path] = 0o755
		}
	}
	return nil
}

// checkListed refuses a directory by its path alone, before anything in it is read.
func checkListed(dir string, private []string, user User) error {
	refuse := func(format string, args ...any) *fault.Error {
		return fault.New(fault.Invalid, "toolchain directory %q %s", dir, fmt.Sprintf(format, args...))
	}
	if !filepath.IsAbs(dir) {
		return refuse("is not an absolute path").WithHint("write it out in full, without ~ and variables")
	}
	if filepath.Clean(dir) != dir || strings.ContainsAny(dir, "\x00\n") {
		return refuse("is not a clean path").WithHint("list %s", filepath.Clean(dir))
	}
	if slices.Contains(tooWide, dir) || dir == "/usr" {
		return refuse("holds more than a toolchain").WithHint("list the directory of the tool itself")
	}
	for _, r := range reserved {
		if within(dir, r) {
			return refuse("lies in %s, which is made new in every Terrarium", r).WithHint("install the tool somewhere else")
		}
	}
	if within(dir, user.Home) || within(user.Home, dir) {
		return refuse("collides with %s, the home directory inside", user.Home)
	}
	if filepath.Dir(dir) == "/home" {
		return refuse("is a home directory").WithHint("list the directory of the tool itself, such as %s/.cargo", dir)
	}
	for _, p := range private {
		if within(p, dir) {
			return refuse("holds %s, which stays on the host", p).WithHint("list the directory of the tool itself")
		}
	}
	for _, p := range controlDirs() {
		if within(dir, p) {
			return refuse("lies in %s, the control plane", p)
		}
	}
	for name := range strings.SplitSeq(dir[1:], "/") {
		if slices.Contains(credentialDirs, name) {
			return refuse("lies in a directory for credentials (%s)", name).WithHint("list the directory of the tool itself")
		}
	}
	if slices.Contains(settingsDirs, filepath.Base(dir)) {
		return refuse("holds the settings of more than a toolchain").WithHint("list the directory of the tool itself")
	}

	var st unix.Stat_t
	switch err := unix.Lstat(dir, &st); {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return fault.New(fault.NotFound, "toolchain directory %q does not exist", dir).WithHint("remove it from toolchain, or install the tool")
	case err != nil:
		return refuse("cannot be read: %v", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return refuse("cannot be resolved: %v", err)
	}
	if real != dir {
		return refuse("is reached through a symbolic link").WithHint("list %s", real)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return refuse("is not a directory").WithHint("list %s", filepath.Dir(dir))
	}
	if st.Mode&0o002 != 0 {
		return refuse("can be written by everybody on this host").WithHint("chmod o-w %s", dir)
	}
	return nil
}

// privateDirs returns the directories of this host that no listed directory may
// contain: the homes of people, and the control plane.
func privateDirs() []string {
	private := controlDirs()
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) && home != "/" {
		private = append(private, filepath.Clean(home))
	}
	data, _ := readPublic("/etc/passwd")
	return append(private, homes(data)...)
}

// homes returns the home directories of root and of the accounts of people in a
// passwd file (passwd(5)). Lines that are not understood are skipped: the list
// narrows what may be listed, and the fixed rules stand without it.
func homes(passwd []byte) []string {
	var out []string
	for line := range strings.Lines(string(passwd)) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(field) != 7 {
			continue
		}
		uid, err := strconv.ParseUint(field[2], 10, 32)
		if err != nil || (uid != 0 && uid < 1000) || uid == 65534 {
			continue
		}
		if home := filepath.Clean(field[5]); filepath.IsAbs(home) && home != "/" && home != "/nonexistent" {
			out = append(out, home)
		}
	}
	return out
}

// controlDirs returns where grants, credentials and state of the Stem are kept.
func controlDirs() []string {
	out := []string{"/etc/tendril", "/var/lib/tendril", "/run/tendril"}
	add := func(base string, below ...string) {
		if filepath.IsAbs(base) {
			out = append(out, filepath.Join(append([]string{base}, below...)...))
		}
	}
	add(os.Getenv("XDG_CONFIG_HOME"), "tendril")
	add(os.Getenv("XDG_STATE_HOME"), "tendril")
	add(os.Getenv("XDG_RUNTIME_DIR"), "tendril")
	if home, err := os.UserHomeDir(); err == nil {
		add(home, ".config", "tendril")
		add(home, ".local", "state", "tendril")
	}
	return out
}
