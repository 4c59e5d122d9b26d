package substrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tendril/fault"
	"tendril/hold"
)

// Kind is what a record says about a path.
type Kind string

// The kinds of records. They apply in the order in which they come.
const (
	File    Kind = "file"    // a regular file with this content
	Exec    Kind = "exec"    // the same, executable
	Symlink Kind = "symlink" // the content is the target
	Delete  Kind = "delete"  // nothing is there any more, nor below it
	Dir     Kind = "dir"     // a directory; one that was there keeps what it holds
)

// Limits bound what a Fruit takes in. Zero means the default.
type Limits struct {
	Entries int   // records; default 1 000 000
	Bytes   int64 // content of all records; default 64 GiB
}

// Fruit takes the records of a run and makes one commit of them. It is not safe
// for concurrent use. End it with Commit or Discard.
type Fruit struct {
	repo    *Repository
	base    Commit
	limits  Limits
	scratch *scratch
	git     *gitDir
	objects *batch
	tree    *editTree
	spool   *spool
	cancel  context.CancelFunc

	entries int
	bytes   int64
	fresh   map[string]bool   // paths that the base does not have
	ignores map[string][]byte // contents of .gitignore files, by id
	refused refusals

	settings settingsCheck
}

// NewFruit begins a Fruit on top of a base.
func (r *Repository) NewFruit(ctx context.Context, base Commit, limits Limits) (_ *Fruit, err error) {
	if limits.Entries <= 0 {
		limits.Entries = 1_000_000
	}
	if limits.Bytes <= 0 {
		limits.Bytes = 64 << 30
	}
	if _, err := r.rules(ctx); err != nil { // now, rather than after the work
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &Fruit{
		repo: r, base: base, limits: limits, cancel: cancel,
		fresh: map[string]bool{}, ignores: map[string][]byte{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Discard())
		}
	}()
	if f.scratch, err = r.store.newScratch(); err != nil {
		return nil, err
	}
	if f.git, err = f.scratch.newGitDir("git", r.Format, r.shallow, r.gitOf(base).sees()...); err != nil {
		return nil, err
	}
	if f.objects, err = f.git.openBatch(ctx, r.Format); err != nil {
		return nil, err
	}
	f.settings = settingsCheck{strict: f.strictly(ctx), known: map[[sha256.Size]byte]string{}}
	f.tree = newEditTree(newBaseView(f.objects, base.Tree))
	f.spool, err = newSpool(filepath.Join(f.scratch.path, "spool"), r.Format)
	return f, err
}

// Discard ends a Fruit and removes everything it held. After Commit it does
// nothing.
func (f *Fruit) Discard() error {
	f.cancel()
	if f.objects != nil {
		f.objects.Close()
		f.objects = nil
	}
	var errs []error
	if f.spool != nil {
		errs = append(errs, f.spool.Close())
		f.spool = nil
	}
	if f.scratch != nil {
		errs = append(errs, f.scratch.Close())
		f.scratch = nil
	}
	return errors.Join(errs...)
}

// Add takes one record. For File, Exec and Symlink, content has to yield size
// bytes; otherwise it is not read. Everything here is a claim of the Sprout: an
// impossible path, an unknown kind or too many records are an error. A name that
// Git or a file system would take for Git's own, content that Git refuses, and what
// is too large are left out, and become flags: the rest of the work must not be
// lost over them. Their content may stay unread.
func (f *Fruit) Add(kind Kind, path []byte, size int64, content io.Reader) error {
	if err := f.add(kind, string(path), size, content); err != nil {
		return hold.NoSpace(fmt.Errorf("record %s %q: %w", kind, Escape(string(path)), err), f.repo.store.dir)
	}
	return nil
}

