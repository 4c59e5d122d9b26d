//go:build linux

package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"tendril/ignore"
	"tendril/stoma"
)

// Bounds of a walk. What lies beyond is counted as skipped.
const (
	maxDepth       = 256     // directories above an entry; each holds descriptors
	maxGitignore   = 1 << 20 // bytes; a longer file counts as none, so that nothing is left behind
	readDirEntries = 1024
)

var errNoWorkspace = errors.New("this Terrarium has no workspace")

// collect kills every process and sends what differs from the base.
func (sv *server) collect(st *stoma.Stream) error {
	if sv.workspace == nil {
		return errNoWorkspace
	}
	sv.quiesce()
	defer sv.resume()
	return sv.sprout.do(func() error {
		at, largest, err := sv.workspace.top()
		if err != nil {
			return err
		}
		defer at.close()
		w := &walk{out: st, largest: largest}
		if err := w.dir(at); err != nil {
			return err
		}
		return stoma.WriteMessage(st, stoma.SummaryMessage(w.summary))
	})
}

// walk goes through what may have changed, and reports it as the workspace has it.
type walk struct {
	out     *stoma.Stream
	largest int64 // bytes that a file can have at most
	summary stoma.Summary
}

// sizeOf is how much the file system of the directory can hold.
func sizeOf(dir int) int64 {
	var st unix.Statfs_t
	if unix.Fstatfs(dir, &st) != nil || st.Blocks == 0 {
		return 1<<63 - 1
	}
	return int64(st.Blocks) * st.Bsize
}

// workspace is where the Sprout works, and what was there before.
type workspace interface {
	// path is where it is; the Sprout cannot put anything else there.
	path() string
	// top opens it to be walked through, and says how large a file in it can be.
	top() (at place, largest int64, err error)
	// usage is how many bytes it and the other scratch hold, and can hold.
	usage() (used, size int64)
}

// place is one directory of the workspace, and what it was in the base.
type place struct {
	merged int // as the Sprout has it
	base   layer
	path   string
	depth  int
	rules  *ignore.Dir
}

// layer is what one directory was in the base, and where it may have changed since.
type layer interface {
	// candidates lists the names of the directory that may differ from the base. There
	// may be some that are gone by now.
	candidates(merged int) ([]string, error)
	// same says that the entry is for certain what it was.
	same(name string, now *unix.Stat_t) bool
	// was returns the file type of the name in the base, 0 when it had none.
	was(name string) uint32
	// names lists what the base had in the directory.
	names() ([]string, error)
	// enter goes down to a directory of that name, which the base may not have had.
	enter(name string) (layer, error)
	close()
}

func (at place) close() {
	at.base.close()
	unix.Close(at.merged)
}

// openTop opens the top of a workspace, by its descriptor: the Sprout may have closed it
// to itself. base is opened after that.
func openTop(merged int, base func() (layer, error)) (place, error) {
	var st unix.Stat_t
	if unix.Fstat(merged, &st) == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Fchmod(merged, st.Mode&0o7777|0o700) // what stays closed fails when it is opened
	}
	was, err := base()
	if err != nil {
		return place{}, err
	}
	fd, err := openDir(merged, ".")
	if err != nil {
		was.close()
		return place{}, fmt.Errorf("open the workspace: %w", err)
	}
	return place{merged: fd, base: was, rules: ignore.Top(gitignore(fd))}, nil
}

