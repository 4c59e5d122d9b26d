//go:build linux

package rootfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// Hostname is the name that the generated /etc/hosts and /etc/hostname carry. The
// wall should give the sandbox the same.
const Hostname = "terrarium"

// User is the account of the Sprout, written into the generated passwd and group.
type User struct {
	UID, GID uint32
	Name     string // also the name of the group
	Home     string // absolute path inside; a mount point of the skeleton
}

// check refuses what would be another line of passwd(5), or root.
func (u User) check() error {
	if u.UID == 0 || u.GID == 0 {
		return fault.New(fault.Invalid, "the account inside is %d:%d, and 0 is root", u.UID, u.GID)
	}
	if u.Name == "" || strings.ContainsAny(u.Name, ":/\n\x00") {
		return fault.New(fault.Invalid, "%q is no name of an account", u.Name)
	}
	if !filepath.IsAbs(u.Home) || filepath.Clean(u.Home) != u.Home || u.Home == "/" || strings.ContainsAny(u.Home, ":\n\x00") {
		return fault.New(fault.Invalid, "%q is no home directory inside", u.Home)
	}
	return nil
}

// Mount is a recursive, read-only bind of a directory of the host.
type Mount struct {
	Source string // on the host, without symbolic links
	Target string // inside
}

// Dir is an empty directory of the skeleton.
type Dir struct {
	Path string
	Mode fs.FileMode
}

// Mask is something that a mount would show and must not.
type Mask struct {
	Path string // inside
	Dir  bool   // hide under an empty read-only directory; otherwise under an empty file
}

// View is a root file system: plain data, safe to copy and to read concurrently.
// All paths inside are absolute and clean. A wall applies Mounts in their order
// (a parent comes before what lies below it) and Masks after all of them.
type View struct {
	Mounts []Mount
	Links  map[string]string // path inside -> target
	Files  map[string][]byte // path inside -> content, mode 0644
	Dirs   []Dir             // in an order in which they can be made
	Masks  []Mask
	Notes  []string // what a person may want to know about the view, one sentence each
}

// usrDirs are the directories of / that a merged-usr system keeps as links into
// /usr, and other systems as directories of their own.
var usrDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// skeletonDirs are always there: mount points of the wall, and directories that
// programs expect to exist. Order: parents first.
var skeletonDirs = []Dir{
	{"/.tendril", 0o700},
	{"/dev", 0o755},
	{"/etc", 0o755},
	{"/home", 0o755},
	{"/proc", 0o755},
	{"/root", 0o700},
	{"/run", 0o755},
	{"/sys", 0o755},
	{"/tmp", 0o777 | fs.ModeSticky},
	{"/usr", 0o755},
	{"/var", 0o755},
	{"/workspace", 0o755},
}

// usrMasks are directories below /usr that hold configuration or sources of the
// host instead of programs: npm, pip and others keep tokens in PREFIX/etc.
var usrMasks = []string{"/usr/etc", "/usr/local/etc", "/usr/src", "/usr/local/src"}

// usrCredentials are files below /usr in which tools with that prefix keep
// credentials. One that exists as a file is hidden.
var usrCredentials = []string{
	"/usr/pip.conf", "/usr/local/pip.conf",
	"/usr/lib/node_modules/npm/npmrc", "/usr/local/lib/node_modules/npm/npmrc",
	"/usr/local/cargo/credentials", "/usr/local/cargo/credentials.toml",
	"/usr/local/bundle/config",
	"/usr/share/maven/conf/settings.xml", "/usr/share/maven/ref/settings-docker.xml",
}

// HostView describes the view of this host's toolchain together with the listed
// directories, each shown under its own path. Without a listed directory it looks
// at a few dozen paths and scans nothing; each listed directory is scanned whole.
//
// A directory that may not be listed is a fault (invalid, or not-found) that names
// the directory, what was found in it, and what to do.
func HostView(dirs []string, user User) (View, error) {
	if err := user.check(); err != nil {
		return View{}, err
	}
	v := View{
		Links: map[string]string{"/var/tmp": "../tmp"},
		Files: map[string][]byte{"/.tendril/stoma": {}},
	}
	dirSet := map[string]fs.FileMode{}
	for _, d := range skeletonDirs {
		dirSet[d.Path] = d.Mode
	}
	addDir(dirSet, user.Home, 0o755)

	v.Mounts = append(v.Mounts, Mount{"/usr", "/usr"})
	for _, name := range usrDirs {
		path := "/" + name
		if target, err := os.Readlink(path); err == nil {
			v.Links[path] = target
		} else if isDir(path) {
			v.Mounts = append(v.Mounts, Mount{path, path})
			addDir(dirSet, path, 0o755)
		}
	}
	for _, path := range usrMasks {
		if isDir(path) {
			v.Masks = append(v.Masks, Mask{Path: path, Dir: true})
		}
	}
	for _, path := range usrCredentials {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && inView(path) {
			v.Masks = append(v.Masks, Mask{Path: path})
		}
	}
	addEtc(&v, dirSet, user)

	if err := addListed(&v, dirSet, dirs, user); err != nil {
		return View{}, err
	}

	for path, mode := range dirSet {
		v.Dirs = append(v.Dirs, Dir{path, mode})
	}
	slices.SortFunc(v.Dirs, func(a, b Dir) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(v.Mounts, func(a, b Mount) int { return strings.Compare(a.Target, b.Target) })
	slices.SortFunc(v.Masks, func(a, b Mask) int { return strings.Compare(a.Path, b.Path) })
	return v, nil
}

// addDir adds path and the parents it lacks, which are 0755.
func addDir(dirs map[string]fs.FileMode, path string, mode fs.FileMode) {
	for parent := filepath.Dir(path); parent != "/"; parent = filepath.Dir(parent) {
		if _, ok := dirs[parent]; !ok {
			dirs[parent] = 0o755
		}
	}
	if _, ok := dirs[path]; !ok {
		dirs[path] = mode
	}
}

// isDir reports whether path is a directory and not a link to one.
func isDir(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// inView reports whether path reaches its file without a symbolic link, so that a
// mask on it lands on the file that programs would open.
func inView(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	return err == nil && real == path
}

// within reports whether path is dir or lies below it. Both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