func (f *Fruit) add(kind Kind, path string, size int64, content io.Reader) error {
	if f.spool == nil {
		return errors.New("the fruit has ended")
	}
	if err := checkPath(path); err != nil {
		return fault.New(fault.Invalid, "the path cannot be: %w", err).WithRule("path")
	}
	if f.entries++; f.entries > f.limits.Entries {
		return fault.New(fault.Invalid, "more than %d entries have changed", f.limits.Entries).WithRule("fruit entries")
	}
	mode := map[Kind]uint32{File: modeFile, Exec: modeExec, Symlink: modeSymlink}[kind]
	if isOwnGit(path) {
		return nil // the .git that the image brought; what counts is the working tree
	}
	if kind == Delete {
		return f.tree.remove(path) // no base has a name that is left out
	}
	if f.refused.check(path, mode) {
		return nil
	}
	switch kind {
	case Dir:
		return f.tree.setDir(path)
	case File, Exec, Symlink:
	default:
		return fault.New(fault.Invalid, "the kind is not known")
	}
	if size < 0 {
		return fault.New(fault.Invalid, "its size is negative")
	}
	if kind == Symlink && (size == 0 || size > maxPath) {
		return fault.New(fault.Invalid, "the target of a symbolic link has %d bytes", size)
	}
	if size > f.limits.Bytes-f.bytes {
		f.refused.note(path, fmt.Sprintf("its %d bytes exceed what is left of the limit of %d bytes for all changes", size, f.limits.Bytes))
		return nil
	}
	f.bytes += size
	base, err := f.tree.base.at(path)
	if err != nil {
		return err
	}
	var seen bytes.Buffer // what is looked at on its way into the spool
	_, name := splitPath(path)
	if kind != Symlink {
		var why string
		if content, why, err = f.settings.look(name, size, content); err != nil {
			return err
		}
		if why != "" {
			f.refused.note(path, why)
			return nil
		}
	}
	keep := kind != Symlink && name == ".gitignore" && size <= maxBuffered
	if keep || kind == Symlink {
		content = io.TeeReader(content, &seen)
	}
	id, err := f.spool.add(packBlob, size, content, func(id string) bool { return id == base.id })
	if err != nil {
		return err
	}
	if kind == Symlink && bytes.IndexByte(seen.Bytes(), 0) >= 0 {
		return fault.New(fault.Invalid, "the target of a symbolic link holds a NUL byte")
	}
	if keep {
		f.ignores[id] = seen.Bytes()
	}
	if base.mode == 0 || base.mode == modeTree || base.mode == modeGitlink {
		f.fresh[path] = true
	}
	return f.tree.set(path, mode, id)
}

// refusals are entries that were left out, for the flags. They are bounded; what
// is beyond the bound is counted.
type refusals struct {
	flags []Flag
	seen  map[string]bool
	more  int
}

const maxRefusals = 100

// check reports whether a component of the path is refused, and notes it once.
func (r *refusals) check(path string, mode uint32) bool {
	end := 0
	for name := range strings.SplitSeq(path, "/") {
		end += len(name)
		last := end == len(path)
		if why := refuseName(name, map[bool]uint32{true: mode, false: modeTree}[last]); why != "" {
			r.note(path[:end], why)
			return true
		}
		end++
	}
	return false
}

// note says once that an entry is left out.
func (r *refusals) note(at, why string) {
	switch {
	case r.seen[at]:
	case len(r.flags) < maxRefusals:
		if r.seen == nil {
			r.seen = map[string]bool{}
		}
		r.seen[at] = true
		r.flags = append(r.flags, Flag{Kind: FlagLeftOut, Path: at, Note: why})
	default:
		r.more++
	}
}

func (r *refusals) all() []Flag {
	if r.more == 0 {
		return r.flags
	}
	return append(r.flags, Flag{Kind: FlagLeftOut, Note: strconv.Itoa(r.more) + " more entries"})
}

// Meta is what the commit says about the run. Run names the branch.
type Meta struct {
	Run      string
	Pollen   string
	Provider string
	Time     time.Time
}

// Result is what became of a run's records. When nothing changed, Commit and
// Branch are empty and Tree is the base's.
type Result struct {
	Changed int // paths that were added, changed or removed
	Ignored int // new files that the ignore rules kept out
	Commit  string
	Tree    string
	Branch  string // short name
	Flags   []Flag
}

// BranchOf is the short name of the branch that a run's result is on.
func BranchOf(run string) string { return "tendril/" + run }

