package substrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/hold"
)

// Acceptance is what Accept is asked to do. Commit is the one that a person has
// looked at.
type Acceptance struct {
	Run    string
	Commit string
	Into   string // short name of the branch
	Time   time.Time
}

// Accepted is what Accept has done.
type Accepted struct {
	Branch      string // short name
	From, To    string // its commit before and after
	FastForward bool   // To is the Fruit's own commit; otherwise a merge of both
}

// Accept merges a Fruit into a branch, without a working tree: the trees are
// merged in a directory of ours, without any driver or attribute, and then the
// branch is moved in one step, if it still is where it was. The branch is moved
// to the Fruit's commit itself if it has not moved on since the base, and to a
// merge commit otherwise. The Fruit's own branch stays.
//
// A branch that is checked out is not moved, since its working tree would no
// longer agree with it; the fault's hint is the command for that. A conflict is
// a fault that lists the paths.
func (r *Repository) Accept(ctx context.Context, a Acceptance) (Accepted, error) {
	branch, into := "refs/heads/"+BranchOf(a.Run), "refs/heads/"+a.Into
	if r.Origin != "" {
		// The next fetch would undo it, and whoever reads the origin would not see it.
		return Accepted{}, fault.New(fault.Invalid, "a Fruit of %s is accepted there, and not in the copy of it that is here", r.Origin).
			WithHint("in a clone of your own: git fetch %s %s && git merge --no-ff FETCH_HEAD", r.GitDir, branch)
	}
	if err := r.expect(branch, a.Commit); err != nil {
		return Accepted{}, err
	}
	if err := checkRefName(into); err != nil {
		return Accepted{}, fault.New(fault.Invalid, "%w", err)
	}
	from, at, err := r.readRef(into)
	if errors.Is(err, errNoRef) {
		return Accepted{}, r.unknown(a.Into, a.Into)
	}
	if err != nil {
		return Accepted{}, err
	}
	if at != into {
		return Accepted{}, fault.New(fault.Invalid, "branch %s stands for %s", Escape(a.Into), Escape(at)).WithHint("name that one")
	}
	if err := r.refuseCheckedOut(into, a); err != nil {
		return Accepted{}, err
	}
	merged, err := r.merge(ctx, from, a)
	if err != nil {
		return Accepted{}, hold.NoSpace(err, r.store.dir)
	}
	err = r.updateRef(into, func(dir *root, lock *os.File, last string) error {
		if err := r.expect(into, from); err != nil {
			return err
		}
		if err := r.refuseCheckedOut(into, a); err != nil {
			return err
		}
		return dir.commitRef(lock, last, merged)
	})
	return Accepted{Branch: a.Into, From: from, To: merged, FastForward: merged == a.Commit}, err
}

// expect checks that a reference is at an id, directly.
func (r *Repository) expect(ref, id string) error {
	if err := checkRefName(ref); err != nil {
		return fault.New(fault.Invalid, "%w", err)
	}
	now, at, err := r.readRef(ref)
	if errors.Is(err, errNoRef) {
		return fault.New(fault.NotFound, "%s has no branch %s", r.where(), strings.TrimPrefix(ref, "refs/heads/"))
	}
	if err != nil {
		return err
	}
	if now != id || at != ref {
		return fault.New(fault.Invalid, "branch %s is at %s, not at %s", Escape(strings.TrimPrefix(ref, "refs/heads/")), now, Escape(id)).
			WithHint("somebody moved it; look at what it holds now")
	}
	return nil
}

func (r *Repository) refuseCheckedOut(ref string, a Acceptance) error {
	w, yes, err := r.checkedOut(ref)
	if err != nil || !yes {
		return err
	}
	where := "a working tree"
	command := "git merge --no-ff " + BranchOf(a.Run)
	if w.path != "" {
		where = Escape(w.path)
		command = "git -C " + shellQuote(w.path) + " merge --no-ff " + BranchOf(a.Run)
	}
	return fault.New(fault.Invalid, "branch %s is checked out in %s", Escape(a.Into), where).
		WithRule("checked-out branch").WithHint("run: %s", command)
}

// shellQuote quotes a word for a shell, where that is needed.
func shellQuote(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(Escape(word), "'", `'\''`) + "'"
}

// merge returns the commit that a branch at from moves to, and has brought its
// objects into the repository.
func (r *Repository) merge(ctx context.Context, from string, a Acceptance) (string, error) {
	target, err := r.commit(ctx, r.git, from)
	if err != nil {
		return "", err
	}
	fruit, err := r.commit(ctx, r.git, a.Commit)
	if err != nil {
		return "", err
	}
	tree, merged := fruit.Tree, a.Commit
	_, err = r.git.run(ctx, nil, "merge-base", "--is-ancestor", from, a.Commit)
	switch {
	case isStatus(err, 1):
		if tree, err = r.mergeTree(ctx, from, a); err != nil {
			return "", err
		}
		merged = ""
	case err != nil:
		return "", err
	}
	changes, err := r.git.changes(ctx, target.Tree, tree)
	if err != nil {
		return "", err
	}
	if len(changes) == 0 {
		return "", fault.New(fault.Invalid, "branch %s has everything that %s changes", Escape(a.Into), BranchOf(a.Run))
	}
	if err := r.checkGuarded(ctx, changes); err != nil {
		return "", err
	}
	if merged != "" {
		return merged, nil
	}
	return r.mergeCommit(ctx, tree, from, a)
}

