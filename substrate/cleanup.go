package substrate

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// temporaryName is what a file of a pack is called before it has its name. It
// begins with tmp_, which git-gc(1) removes too, names the run it is for, and does
// not end in .idx or .pack, because Git would read it.
func temporaryName(run, pack, ext string) string {
	return temporaryPrefix(run) + rand.Text() + "_" + pack + "_" + ext
}

func temporaryPrefix(run string) string { return "tmp_tendril_" + run + "_" }

// CleanUp removes what a process has left in the repository that died while it
// committed the Fruit of a run: the lock of its branch, and files that have not
// got their names. The caller knows that nobody works for that run any more.
func (r *Repository) CleanUp(run string) error {
	if err := r.cleanUpLock("refs/heads/" + BranchOf(run)); err != nil {
		return fmt.Errorf("clean up after run %s: %w", run, err)
	}
	if err := r.cleanUpPacks(run); err != nil {
		return fmt.Errorf("clean up after run %s: %w", run, err)
	}
	return nil
}

func (r *Repository) cleanUpLock(ref string) error {
	if err := checkRefName(ref); err != nil {
		return err
	}
	parent, last := splitPath(ref)
	dir, err := r.common.sub(parent)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return ignoreAbsent(unix.Unlinkat(int(dir.dir.Fd()), last+".lock", 0))
}

func (r *Repository) cleanUpPacks(run string) error {
	dir, err := r.common.sub("objects/pack")
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		rest, ours := strings.CutPrefix(name, temporaryPrefix(run))
		if !ours {
			continue
		}
		// A pack that has its name must not stay without an index.
		_, pack, _ := strings.Cut(rest, "_")
		if pack, isIndex := strings.CutSuffix(pack, "_idx"); isIndex {
			if _, err := dir.lstat(pack + ".pack"); err == nil {
				errs = append(errs, dir.rename(name, pack+".idx"))
			}
		}
		errs = append(errs, ignoreAbsent(unix.Unlinkat(int(dir.dir.Fd()), name, 0)))
	}
	return errors.Join(errs...)
}
