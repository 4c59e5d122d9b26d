//go:build linux

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// composer puts a root together out of mounts: a directory below which nothing is laid is
// mounted whole, any other is made, and so is what it holds.
type composer struct{ stoma.HostRoot }

// compose fills a directory, which is there.
func (c composer) compose(dir string) error {
	names := c.below(dir)
	if !slices.Contains(c.Bare, dir) {
		entries, err := os.ReadDir(dir)
		if err != nil && !absent(err) && !errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("list %s of the host: %w", dir, err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := c.place(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// below names what lies in dir on the way to what is laid or bare.
func (c composer) below(dir string) []string {
	var names []string
	for _, path := range c.paths() {
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, name)
		}
	}
	return names
}

func (c composer) paths() []string {
	paths := append([]string{"/proc"}, c.Bare...)
	for _, l := range c.Laid {
		paths = append(paths, l.Target)
	}
	return paths
}

// place makes one path of the root.
func (c composer) place(path string) error {
	if i := slices.IndexFunc(c.Laid, func(l stoma.Laid) bool { return l.Target == path }); i >= 0 {
		return c.lay(c.Laid[i])
	}
	if path == "/proc" {
		return os.Mkdir(c.Dir+path, 0o755)
	}
	if slices.Contains(c.Bare, path) || len(c.below(path)) > 0 {
		if err := os.Mkdir(c.Dir+path, 0o755); err != nil {
			return err
		}
		return c.compose(path)
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return c.unless(absent(err), path, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		target, err := os.Readlink(path)
		if err != nil {
			return c.unless(absent(err), path, err)
		}
		return os.Symlink(target, c.Dir+path)
	}
	err := c.bind(path, path, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	return c.unless(absent(err), path, err)
}

func (c composer) lay(l stoma.Laid) error {
	info, err := os.Stat(l.Source)
	if err == nil {
		err = c.bind(l.Source, l.Target, info.IsDir())
	}
	if err == nil && !l.Writable {
		err = readOnly(c.Dir + l.Target)
	}
	return c.unless(false, l.Source, err)
}

// bind shows a file or directory of the host, with all that is mounted below it.
func (c composer) bind(source, target string, dir bool) error {
	at := c.Dir + target
	var err error
	if dir {
		err = os.Mkdir(at, 0o755)
	} else {
		err = os.WriteFile(at, nil, 0o644)
	}
	if err != nil {
		return err
	}
	return unix.Mount(source, at, "", unix.MS_BIND|unix.MS_REC, "")
}

// absent reports whether err is that of a file that has gone, or that this account does not
// reach anyway.
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES)
}

// unless is the error of showing path, if there is one that matters.
func (c composer) unless(harmless bool, path string, err error) error {
	if err == nil || harmless {
		return nil
	}
	return fmt.Errorf("show %s: %w", path, err)
}