// mergeTree merges with the attributes and drivers of nobody: our Git directory
// is bare, and has neither.
func (r *Repository) mergeTree(ctx context.Context, from string, a Acceptance) (string, error) {
	out, err := r.git.run(ctx, nil, "merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", from, a.Commit)
	fields := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	if isStatus(err, 1) {
		paths := slices.Compact(fields[1:])
		for i, p := range paths {
			paths[i] = Escape(p)
		}
		if len(paths) > 20 {
			paths = append(paths[:20], fmt.Sprintf("and %d more", len(paths)-20))
		}
		return "", fault.New(fault.Invalid, "%s conflicts with branch %s in: %s", BranchOf(a.Run), Escape(a.Into), strings.Join(paths, ", ")).
			WithRule("conflict").WithHint("check out %s and run: git merge --no-ff %s", Escape(a.Into), BranchOf(a.Run))
	}
	if isStatus(err, 129) {
		return "", fault.New(fault.Unavailable, "this git cannot merge trees: %w", err).WithHint("install Git 2.38 or newer")
	}
	if err != nil {
		return "", fault.New(fault.Invalid, "merge: %w", err)
	}
	if !r.Format.isID(fields[0]) {
		return "", errors.New("git merge-tree did not name a tree")
	}
	return fields[0], nil
}

// mergeCommit makes the merge commit and brings it and its trees into the
// repository.
func (r *Repository) mergeCommit(ctx context.Context, tree, from string, a Acceptance) (string, error) {
	who := fmt.Sprintf("tendril <tendril@localhost> %d +0000", a.Time.Unix())
	text := "tree " + tree + "\nparent " + from + "\nparent " + a.Commit + "\nauthor " + who + "\ncommitter " + who + "\n\n" +
		"accept tendril run " + a.Run + "\n\nTendril-Run: " + a.Run + "\n"
	h := r.Format.objectHash("commit", int64(len(text)))
	h.Write([]byte(text))
	id := fmt.Sprintf("%x", h.Sum(nil))
	if err := r.git.writeLoose(r.Format, "commit", id, []byte(text)); err != nil {
		return "", err
	}
	p := r.packRange(ctx, r.git, id+"\n^"+from+"\n^"+a.Commit+"\n")
	if p.err != nil {
		return "", p.err
	}
	if _, err := r.git.run(ctx, nil, "index-pack", "--strict", p.prefix+".pack"); err != nil {
		return "", fault.New(fault.Invalid, "git refuses the merge: %w", err).WithRule("git index-pack --strict")
	}
	return id, r.installPacks(a.Run, []string{p.prefix})
}

// Reject removes the branch of a run, if it is at the commit that was looked at.
// Its objects stay until the repository's own git gc.
func (r *Repository) Reject(_ context.Context, run, commit string) error {
	ref := "refs/heads/" + BranchOf(run)
	if err := r.expect(ref, commit); err != nil {
		return err
	}
	refuse := func() error {
		w, yes, err := r.checkedOut(ref)
		if err == nil && yes {
			err = fault.New(fault.Invalid, "branch %s is checked out in %s", BranchOf(run), Escape(w.path)).
				WithRule("checked-out branch").WithHint("check out another branch there first")
		}
		return err
	}
	if err := refuse(); err != nil {
		return err
	}
	return r.updateRef(ref, func(dir *root, _ *os.File, last string) error {
		if err := r.expect(ref, commit); err != nil {
			return err
		}
		// First the packed value, or it would be seen again between the two.
		if err := r.deletePacked(ref); err != nil {
			return err
		}
		fd := int(dir.dir.Fd())
		if err := ignoreAbsent(unix.Unlinkat(fd, last, 0)); err != nil {
			return &os.PathError{Op: "unlink", Path: dir.path + "/" + last, Err: err}
		}
		if err := ignoreAbsent(unix.Unlinkat(fd, last+".lock", 0)); err != nil {
			return &os.PathError{Op: "unlink", Path: dir.path + "/" + last + ".lock", Err: err}
		}
		return dir.sync()
	})
}

// deletePacked rewrites packed-refs without one reference, as git-update-ref(1)
// does: packed-refs.lock, then a rename.
func (r *Repository) deletePacked(ref string) error {
	if _, err := r.packedRef(ref); errors.Is(err, errNoRef) {
		return nil
	} else if err != nil {
		return err
	}
	const name = "packed-refs"
	lock, err := r.common.open(name+".lock", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o666)
	if errors.Is(err, os.ErrExist) {
		return fault.New(fault.Unavailable, "%s/%s.lock exists", r.CommonDir, name).WithHint("if no git process runs there, remove that file")
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	fd := int(r.common.dir.Fd())
	err = func() error {
		data, err := r.common.readFile(name, maxPackedRefs)
		if err != nil {
			return err
		}
		if _, err := lock.Write(withoutRef(data, ref)); err != nil {
			return hold.NoSpace(err, r.CommonDir)
		}
		if err := lock.Sync(); err != nil {
			return err
		}
		return unix.Renameat(fd, name+".lock", fd, name)
	}()
	if err != nil {
		return errors.Join(err, ignoreAbsent(unix.Unlinkat(fd, name+".lock", 0)))
	}
	return r.common.sync()
}

// withoutRef drops a reference, and what it peels to, from packed-refs.
func withoutRef(data []byte, ref string) []byte {
	var out []byte
	dropping := false
	for line := range bytes.Lines(data) {
		if line[0] != '^' {
			_, name, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
			dropping = string(name) == ref
		}
		if !dropping {
			out = append(out, line...)
		}
	}
	return out
}
