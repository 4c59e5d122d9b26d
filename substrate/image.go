package substrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tendril/erofs"
	"tendril/fault"
)

// writeImage makes the image of a commit at path.
func (r *Repository) writeImage(ctx context.Context, path string, c Commit, owner Owner, progress func(done, total int)) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	git := r.gitOf(c)
	packed := make(chan packResult, 1)
	go func() { packed <- r.packRange(ctx, git, c.ID+"\n") }()
	waited := false
	defer func() {
		cancel()
		if !waited {
			<-packed
		}
	}()

	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("base image: %w", err)
	}
	defer f.Close()
	mtime := baseTime(c.Time, time.Now())
	image := &image{
		Writer: erofs.New(f, erofs.Options{UID: owner.UID, GID: owner.GID, Time: mtime}),
		format: r.Format, owner: owner, mtime: mtime,
	}
	objects, err := git.openBatch(ctx, r.Format)
	if err != nil {
		return err
	}
	defer objects.Close()
	tree, err := readBaseTree(objects, c.Tree)
	if err != nil {
		return err
	}
	if err := image.workingTree(tree, &counting{total: len(tree.entries), progress: progress}); err != nil {
		return err
	}
	result := <-packed
	waited = true
	if result.err != nil {
		return result.err
	}
	if err := image.gitDirectory(c, r.shallow, result.prefix, tree); err != nil {
		return err
	}
	if err := image.Close(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("base image: %w", err)
	}
	return nil
}

// gitOf is the Git directory of ours that sees a commit's objects.
func (r *Repository) gitOf(c Commit) *gitDir {
	if c.snapshot != nil {
		return c.snapshot.git
	}
	return r.git
}

// baseTime is the modification time of every file in an image: the commit's,
// unless that is out of range or too recent. Git compares whole seconds, so a
// file that is changed inside has to get another second than it had.
func baseTime(commit, now time.Time) time.Time {
	latest := now.Add(-3 * time.Second).Truncate(time.Second)
	if limit := time.Unix(1<<31-4, 0); latest.After(limit) {
		latest = limit // the index has 32 bits
	}
	if commit.After(latest) {
		commit = latest
	}
	if earliest := time.Unix(1, 0); commit.Before(earliest) {
		commit = earliest
	}
	return commit.UTC()
}

type packResult struct {
	prefix string // path of the pack without .pack and .idx
	err    error
}

// packRange writes a pack of everything that is reachable from the revisions,
// and of nothing else. Deltas of the repository's packs are taken over as they
// are.
func (r *Repository) packRange(ctx context.Context, git *gitDir, revisions string) packResult {
	dir, err := os.MkdirTemp(r.scratch.path, "pack")
	if err != nil {
		return packResult{err: err}
	}
	out, err := git.run(ctx, strings.NewReader(revisions),
		"pack-objects", "--revs", "--delta-base-offset", "-q", filepath.Join(dir, "pack"))
	if err != nil {
		return packResult{err: err}
	}
	hash := strings.TrimSpace(string(out))
	if !r.Format.isID(hash) {
		return packResult{err: errors.New("git pack-objects did not name its pack")}
	}
	return packResult{prefix: filepath.Join(dir, "pack-"+hash)}
}

// image is a base image that is being written.
type image struct {
	*erofs.Writer
	format Format
	owner  Owner
	mtime  time.Time
}

// workingTree writes the files of the commit, byte for byte as its blobs are.
func (im *image) workingTree(tree *baseTree, count *counting) error {
	asked := make(chan error, 1)
	go func() {
		for _, e := range tree.entries {
			if e.mode == modeGitlink {
				continue
			}
			if err := tree.objects.ask(e.id); err != nil {
				asked <- err
				return
			}
		}
		asked <- nil
	}()
	err := im.answers(tree, count)
	if err != nil {
		tree.objects.Close() // which ends the questions
	}
	return errors.Join(err, ignoreAfter(err, <-asked))
}

// ignoreAfter drops an error that is only the consequence of an earlier one.
func ignoreAfter(earlier, err error) error {
	if earlier != nil {
		return nil
	}
	return err
}