func (m Meta) check() error {
	if m.Run == "" || len(m.Run) > 100 || strings.Trim(m.Run, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || m.Run[0] == '-' {
		return fault.New(fault.Invalid, "run %q: a run's name has lower-case letters, digits and hyphens", Escape(m.Run))
	}
	for _, s := range []string{m.Pollen, m.Provider} {
		if s == "" || len(s) > 200 || Escape(s) != s || strings.ContainsAny(s, "\t\\") {
			return fault.New(fault.Invalid, "%q cannot stand in a trailer", Escape(s))
		}
	}
	return nil
}

// Commit makes the commit and the branch, or neither. It ends the Fruit.
func (f *Fruit) Commit(ctx context.Context, meta Meta) (result Result, err error) {
	if f.spool == nil {
		return Result{}, errors.New("the fruit has ended")
	}
	defer func() {
		if discardErr := f.Discard(); err == nil && discardErr != nil {
			err = discardErr
		}
	}()
	if err := meta.check(); err != nil {
		return Result{}, err
	}
	result, err = f.commit(ctx, meta)
	return result, hold.NoSpace(err, f.repo.store.dir)
}

func (f *Fruit) commit(ctx context.Context, meta Meta) (Result, error) {
	ignored, err := f.dropIgnored(ctx)
	if err != nil {
		return Result{}, err
	}
	result := Result{Ignored: ignored, Tree: f.base.Tree, Flags: f.refused.all()}
	made, err := f.seal(ctx, func(tree string) string { return meta.commit(tree, f.base.ID) })
	if err != nil || made.commit == "" {
		return result, err
	}
	changes, err := f.git.changes(ctx, f.base.Tree, made.tree)
	if err != nil {
		return Result{}, err
	}
	flags, err := f.git.flags(ctx, f.repo.Format, changes, made.tree)
	if err != nil {
		return Result{}, err
	}
	branch := BranchOf(meta.Run)
	if err := f.repo.checkNewRef("refs/heads/" + branch); err != nil {
		return Result{}, err
	}
	packs := []string{made.pack}
	if f.base.snapshot != nil {
		packs = append([]string{f.base.snapshot.pack}, packs...)
	}
	if err := f.repo.installPacks(meta.Run, packs); err != nil {
		return Result{}, err
	}
	if err := f.repo.createRef("refs/heads/"+branch, made.commit); err != nil {
		return Result{}, err
	}
	result.Changed, result.Commit, result.Tree, result.Branch = len(changes), made.commit, made.tree, branch
	result.Flags = append(result.Flags, flags...)
	return result, nil
}

// sealed is a checked commit in our own objects. When the tree is the base's,
// there is none, and the commit is empty.
type sealed struct {
	tree, commit string
	pack         string // without .pack and .idx
}

// seal writes trees and a commit with the given text, and lets Git check them.
func (f *Fruit) seal(ctx context.Context, text func(tree string) string) (sealed, error) {
	used := map[string]bool{}
	tree, err := f.tree.write(f.spool, used)
	if err != nil || tree == f.base.Tree {
		return sealed{tree: tree}, err
	}
	content := text(tree)
	commit, err := f.spool.add(packCommit, int64(len(content)), strings.NewReader(content), func(string) bool { return false })
	if err != nil {
		return sealed{}, err
	}
	used[commit] = true
	pack, err := f.quarantine(ctx, used)
	return sealed{tree, commit, pack}, err
}

// commit is the text of the commit object. Nothing in it is the Sprout's.
func (m Meta) commit(tree, parent string) string {
	who := fmt.Sprintf("tendril <tendril@localhost> %d +0000", m.Time.Unix())
	return "tree " + tree + "\nparent " + parent + "\nauthor " + who + "\ncommitter " + who + "\n\n" +
		"tendril run " + m.Run + "\n\n" +
		"Tendril-Run: " + m.Run + "\n" +
		"Tendril-Pollen: " + m.Pollen + "\n" +
		"Tendril-Provider: " + m.Provider + "\n" +
		"Tendril-Base: " + parent + "\n"
}

// quarantine writes the pack into an object directory of ours and lets Git
// check it strictly there. It returns the path without .pack and .idx.
func (f *Fruit) quarantine(ctx context.Context, used map[string]bool) (string, error) {
	dir := filepath.Join(f.git.path, "objects/pack")
	file, err := os.CreateTemp(dir, "incoming")
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash, err := f.spool.writePack(file, used)
	if err != nil {
		return "", fmt.Errorf("write the pack: %w", err)
	}
	prefix := filepath.Join(dir, "pack-"+hash)
	if err := os.Rename(file.Name(), prefix+".pack"); err != nil {
		return "", err
	}
	out, err := f.git.run(ctx, nil, "index-pack", "--strict", prefix+".pack")
	if err != nil {
		var failure *gitFailure
		if errors.As(err, &failure) && failure.status >= 0 {
			return "", fault.New(fault.Invalid, "git refuses the result: %w", err).WithRule("git index-pack --strict")
		}
		return "", err
	}
	if strings.TrimSpace(strings.TrimPrefix(string(out), "pack\t")) != hash {
		return "", errors.New("git index-pack names another pack")
	}
	return prefix, nil
}
