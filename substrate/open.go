package substrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// Repository is an open Substrate. It is not safe for concurrent use, but any
// number of processes may have the same one open.
type Repository struct {
	Path      string // what was asked for, absolute
	GitDir    string // of this working tree: its HEAD and index
	CommonDir string // of all working trees: objects and branches
	Worktree  string // "" when Bare
	Bare      bool
	Format    Format
	Origin    string // the URL that this is our copy of; "" for a repository of this host

	commonBare bool // the main working tree does not exist

	store   *Store
	scratch *scratch
	git     *gitDir // ours; sees the caller's objects
	own     *root   // GitDir
	common  *root   // CommonDir
	shallow []byte

	local     *localRules // once they were needed
	snapshots []*Fruit    // hold their commits until Close
}

// Bounds on what a repository's own small files may hold.
const (
	maxSmallFile = 64 << 10
	maxConfig    = 4 << 20
	maxShallow   = 16 << 20
)

// Close removes what opening the repository has made.
func (r *Repository) Close() error {
	var errs []error
	for _, f := range r.snapshots {
		errs = append(errs, f.Discard())
	}
	for _, dir := range []*root{r.own, r.common} {
		if dir != nil {
			errs = append(errs, dir.Close())
		}
	}
	if r.scratch != nil {
		errs = append(errs, r.scratch.Close())
	}
	return errors.Join(errs...)
}

// discover finds the Git directory that path is in, by the rules of
// gitrepository-layout(5), and checks that it may be read.
func discover(ctx context.Context, path string) (*Repository, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, fault.New(fault.NotFound, "open %s: %w", path, err)
	}
	r := &Repository{Path: abs}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return nil, fault.New(fault.Invalid, "%s is not a directory", path)
	}
	bare := looksLikeGitDir(real)
	for dir := real; ; dir = filepath.Dir(dir) {
		git := filepath.Join(dir, ".git")
		info, err := os.Lstat(git)
		switch {
		case err == nil && bare && filepath.Base(real) != ".git":
			// CVE-2022-24765's cousin: a bare repository inside a working tree
			// is that tree's content, and not what a person means to open.
			return nil, fault.New(fault.Invalid, "%s is a bare repository inside the working tree %s", real, dir).
				WithHint("name %s, or move the bare repository out of it", dir)
		case err == nil:
			r.Worktree, r.GitDir = dir, git
			return r, r.locate(info)
		case !absent(err):
			return nil, fault.New(fault.Invalid, "open %s: %w", path, err)
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if !bare {
		return nil, fault.New(fault.Invalid, "%s is not inside a Git repository", path).
			WithHint("name a directory that is, or run: git init")
	}
	r.Bare, r.GitDir, r.CommonDir = true, real, real
	return r, nil
}

// invalid makes a fault of an error that is not one yet.
func invalid(err error) error {
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
		return err
	}
	return fault.New(fault.Invalid, "%w", err)
}

func looksLikeGitDir(dir string) bool {
	for _, name := range []string{"objects", "refs"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.IsDir() {
			return false
		}
	}
	_, err := os.Lstat(filepath.Join(dir, "HEAD"))
	return err == nil
}

// locate follows a .git file (of a linked working tree or a submodule) and the
// commondir file, each one step: neither may point to a symbolic link.
func (r *Repository) locate(info os.FileInfo) error {
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		return fault.New(fault.Invalid, "%s is a symbolic link, which is not followed", r.GitDir).
			WithHint("name the directory that it points to, if you trust it")
	case info.Mode().IsRegular():
		tree, err := openRoot(r.Worktree)
		if err != nil {
			return invalid(err)
		}
		defer tree.Close()
		data, err := tree.readFile(".git", maxSmallFile)
		if err != nil {
			return invalid(err)
		}
		target, err := parseGitFile(data)
		if err != nil {
			return fault.New(fault.Invalid, "%s: %w", r.GitDir, err)
		}
		r.GitDir = absoluteTo(r.Worktree, target)
	case !info.IsDir():
		return fault.New(fault.Invalid, "%s is neither a directory nor a file", r.GitDir)
	}
	r.CommonDir = r.GitDir
	dir, err := openRoot(r.GitDir)
	if err != nil {
		return fault.New(fault.Invalid, "the git directory: %w", err).
			WithHint("if the repository was moved, run: git worktree repair")
	}
	defer dir.Close()
	data, err := dir.readFile("commondir", maxSmallFile)
	switch {
	case err == nil:
		target, err := parsePathLine(data)
		if err != nil {
			return fault.New(fault.Invalid, "%s/commondir: %w", r.GitDir, err)
		}
		r.CommonDir = absoluteTo(r.GitDir, target)
	case !absent(err):
		return invalid(err)
	}
	return nil
}

func absoluteTo(base, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	return filepath.Clean(path)
}

// parseGitFile reads the content of a .git file: "gitdir: PATH".
func parseGitFile(data []byte) (string, error) {
	rest, ok := bytes.CutPrefix(data, []byte("gitdir: "))
	if !ok {
		return "", errors.New("it does not begin with \"gitdir: \"")
	}
	return parsePathLine(rest)
}

// parsePathLine reads one path with an optional end of line.
func parsePathLine(data []byte) (string, error) {
	path := strings.TrimRight(string(data), "\r\n")
	if path == "" || len(path) >= unix.PathMax || strings.ContainsAny(path, "\x00\n") {
		return "", errors.New("it does not hold one path")
	}
	return path, nil
}