// dir reports the directory's entries.
func (w *walk) dir(at place) error {
	names, err := at.base.candidates(at.merged)
	if err != nil {
		return fmt.Errorf("list a changed directory: %w", err)
	}
	merged, err := listSet(at.merged)
	if err != nil {
		return fmt.Errorf("list a directory of the workspace: %w", err)
	}
	slices.Sort(names)
	for _, name := range names {
		if merged[name] {
			if err := w.entry(at, name); err != nil {
				return err
			}
		}
	}
	had, err := at.base.names()
	if err != nil {
		return fmt.Errorf("list a directory of the base: %w", err)
	}
	slices.Sort(had)
	for _, name := range had {
		if !merged[name] && name != ".git" {
			if err := w.send(stoma.Delete, at.path+name, 0, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// entry reports one entry that may have changed.
func (w *walk) entry(at place, name string) error {
	if at.path == "" && name == ".git" {
		return nil // the workspace's own: what counts is the working tree
	}
	if name == ".git" || len(at.path)+len(name) > stoma.MaxPath {
		return w.skip(at, name)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at.merged, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("look at a changed entry: %w", err)
	}
	if at.base.same(name, &st) {
		return nil
	}
	kind := st.Mode & unix.S_IFMT
	base := at.base.was(name)
	isDir := kind == unix.S_IFDIR
	// What the base has is tracked, and a tracked path is never ignored.
	tracked := base != 0 && (base == unix.S_IFDIR) == isDir
	if !tracked && at.rules.Ignored(name, isDir) {
		w.summary.Ignored++
		return w.replaced(at, name, base)
	}
	switch kind {
	case unix.S_IFREG:
		return w.file(at, name)
	case unix.S_IFLNK:
		return w.symlink(at, name)
	case unix.S_IFDIR:
		return w.subdir(at, name, base == unix.S_IFDIR)
	default:
		return errors.Join(w.skip(at, name), w.replaced(at, name, base))
	}
}

// maxNamed is how many of the entries that are left behind are named.
const maxNamed = 100

// skip counts an entry that stays behind, and names it.
func (w *walk) skip(at place, name string) error {
	w.summary.Skipped++
	path := at.path + name
	if w.summary.Skipped > maxNamed || len(path) > stoma.MaxPath {
		return nil
	}
	return w.send(stoma.Skip, path, 0, nil)
}

// replaced reports that what the base has is gone, when what took its place is
// not sent.
func (w *walk) replaced(at place, name string, base uint32) error {
	if base == 0 {
		return nil
	}
	return w.send(stoma.Delete, at.path+name, 0, nil)
}

func (w *walk) file(at place, name string) error {
	makeReadable(at.merged, name)
	fd, err := unix.Openat(at.merged, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the changed file %q: %w", at.path+name, err)
	}
	f := os.NewFile(uintptr(fd), "changed")
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at a changed file: %w", err)
	}
	if st.Size > w.largest {
		return w.skip(at, name) // it is all holes: what holds it is smaller
	}
	kind := stoma.File
	if st.Mode&0o100 != 0 {
		kind = stoma.Exec
	}
	return w.send(kind, at.path+name, st.Size, f)
}

func (w *walk) symlink(at place, name string) error {
	var target [unix.PathMax]byte
	n, err := unix.Readlinkat(at.merged, name, target[:])
	if err != nil {
		return fmt.Errorf("read a changed symbolic link: %w", err)
	}
	if n == 0 {
		return w.skip(at, name)
	}
	if err := w.send(stoma.Symlink, at.path+name, int64(n), nil); err != nil {
		return err
	}
	_, err = w.out.Write(target[:n])
	return err
}

// subdir reports a directory and what is in it.
func (w *walk) subdir(at place, name string, inBase bool) error {
	if at.depth == maxDepth {
		return w.skip(at, name)
	}
	makeReadable(at.merged, name)
	base, err := at.base.enter(name)
	if err != nil {
		return fmt.Errorf("open the changed directory %q: %w", at.path+name, err)
	}
	fd, err := openDir(at.merged, name)
	if err != nil {
		base.close()
		return fmt.Errorf("open the directory %q: %w", at.path+name, err)
	}
	down := place{merged: fd, base: base, path: at.path + name + "/", depth: at.depth + 1}
	defer down.close()
	if !inBase {
		if err := w.send(stoma.Dir, at.path+name, 0, nil); err != nil {
			return err
		}
	}
	down.rules = at.rules.Enter(name, gitignore(down.merged))
	return w.dir(down)
}

// send sends one record. The content has to have exactly size bytes: every
// process is dead, so a file cannot change while it is read, and when it does the
// collection fails.
func (w *walk) send(kind stoma.Kind, path string, size int64, content io.Reader) error {
	w.summary.Records++
	if err := stoma.WriteMessage(w.out, stoma.RecordMessage(kind, path, size)); err != nil {
		return err
	}
	if content == nil {
		return nil
	}
	if _, err := io.CopyN(struct{ io.Writer }{w.out}, content, size); err != nil {
		return fmt.Errorf("read a changed file: %w", err)
	}
	return nil
}

// makeReadable lets the owner read what the Sprout closed to itself. Nothing
// restores it: the workspace is of no further use but to be read.
func makeReadable(dir int, name string) {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return
	}
	want := uint32(0o400)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		want = 0o700
	case unix.S_IFREG:
	default:
		return // a chmod would follow a symbolic link
	}
	if st.Mode&want != want {
		_ = unix.Fchmodat(dir, name, st.Mode&0o7777|want, 0) // what stays closed fails when it is opened
	}
}

// gitignore reads the directory's ignore file, nil when there is none that Git
// would read: it does not follow a symbolic link.
func gitignore(dir int) []byte {
	makeReadable(dir, ".gitignore")
	fd, err := unix.Openat(dir, ".gitignore", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), ".gitignore")
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxGitignore {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxGitignore))
	if err != nil {
		return nil
	}
	return b
}

// list returns the names in a directory.
func list(dir int) ([]string, error) {
	var names []string
	err := each(dir, func(name string) { names = append(names, name) })
	return names, err
}

func listSet(dir int) (map[string]bool, error) {
	names := make(map[string]bool)
	err := each(dir, func(name string) { names[name] = true })
	return names, err
}

func each(dir int, f func(string)) error {
	fd, err := openDir(dir, ".") // its own position
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), "directory")
	defer d.Close()
	for {
		names, err := d.Readdirnames(readDirEntries)
		for _, n := range names {
			f(n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
