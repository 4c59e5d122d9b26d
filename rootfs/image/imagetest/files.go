//go:build linux

package imagetest

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// files are what an image is made of, by the path inside.
type files struct {
	list map[string]file
	env  []string
}

type file struct {
	source string // on the host
	mode   fs.FileMode
	size   int64
	time   time.Time
	target string // of a symbolic link
	inode  inode  // of a file with several names
}

type inode struct{ device, number uint64 }

func (f *files) sorted() []string { return slices.Sorted(maps.Keys(f.list)) }

// addDir adds a directory, or link to one, of the host without what is in it.
func (f *files) addDir(path string) {
	if _, err := f.one(path, path); err != nil {
		f.list[path] = file{mode: fs.ModeDir | 0o755} // the image has it anyhow
	}
}

// one adds a path of the host, and the directories that lead to it, and returns what
// it is.
func (f *files) one(source, inside string) (file, error) {
	if e, ok := f.list[inside]; ok {
		return e, nil
	}
	info, err := os.Lstat(source)
	if err != nil {
		return file{}, err
	}
	e := file{source: source, mode: info.Mode(), time: info.ModTime()}
	switch info.Mode().Type() {
	case fs.ModeDir:
		e.time = time.Time{} // of /tmp it changes all the time, and no test is about it
	case 0:
		e.size = info.Size()
		if st := info.Sys().(*syscall.Stat_t); st.Nlink > 1 {
			e.inode = inode{uint64(st.Dev), st.Ino}
		}
	case fs.ModeSymlink:
		if e.target, err = os.Readlink(source); err != nil {
			return file{}, err
		}
	}
	f.list[inside] = e
	for up := filepath.Dir(inside); up != "/"; up = filepath.Dir(up) {
		if _, ok := f.list[up]; !ok {
			f.list[up] = file{mode: fs.ModeDir | 0o755}
		}
	}
	return e, nil
}

// add adds a file of the host under its own path, and what a link leads to. Directories
// that are links are those of the root, which are there.
func (f *files) add(path string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil // a package lists what a later one moved
	}
	path = filepath.Join(dir, filepath.Base(path))
	e, err := f.one(path, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || e.target == "" {
		return err
	}
	if !filepath.IsAbs(e.target) {
		return f.add(filepath.Join(dir, e.target))
	}
	return f.add(e.target)
}

// addAll adds a path with everything below it.
func (f *files) addAll(path string, skip func(string, fs.DirEntry) bool) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil // not every host has it
	}
	if real != path {
		return f.add(path)
	}
	return f.addTree(path, path, skip)
}

func (f *files) addTree(source, inside string, skip func(string, fs.DirEntry) bool) error {
	return filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case skip != nil && skip(p, d):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.Type() != 0 && d.Type() != fs.ModeDir && d.Type() != fs.ModeSymlink:
			return nil
		}
		_, err = f.one(p, inside+strings.TrimPrefix(p, source))
		return err
	})
}

// addLibraries adds the shared libraries of all programs, and those that are opened at
// run time by the C library.
func (f *files) addLibraries() error {
	dirs := []string{"/usr/lib", "/usr/lib64", "/lib", "/lib64"}
	for _, pattern := range []string{"/usr/lib/*-linux-gnu*", "/lib/*-linux-gnu*"} {
		found, _ := filepath.Glob(pattern)
		dirs = append(found, dirs...)
	}
	queue := f.sorted()
	for _, name := range []string{"libgcc_s.so.1"} {
		queue = append(queue, search(dirs, name)...)
	}
	for seen := map[string]bool{}; len(queue) > 0; queue = queue[1:] {
		path := queue[0]
		if seen[path] {
			continue
		}
		seen[path] = true
		if err := f.add(path); err != nil {
			return err
		}
		if e := f.list[path]; e.source != "" && e.mode.IsRegular() && e.mode&0o444 != 0 {
			queue = append(queue, needs(dirs, path)...)
			continue
		}
		if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
			queue = append(queue, real)
		}
	}
	for _, name := range needed {
		if !slices.ContainsFunc(f.sorted(), func(p string) bool { return filepath.Base(p) == name }) {
			return fmt.Errorf("the image for tests has no %s", name)
		}
	}
	return nil
}

// needs are the interpreter and libraries of a program, if path is one.
func needs(dirs []string, path string) []string {
	program, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer program.Close()
	var found []string
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			name := make([]byte, p.Filesz)
			if _, err := p.ReadAt(name, 0); err == nil {
				found = append(found, strings.TrimRight(string(name), "\x00"))
			}
		}
	}
	libraries, err := program.ImportedLibraries()
	if err != nil {
		return found
	}
	for _, name := range libraries {
		found = append(found, search(dirs, name)...)
	}
	return found
}

func search(dirs []string, name string) []string {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return []string{path}
		}
	}
	return nil
}