// prepare checks the repository and makes our own Git directory beside it.
func (r *Repository) prepare(ctx context.Context) (err error) {
	if r.own, err = openRoot(r.GitDir); err != nil {
		return fault.New(fault.Invalid, "the git directory: %w", err)
	}
	if r.common, err = openRoot(r.CommonDir); err != nil {
		return fault.New(fault.Invalid, "the common git directory: %w", err)
	}
	if err := r.checkOwners(); err != nil {
		return err
	}
	if r.scratch, err = r.store.newScratch(); err != nil {
		return err
	}
	if err := r.checkConfig(ctx); err != nil {
		return err
	}
	objects, err := alternates(r.CommonDir)
	if err != nil {
		return err
	}
	r.shallow, err = r.common.readFile("shallow", maxShallow)
	if err != nil && !absent(err) {
		return invalid(err)
	}
	if err := parseShallow(r.shallow, r.Format); err != nil {
		return fault.New(fault.Invalid, "%s/shallow: %w", r.CommonDir, err)
	}
	r.git, err = r.scratch.newGitDir("git", r.Format, r.shallow, objects...)
	return err
}

// checkOwners refuses a repository of another account, which could change it
// between a look and a use, and one whose parts are symbolic links.
func (r *Repository) checkOwners() error {
	places := []string{r.GitDir, r.CommonDir}
	if r.Worktree != "" {
		places = append(places, r.Worktree, filepath.Join(r.Worktree, ".git"))
	}
	for _, path := range places {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return fault.New(fault.Invalid, "%w", &os.PathError{Op: "lstat", Path: path, Err: err})
		}
		if err := checkOwner(path, st); err != nil {
			return err
		}
	}
	for _, name := range []string{"objects", "objects/pack", "objects/info", "refs", "refs/heads"} {
		st, err := r.common.lstat(name)
		if absent(err) && name != "objects" && name != "refs" {
			continue // Git makes it when it is needed
		}
		if err != nil {
			return invalid(err)
		}
		if !isDir(st) {
			return fault.New(fault.Invalid, "%s/%s is a symbolic link or no directory", r.CommonDir, name).
				WithHint("a repository that borrows objects names them in objects/info/alternates")
		}
		if err := checkOwner(r.CommonDir+"/"+name, st); err != nil {
			return err
		}
	}
	return nil
}

func checkOwner(path string, st unix.Stat_t) error {
	if int(st.Uid) == os.Geteuid() {
		return nil
	}
	owner := "uid " + strconv.Itoa(int(st.Uid))
	if u, err := user.LookupId(strconv.Itoa(int(st.Uid))); err == nil {
		owner = u.Username + " (" + owner + ")"
	}
	return fault.New(fault.Denied, "%s belongs to %s, and this process runs as uid %d", path, owner, os.Geteuid()).
		WithRule("repository owner").
		WithHint("run tendril as its owner, or work on a clone of your own")
}

// checkConfig reads the repository's own configuration as data, for the few
// facts that say how its objects are stored.
func (r *Repository) checkConfig(ctx context.Context) error {
	data, err := r.common.readFile("config", maxConfig)
	if err != nil && !absent(err) {
		return invalid(err)
	}
	// A Git directory of ours is needed to parse it; its format does not matter.
	git, err := r.scratch.newGitDir("config", SHA1, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := git.run(ctx, bytes.NewReader(data), "config", "--file", "-", "--no-includes", "--null", "--list")
	if err != nil {
		return fault.New(fault.Invalid, "%s/config: %w", r.CommonDir, err)
	}
	r.Format = SHA1
	for _, line := range strings.Split(string(out), "\x00") {
		key, value, valued := strings.Cut(line, "\n")
		if key == "core.bare" && (!valued || isTrue(value)) {
			r.commonBare = true
		}
		if key == "core.repositoryformatversion" && value != "0" && value != "1" {
			return fault.New(fault.Invalid, "%s has the repository format %q, and only 0 and 1 are known", r.CommonDir, Escape(value)).
				WithHint("work on a clone of it")
		}
		extension, ok := strings.CutPrefix(key, "extensions.")
		if !ok {
			continue
		}
		switch extension {
		case "objectformat":
			r.Format = Format(value)
			if r.Format != SHA1 && r.Format != SHA256 {
				return fault.New(fault.Invalid, "%s: object format %q is not known", r.CommonDir, value)
			}
		case "noop", "preciousobjects", "partialclone", "worktreeconfig", "relativeworktrees":
			// They do not change how objects and references are stored.
		case "refstorage":
			if value != "files" {
				return fault.New(fault.Invalid, "%s stores its references as %q, which is not supported", r.CommonDir, value).
					WithHint("work on a clone that stores them as files: git clone --ref-format=files")
			}
		default:
			return fault.New(fault.Invalid, "%s has the extension %q, which is not known", r.CommonDir, extension)
		}
	}
	if r.commonBare && r.GitDir == r.CommonDir {
		r.Bare, r.Worktree = true, "" // a .git file may name a bare repository
	}
	return nil
}

// isTrue reads a boolean as git-config(1) does, but for unusual numbers.
func isTrue(value string) bool {
	switch strings.ToLower(value) {
	case "true", "yes", "on", "1":
		return true
	}
	return false
}

// parseShallow checks the file of commits whose parents a shallow clone lacks.
func parseShallow(data []byte, format Format) error {
	for line := range bytes.Lines(data) {
		if !format.isID(string(bytes.TrimSuffix(line, []byte("\n")))) {
			return errors.New("a line is not an object id")
		}
	}
	return nil
}
