package substrate

import (
	"context"
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

// Dirty counts what a working tree has beyond its HEAD.
type Dirty struct {
	Changed   int // tracked paths that differ from HEAD
	Untracked int // files that are neither tracked nor ignored
	Ignored   int // ignored files; an ignored directory counts once
}

// Dirty compares the working tree and the index with HEAD. It works on a copy
// of the index, with a configuration of ours, so no filter, hook or fsmonitor
// runs, and it does not enter submodules. In a bare repository nothing is dirty.
func (r *Repository) Dirty(ctx context.Context) (Dirty, error) {
	var d Dirty
	if r.Bare {
		return d, nil
	}
	err := r.status(ctx, func(code, _ string) error {
		switch code {
		case "??":
			d.Untracked++
		case "!!":
			d.Ignored++
		default:
			d.Changed++
		}
		return nil
	})
	return d, err
}

// maxIndex bounds the copy of an index: 80 000 files take about 8 MB.
const maxIndex = 1 << 30

// status calls each for every path that differs, with the code of
// git-status(1)'s short format.
func (r *Repository) status(ctx context.Context, each func(code, path string) error) error {
	rules, err := r.rules(ctx)
	if err != nil {
		return err
	}
	head, _, err := r.readRef("HEAD")
	if err != nil && !errors.Is(err, errNoRef) {
		return err
	}
	temporary, err := r.store.newScratch()
	if err != nil {
		return err
	}
	defer temporary.Close()
	git, err := temporary.newGitDir("git", r.Format, r.shallow, r.git.borrows...)
	if err != nil {
		return err
	}
	if err := r.copyIndex(git.path); err != nil {
		return hold.NoSpace(invalid(err), r.store.dir)
	}
	files := map[string]string{"info/exclude": rules.excludes}
	if head != "" {
		files["HEAD"] = head + "\n"
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(git.path, name), []byte(content), 0o600); err != nil {
			return hold.NoSpace(err, r.store.dir)
		}
	}
	git.env = append(git.env, "GIT_WORK_TREE="+r.Worktree)
	git.env = append(git.env, rules.settings...)
	out, err := git.run(ctx, nil, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignored=matching",
		"--ignore-submodules=all", "--no-renames", "--no-ahead-behind")
	if err != nil {
		return fault.New(fault.Invalid, "compare the working tree of %s with its HEAD: %w", r.where(), err)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if line == "" {
			continue
		}
		if len(line) < 4 || line[2] != ' ' {
			return errors.New("git status: unexpected answer")
		}
		if err := each(line[:2], line[3:]); err != nil {
			return err
		}
	}
	return nil
}

// copyIndex copies the index, and the shared index that a split one refers to.
func (r *Repository) copyIndex(to string) error {
	names := []string{"index"}
	dir, err := r.own.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	all, err := dir.Readdirnames(4096)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, name := range all {
		if hash, ok := strings.CutPrefix(name, "sharedindex."); ok && isHex(hash) && len(names) < 16 {
			names = append(names, name)
		}
	}
	for _, name := range names {
		data, err := r.own.readFile(name, maxIndex)
		if absent(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Snapshot makes a commit of the working tree as it is: HEAD, changed tracked
// files, and untracked files that are not ignored, byte for byte and without a
// filter. The commit is ours until a Fruit on top of it is brought in. The
// repository's index, objects and references are not touched. A clean working
// tree gives HEAD itself.
func (r *Repository) Snapshot(ctx context.Context) (Commit, error) {
	head, err := r.Resolve(ctx, "")
	if err != nil || r.Bare {
		return head, err
	}
	tree, err := openRoot(r.Worktree)
	if err != nil {
		return Commit{}, invalid(err)
	}
	defer tree.Close()
	f, err := r.NewFruit(ctx, head, Limits{})
	if err != nil {
		return Commit{}, err
	}
	c, err := r.snapshot(ctx, f, tree)
	if err != nil || c.snapshot == nil {
		return c, hold.NoSpace(errors.Join(err, f.Discard()), r.store.dir)
	}
	r.snapshots = append(r.snapshots, f)
	return c, nil
}

func (r *Repository) snapshot(ctx context.Context, f *Fruit, tree *root) (Commit, error) {
	rules, err := r.rules(ctx)
	if err != nil {
		return Commit{}, err
	}
	err = r.status(ctx, func(code, path string) error {
		if code == "!!" {
			return nil
		}
		if err := f.addFrom(tree, path, rules.fileMode); err != nil {
			return fmt.Errorf("snapshot of %q: %w", Escape(path), err)
		}
		return nil
	})
	if err != nil {
		return Commit{}, err
	}
	if left := f.refused.all(); len(left) > 0 {
		return Commit{}, fault.New(fault.Invalid, "the working tree has %q: %s", Escape(left[0].Path), left[0].Note).
			WithHint("remove it, or work from HEAD without --dirty")
	}
	// The time is HEAD's, so that the same content is the same commit, and its
	// image is found in the cache.
	who := fmt.Sprintf("tendril <tendril@localhost> %d +0000", f.base.Time.Unix())
	text := func(tree string) string {
		return "tree " + tree + "\nparent " + f.base.ID + "\nauthor " + who + "\ncommitter " + who + "\n\n" +
			"snapshot of a working tree\n\nTendril-Snapshot: " + f.base.ID + "\n"
	}
	made, err := f.seal(ctx, text)
	if err != nil || made.commit == "" {
		return f.base, err
	}
	return Commit{
		ID: made.commit, Tree: made.tree, Time: f.base.Time, Branch: f.base.Branch,
		snapshot: &snapshot{git: f.git, pack: made.pack},
	}, nil
}

// addFrom records what a path of a working tree is now. Where the file system
// has no executable bit, that of the base stays.
func (f *Fruit) addFrom(tree *root, path string, fileMode bool) error {
	if strings.HasSuffix(path, "/") {
		return nil // another repository inside the working tree
	}
	st, err := tree.lstat(path)
	if absent(err) || errors.Is(err, unix.ELOOP) { // a link is where a directory was
		return f.Add(Delete, []byte(path), 0, nil)
	}
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := tree.readlink(path)
		if err != nil {
			return err
		}
		return f.Add(Symlink, []byte(path), int64(len(target)), strings.NewReader(target))
	case unix.S_IFREG:
		file, err := tree.open(path, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fault.New(fault.Invalid, "it changed while it was read")
		}
		executable := info.Mode()&0o100 != 0
		if !fileMode {
			base, err := f.tree.base.at(path)
			if err != nil {
				return err
			}
			executable = base.mode == modeExec
		}
		kind := File
		if executable {
			kind = Exec
		}
		return f.Add(kind, []byte(path), info.Size(), file)
	case unix.S_IFDIR:
		return f.Add(Dir, []byte(path), 0, nil) // a submodule, or where a file was; its files are listed
	}
	return fault.New(fault.Invalid, "it is neither a file, a directory nor a symbolic link")
}

// readlink reads a symbolic link beneath the root.
func (r *root) readlink(path string) (string, error) {
	f, err := r.open(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(int(f.Fd()), "", buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: f.Name(), Err: err}
	}
	return string(buf[:n]), nil
}
