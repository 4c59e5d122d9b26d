package substrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// Commit names a commit that work can start from.
type Commit struct {
	ID     string // full object id
	Tree   string
	Time   time.Time // of the committer
	Branch string    // short name of the branch it was named by, "" otherwise

	snapshot *snapshot // holds the commit, where the repository itself does not
}

// snapshot is a commit of ours that a Fruit brings into the repository.
type snapshot struct {
	git  *gitDir
	pack string // without .pack and .idx
}

// maxPackedRefs is generous: a million references take about 70 MB.
const maxPackedRefs = 128 << 20

// maxSymref is how many symbolic references in a row are followed, as in Git.
const maxSymref = 5

var errNoRef = errors.New("no such reference")

// Resolve returns the commit that rev names: a branch, a tag, a full reference
// name, a full or abbreviated object id, each with ~N and ^N after it. "" is
// HEAD. A rev that names nothing is a fault of kind NotFound with the nearest
// names that exist.
func (r *Repository) Resolve(ctx context.Context, rev string) (Commit, error) {
	name, suffix := rev, ""
	if i := strings.IndexAny(rev, "~^"); i >= 0 {
		name, suffix = rev[:i], rev[i:]
		if strings.Trim(suffix, "~^0123456789") != "" || len(suffix) > 64 {
			return Commit{}, fault.New(fault.Invalid, "revision %s: only ~N and ^N may follow a name", Escape(rev))
		}
	}
	if name == "" || name == "@" {
		name = "HEAD"
	}
	id, ref, err := r.lookup(name)
	switch {
	case errors.Is(err, errNoRef) && name == "HEAD":
		return Commit{}, fault.New(fault.Invalid, "%s has no commit yet", r.where()).
			WithHint("make a first commit: git commit --allow-empty -m start")
	case errors.Is(err, errNoRef) && len(name) >= 4 && len(name) <= 2*r.Format.size() && isHex(strings.ToLower(name)):
		id = strings.ToLower(name)
	case errors.Is(err, errNoRef):
		return Commit{}, r.unknown(rev, name)
	case err != nil:
		return Commit{}, err
	}
	// Our own Git directory has no references, so this can only mean an object.
	out, err := r.git.run(ctx, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", id+suffix+"^{commit}")
	if err != nil {
		var failure *gitFailure
		if errors.As(err, &failure) && failure.status >= 0 {
			if ref != "" && suffix == "" {
				return Commit{}, fault.New(fault.Invalid, "%s of %s names %s, which is not a commit that is here", Escape(ref), r.where(), id).
					WithHint("run git fsck in the repository")
			}
			return Commit{}, r.unknown(rev, name)
		}
		return Commit{}, err
	}
	commit, err := r.commit(ctx, r.git, strings.TrimSpace(string(out)))
	if branch, ok := strings.CutPrefix(ref, "refs/heads/"); ok && suffix == "" {
		commit.Branch = branch
	}
	return commit, err
}

// where names the repository in a message.
func (r *Repository) where() string {
	if r.Bare {
		return r.GitDir
	}
	return r.Worktree
}

// commit reads a commit object, which git sees.
func (r *Repository) commit(ctx context.Context, git *gitDir, id string) (Commit, error) {
	objects, err := git.openBatch(ctx, r.Format)
	if err != nil {
		return Commit{}, err
	}
	defer objects.Close()
	data, err := objects.read(id, "commit", maxConfig)
	if err != nil {
		return Commit{}, err
	}
	c, err := parseCommit(data, r.Format)
	c.ID = id
	if err != nil {
		return Commit{}, fault.New(fault.Invalid, "commit %s: %w", id, err)
	}
	return c, nil
}

// parseCommit takes tree and committer time out of a commit object.
func parseCommit(data []byte, format Format) (Commit, error) {
	header, _, _ := bytes.Cut(data, []byte("\n\n"))
	var c Commit
	for i, line := range strings.Split(string(header), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch {
		case i == 0:
			if key != "tree" || !format.isID(value) {
				return c, errors.New("it does not begin with a tree")
			}
			c.Tree = value
		case key == "committer" && c.Time.IsZero():
			// name <mail> seconds zone
			fields := strings.Fields(value[strings.LastIndexByte(value, '>')+1:])
			if len(fields) == 0 {
				return c, errors.New("the committer has no time")
			}
			seconds, err := strconv.ParseInt(fields[0], 10, 64)
			if err != nil {
				return c, errors.New("the committer's time is not a number")
			}
			c.Time = time.Unix(seconds, 0).UTC()
		}
	}
	if c.Tree == "" || c.Time.IsZero() {
		return c, errors.New("it lacks a tree or a committer")
	}
	return c, nil
}

// lookup finds a reference by gitrevisions(7)'s order and returns the object id
// and the full name of the reference that holds it.
func (r *Repository) lookup(name string) (id, ref string, err error) {
	for _, pattern := range []string{"%s", "refs/%s", "refs/tags/%s", "refs/heads/%s", "refs/remotes/%s", "refs/remotes/%s/HEAD"} {
		full := fmt.Sprintf(pattern, name)
		// Outside refs/ only HEAD: everything else there is no reference.
		if pattern == "%s" && full != "HEAD" && !strings.HasPrefix(full, "refs/") || checkRefName(full) != nil {
			continue
		}
		id, ref, err = r.readRef(full)
		if !errors.Is(err, errNoRef) {
			return id, ref, err
		}
	}
	return "", "", errNoRef
}

// readRef follows a reference through symbolic ones to an object id.
func (r *Repository) readRef(name string) (id, ref string, err error) {
	for range maxSymref {
		data, err := r.refDir(name).readFile(name, maxSmallFile)
		var path *os.PathError
		if errors.As(err, &path) && (absent(err) || errors.Is(err, unix.EISDIR)) {
			id, err := r.packedRef(name)
			return id, name, err
		}
		if err != nil {
			return "", "", invalid(err)
		}
		id, target, err := parseRef(data, r.Format)
		if err != nil {
			return "", "", fault.New(fault.Invalid, "reference %s of %s: %w", Escape(name), r.where(), err)
		}
		if target == "" {
			return id, name, nil
		}
		name = target
	}
	return "", "", fault.New(fault.Invalid, "reference %s of %s: too many symbolic references", Escape(name), r.where())
}

// refDir is where a reference lives: some belong to one working tree.
func (r *Repository) refDir(name string) *root {
	for _, prefix := range []string{"refs/bisect/", "refs/worktree/", "refs/rewritten/"} {
		if strings.HasPrefix(name, prefix) {
			return r.own
		}
	}
	if strings.HasPrefix(name, "refs/") {
		return r.common
	}
	return r.own
}

// parseRef reads the content of a loose reference: an object id, or the name of
// another reference.
func parseRef(data []byte, format Format) (id, target string, err error) {
	line := strings.TrimRight(string(data), " \t\r\n")
	if rest, ok := strings.CutPrefix(line, "ref:"); ok {
		target = strings.TrimLeft(rest, " \t")
		if err := checkRefName(target); err != nil || !strings.HasPrefix(target, "refs/") {
			return "", "", errors.New("it names no reference")
		}
		return "", target, nil
	}
	if !format.isID(line) {
		return "", "", errors.New("it holds no object id")
	}
	return line, "", nil
}

// packedRef looks a reference up in packed-refs.
func (r *Repository) packedRef(name string) (string, error) {
	found := ""
	err := r.eachPackedRef(func(id, ref string) bool {
		if ref == name {
			found = id
		}
		return found == ""
	})
	if err == nil && found == "" {
		err = errNoRef
	}
	return found, err
}

func (r *Repository) eachPackedRef(yield func(id, ref string) bool) error {
	data, err := r.common.readFile("packed-refs", maxPackedRefs)
	if absent(err) {
		return nil
	}
	if err != nil {
		return invalid(err)
	}
	if err := parsePackedRefs(data, r.Format, yield); err != nil {
		return fault.New(fault.Invalid, "%s/packed-refs: %w", r.CommonDir, err)
	}
	return nil
}

// parsePackedRefs calls yield for each line "ID NAME" until it returns false.
// Lines that begin with # or ^ (what the tag above peels to) are passed over.
func parsePackedRefs(data []byte, format Format, yield func(id, ref string) bool) error {
	for line := range bytes.Lines(data) {
		text, whole := strings.CutSuffix(string(line), "\n")
		if !whole {
			return errors.New("the last line is cut off")
		}
		if text == "" || text[0] == '#' || text[0] == '^' {
			continue
		}
		id, ref, _ := strings.Cut(text, " ")
		if !format.isID(id) || ref == "" {
			return errors.New("a line is malformed")
		}
		// A name that Git would not make cannot be asked for either.
		if checkRefName(ref) == nil && !yield(id, ref) {
			return nil
		}
	}
	return nil
}

// checkRefName is git-check-ref-format(1), for full names, one level allowed.
func checkRefName(name string) error {
	bad := func(why string) error { return fmt.Errorf("%q is no name for a reference: %s", Escape(name), why) }
	if name == "" || len(name) > 1024 || name == "@" {
		return bad("it is empty, too long, or @")
	}
	for i := range len(name) {
		if c := name[i]; c <= 0x20 || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return bad("it holds a space, a control character or one of ~^:?*[\\")
		}
	}
	if strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.HasSuffix(name, ".") {
		return bad("it holds .. or @{, or ends in a dot")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") || len(part) > 255 {
			return bad("a part of it is empty, too long, begins with a dot, or ends in .lock")
		}
	}
	return nil
}

// refNames lists the names of branches and tags, at most limit.
func (r *Repository) refNames(limit int) []string {
	var names []string
	var walk func(dir string, depth int)
	walk = func(dir string, depth int) {
		d, err := r.common.open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return
		}
		defer d.Close()
		for len(names) < limit {
			entries, err := d.ReadDir(256)
			for _, e := range entries {
				name := dir + "/" + e.Name()
				if e.IsDir() && depth > 0 {
					walk(name, depth-1)
				} else if e.Type().IsRegular() && checkRefName(name) == nil && len(names) < limit {
					names = append(names, name)
				}
			}
			if err != nil || errors.Is(err, io.EOF) || len(entries) == 0 {
				return
			}
		}
	}
	for _, dir := range []string{"refs/heads", "refs/tags", "refs/remotes"} {
		walk(dir, 8)
	}
	// A listing for a message: an unreadable packed-refs has been reported by
	// the lookup before it.
	_ = r.eachPackedRef(func(_, ref string) bool {
		names = append(names, ref)
		return len(names) < limit
	})
	return names
}
