package substrate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/hold"
)

// installPacks moves packs of a run, named without .pack and .idx, into the
// repository.
func (r *Repository) installPacks(run string, prefixes []string) error {
	dir, err := r.common.makeDir("objects/pack")
	if err != nil {
		return fmt.Errorf("import objects: %w", err)
	}
	defer dir.Close()
	for _, prefix := range prefixes {
		if err := dir.installPack(run, prefix); err != nil {
			return fmt.Errorf("import objects: %w", hold.NoSpace(err, r.CommonDir))
		}
	}
	return dir.sync()
}

// installPack gives a pack its name, and then its index, since a reader takes a
// pack for there when its index is. Both are there under temporary names before,
// so that CleanUp can finish what a crash cut in half.
func (r *root) installPack(run, prefix string) (err error) {
	staged := map[string]string{}
	defer func() {
		for _, temporary := range staged {
			// Renaming one link of a file over another of it does nothing.
			err = errors.Join(err, ignoreAbsent(unix.Unlinkat(int(r.dir.Fd()), temporary, 0)))
		}
	}()
	for _, ext := range []string{"idx", "pack"} {
		temporary := temporaryName(run, filepath.Base(prefix), ext)
		staged[ext] = temporary
		if err := r.stage(temporary, prefix+"."+ext); err != nil {
			return err
		}
	}
	for _, ext := range []string{"pack", "idx"} {
		if err := r.rename(staged[ext], filepath.Base(prefix)+"."+ext); err != nil {
			return err
		}
	}
	return nil
}

// makeDir opens a directory beneath the root and makes what is missing of it.
func (r *root) makeDir(path string) (*root, error) {
	at, err := r.sub(".")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(path, "/") {
		if err := unix.Mkdirat(int(at.dir.Fd()), name, 0o777); err != nil && !errors.Is(err, unix.EEXIST) {
			at.Close()
			return nil, &os.PathError{Op: "mkdir", Path: at.path + "/" + name, Err: err}
		}
		next, err := at.sub(name)
		at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

func (r *root) sync() error {
	if err := r.dir.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", r.path, err)
	}
	return nil
}

// stage puts a file of ours into the directory under a temporary name: linked where
// both are on one file system, otherwise copied.
func (r *root) stage(temporary, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := src.Chmod(0o444); err != nil {
		return err
	}
	if err := src.Sync(); err != nil {
		return err
	}
	if unix.Linkat(unix.AT_FDCWD, from, int(r.dir.Fd()), temporary, 0) == nil {
		return nil
	}
	return r.copyIn(temporary, src)
}

func (r *root) rename(from, to string) error {
	fd := int(r.dir.Fd())
	if err := unix.Renameat(fd, from, fd, to); err != nil {
		return &os.PathError{Op: "rename", Path: r.path + "/" + to, Err: err}
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func (r *root) copyIn(name string, src *os.File) error {
	dst, err := r.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	defer dst.Close()
	if _, err := io.Copy(dst, src); err != nil {
		return err
	}
	return dst.Sync()
}

// checkNewRef refuses a reference that exists or that cannot, because another
// one is a directory where it is a file or the other way round.
func (r *Repository) checkNewRef(name string) error {
	if err := checkRefName(name); err != nil {
		return fault.New(fault.Invalid, "%w", err)
	}
	conflict := func(with string) error {
		return fault.New(fault.Invalid, "cannot create %s in %s: %s exists", name, r.where(), Escape(with)).
			WithHint("rename or delete the branch %s", strings.TrimPrefix(Escape(with), "refs/heads/"))
	}
	var found string
	if err := r.eachPackedRef(func(_, ref string) bool {
		if refsConflict(name, ref) {
			found = ref
		}
		return found == ""
	}); err != nil {
		return err
	}
	if found != "" {
		return conflict(found)
	}
	// A loose reference in the way of a directory.
	for i := len("refs/heads/"); i < len(name); i++ {
		if name[i] != '/' {
			continue
		}
		st, err := r.common.lstat(name[:i])
		if err != nil && !absent(err) {
			return err
		}
		if err == nil && !isDir(st) {
			return conflict(name[:i])
		}
	}
	st, err := r.common.lstat(name)
	switch {
	case absent(err):
		return nil
	case err != nil:
		return err
	case !isDir(st):
		return conflict(name)
	}
	return nil // createRef removes it if it is empty
}

// refsConflict reports whether two references cannot both be files.
func refsConflict(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// createRef creates a reference as Git does: <name>.lock, then a rename. No hook
// runs and no reflog is written.
func (r *Repository) createRef(name, id string) error {
	return r.updateRef(name, func(dir *root, lock *os.File, last string) error {
		if err := r.checkNewRef(name); err != nil { // again, now that we hold the lock
			return err
		}
		// git-update-ref(1) also removes an empty directory in its place.
		err := unix.Unlinkat(int(dir.dir.Fd()), last, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return fault.New(fault.Invalid, "cannot create %s in %s: there are branches below it", name, r.where())
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "rmdir", Path: dir.path + "/" + last, Err: err}
		}
		return dir.commitRef(lock, last, id)
	})
}

// updateRef calls change while it holds the lock of a reference. The lock goes
// with the rename in commitRef, or afterwards.
func (r *Repository) updateRef(name string, change func(dir *root, lock *os.File, last string) error) error {
	parent, last := splitPath(name)
	dir, err := r.common.makeDir(parent)
	if err != nil {
		return fmt.Errorf("reference %s: %w", name, hold.NoSpace(err, r.CommonDir))
	}
	defer dir.Close()
	lock, err := dir.open(last+".lock", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o666)
	if errors.Is(err, os.ErrExist) {
		return fault.New(fault.Unavailable, "reference %s of %s is locked: %s/%s.lock exists", name, r.where(), dir.path, last).
			WithHint("if no git process runs there, remove that file")
	}
	if err != nil {
		return fmt.Errorf("reference %s: %w", name, hold.NoSpace(err, r.CommonDir))
	}
	err = change(dir, lock, last)
	if err != nil {
		err = errors.Join(err, ignoreAbsent(unix.Unlinkat(int(dir.dir.Fd()), last+".lock", 0)))
	}
	return errors.Join(hold.NoSpace(err, r.CommonDir), lock.Close())
}

// commitRef writes an id into the lock file and gives it the reference's name.
func (dir *root) commitRef(lock *os.File, last, id string) error {
	if _, err := lock.WriteString(id + "\n"); err != nil {
		return err
	}
	if err := lock.Sync(); err != nil {
		return err
	}
	if err := dir.rename(last+".lock", last); err != nil {
		return err
	}
	return dir.sync()
}
