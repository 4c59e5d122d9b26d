//go:build linux

package rootfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is where programs are looked for inside.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Absence explains why a command was not found inside.
type Absence struct {
	HostPath string   // where the caller would have run it from; "" if not there either
	Visible  bool     // it is shown inside under that path: the search path inside lacks its directory
	Dirs     []string // what the Botanist would list to have it
	Key      string   // Dirs as a line of tendril.yaml, "" if there is nothing to list
}

// Missing looks up command as the caller's PATH would on this host, follows its
// links, and says whether it is shown inside and otherwise which directories have
// to be listed. It runs nothing. Listing them is still subject to [HostView]'s
// rules.
func (v View) Missing(command, hostPath string) Absence {
	found := lookPath(command, hostPath)
	if found == "" {
		return Absence{}
	}
	a := Absence{HostPath: found, Visible: true}
	for _, path := range links(found) {
		if v.shows(path) {
			continue
		}
		a.Visible = false
		if dir := toolDir(path); dir != "" && !slices.Contains(a.Dirs, dir) {
			a.Dirs = append(a.Dirs, dir)
		}
	}
	if len(a.Dirs) > 0 {
		quoted := make([]string, len(a.Dirs))
		for i, d := range a.Dirs {
			quoted[i] = yamlString(d)
		}
		a.Key = fmt.Sprintf("toolchain: [%s]", strings.Join(quoted, ", "))
	}
	return a
}

// Path returns the search path for programs inside: the directories of the caller's
// PATH that are shown, in the caller's order, then the usual ones. It names no
// directory that is not shown.
func (v View) Path(hostPath string) string {
	var out []string
	for _, dir := range append(filepath.SplitList(hostPath), filepath.SplitList(defaultPath)...) {
		if filepath.IsAbs(dir) && filepath.Clean(dir) == dir && !slices.Contains(out, dir) &&
			!strings.ContainsAny(dir, "\n\x00") && (v.shows(dir) || slices.Contains(filepath.SplitList(defaultPath), dir)) {
			out = append(out, dir)
		}
	}
	return strings.Join(out, ":")
}

// shows reports whether the host's path is the same file inside.
func (v View) shows(path string) bool {
	for link, target := range v.Links {
		if strings.HasPrefix(path, link+"/") {
			path = filepath.Join(filepath.Dir(link), target) + path[len(link):]
			break
		}
	}
	for _, m := range v.Masks {
		if within(path, m.Path) {
			return false
		}
	}
	for _, m := range v.Mounts {
		if within(path, m.Target) && m.Source == m.Target {
			return true
		}
	}
	return false
}

// maxLinks is the kernel's own bound on the links of one path.
const maxLinks = 40

// links returns path and each path that its symbolic links lead through. A
// directory that is a link is resolved in place.
func links(path string) []string {
	var out []string
	for range maxLinks {
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			path = filepath.Join(dir, filepath.Base(path))
		}
		out = append(out, path)
		target, err := os.Readlink(path)
		if err != nil {
			return out
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = filepath.Clean(target)
	}
	return out
}

// toolDir guesses the directory that holds a tool, from one of its programs: the
// parent of a directory for programs, unless that holds more than the tool.
func toolDir(path string) string {
	dir := filepath.Dir(path)
	parent := filepath.Dir(dir)
	switch filepath.Base(dir) {
	case "bin", "sbin", "shims", ".bin":
		wide := slices.Concat(tooWide, privateDirs(), []string{"/usr", "/usr/local"})
		if !slices.Contains(wide, parent) && filepath.Base(parent) != ".local" {
			return parent
		}
	}
	if slices.Contains(tooWide, dir) || dir == "/" {
		return ""
	}
	return dir
}

// lookPath finds command as execvp(3) would, in absolute directories only.
func lookPath(command, hostPath string) string {
	if command == "" || strings.ContainsRune(command, 0) {
		return ""
	}
	if strings.Contains(command, "/") {
		if filepath.IsAbs(command) && isProgram(command) {
			return filepath.Clean(command)
		}
		return ""
	}
	for _, dir := range filepath.SplitList(hostPath) {
		if path := filepath.Join(dir, command); filepath.IsAbs(dir) && isProgram(path) {
			return path
		}
	}
	return ""
}

func isProgram(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0
}

// yamlString writes s plain where YAML's flow style allows it, and quoted otherwise.
func yamlString(s string) string {
	for _, r := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-@", r) {
			return fmt.Sprintf("%q", s)
		}
	}
	return s
}