func (im *image) answers(tree *baseTree, count *counting) error {
	for i := range tree.entries {
		e := &tree.entries[i]
		if err := im.entry(tree.objects, e); err != nil {
			return fmt.Errorf("base entry %q: %w", Escape(e.path), err)
		}
		count.step()
	}
	return nil
}

func (im *image) entry(objects *batch, e *baseEntry) error {
	if e.mode == modeGitlink {
		return im.Dir(e.path, erofs.Attr{Perm: 0o755})
	}
	o, err := objects.next(e.id)
	if err != nil {
		return err
	}
	if o.kind != "blob" {
		return fault.New(fault.Invalid, "object %s is a %s where a blob is needed", e.id, o.kind)
	}
	e.size = o.size
	switch e.mode {
	case modeSymlink:
		if o.size > erofs.MaxSymlinkLen {
			return fault.New(fault.Invalid, "the target of a symbolic link has %d bytes, at most %d are possible", o.size, erofs.MaxSymlinkLen)
		}
		target, err := io.ReadAll(o)
		if err != nil {
			return err
		}
		if len(target) == 0 || bytes.IndexByte(target, 0) >= 0 {
			return fault.New(fault.Invalid, "the target of a symbolic link is empty or holds a NUL byte")
		}
		return im.Symlink(e.path, string(target), erofs.Attr{})
	case modeExec:
		_, err = im.File(e.path, erofs.Attr{Perm: 0o755}, o)
	default:
		_, err = im.File(e.path, erofs.Attr{Perm: 0o644}, o)
	}
	return err
}

// gitDirectory writes .git: the pack, one branch, and a configuration of ours.
func (im *image) gitDirectory(c Commit, shallow []byte, pack string, tree *baseTree) error {
	index, err := formatIndex(tree, im.format, im.owner, im.mtime)
	if err != nil {
		return err
	}
	for _, dir := range []string{"", "/hooks", "/info", "/objects", "/objects/info", "/objects/pack", "/refs", "/refs/heads", "/refs/tags"} {
		if err := im.Dir(".git"+dir, erofs.Attr{Perm: 0o755}); err != nil {
			return err
		}
	}
	branch := "refs/heads/" + branchInside(c)
	files := []struct{ name, content string }{
		{"HEAD", "ref: " + branch + "\n"},
		{branch, c.ID + "\n"},
		{"config", insideConfig(im.format)},
	}
	if len(shallow) > 0 {
		files = append(files, struct{ name, content string }{"shallow", string(shallow)})
	}
	for _, f := range files {
		if _, err := im.File(".git/"+f.name, erofs.Attr{Perm: 0o644}, strings.NewReader(f.content)); err != nil {
			return err
		}
	}
	// Git trusts an index only for files that are older than itself.
	young := erofs.Attr{Perm: 0o644, Time: im.mtime.Add(time.Second)}
	if _, err := im.File(".git/index", young, bytes.NewReader(index)); err != nil {
		return err
	}
	for _, ext := range []string{".pack", ".idx"} {
		if err := im.copyFile(".git/objects/pack/"+filepath.Base(pack)+ext, pack+ext); err != nil {
			return err
		}
	}
	return nil
}

func (im *image) copyFile(name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = im.File(name, erofs.Attr{Perm: 0o444}, f)
	return err
}

// insideConfig is the configuration that the Sprout's Git finds. The identity
// is a placeholder, so that a commit inside works; no commit made inside leaves.
func insideConfig(format Format) string {
	version, extensions := "0", ""
	if format == SHA256 {
		version, extensions = "1", "[extensions]\n\tobjectFormat = sha256\n"
	}
	return `[core]
	repositoryFormatVersion = ` + version + `
	bare = false
	fileMode = true
	logAllRefUpdates = true
	checkStat = minimal
	trustCtime = false
` + extensions + `[user]
	name = Sprout
	email = sprout@localhost
[gc]
	auto = 0
[maintenance]
	auto = false
`
}
