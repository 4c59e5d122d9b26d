package substrate

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// worktree is one working tree of a repository.
type worktree struct {
	path   string // "" when it cannot be told
	gitDir string // relative to the common directory; "." is the main one
}

// maxWorktrees bounds how many linked working trees are looked at.
const maxWorktrees = 1024

// worktrees lists the main working tree, if there is one, and the linked ones.
func (r *Repository) worktrees() ([]worktree, error) {
	var all []worktree
	if !r.commonBare {
		main := worktree{gitDir: "."}
		if filepath.Base(r.CommonDir) == ".git" {
			main.path = filepath.Dir(r.CommonDir)
		} else if r.GitDir == r.CommonDir {
			main.path = r.Worktree // a submodule's
		}
		all = append(all, main)
	}
	dir, err := r.common.open("worktrees", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if absent(err) {
		return all, nil
	}
	if err != nil {
		return nil, invalid(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxWorktrees + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > maxWorktrees {
		return nil, fault.New(fault.Invalid, "%s has more than %d working trees", r.CommonDir, maxWorktrees).
			WithHint("run: git worktree prune")
	}
	for _, name := range names {
		w := worktree{gitDir: "worktrees/" + name}
		// gitdir names the .git file of the working tree.
		if data, err := r.common.readFile(w.gitDir+"/gitdir", maxSmallFile); err == nil {
			if path, err := parsePathLine(data); err == nil {
				w.path = filepath.Dir(absoluteTo(filepath.Join(r.CommonDir, w.gitDir), path))
			}
		}
		all = append(all, w)
	}
	return all, nil
}

// checkedOut returns the working tree in which a branch, by its full name, is
// checked out, or is being rebased or bisected.
func (r *Repository) checkedOut(ref string) (worktree, bool, error) {
	all, err := r.worktrees()
	if err != nil {
		return worktree{}, false, err
	}
	short := strings.TrimPrefix(ref, "refs/heads/")
	for _, w := range all {
		for _, file := range []string{"HEAD", "rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"} {
			data, err := r.common.readFile(w.gitDir+"/"+file, maxSmallFile)
			if absent(err) {
				continue
			}
			if err != nil {
				return worktree{}, false, invalid(err)
			}
			line := string(bytes.TrimSpace(data))
			if target, ok := strings.CutPrefix(line, "ref:"); ok {
				line = strings.TrimSpace(target)
			}
			if line == ref || file == "BISECT_START" && line == short {
				return w, true, nil
			}
		}
	}
	return worktree{}, false, nil
}
