package substrate_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tendril/fault"
	"tendril/substrate"
)

// stateOf reads everything of a repository: names, modes, times and contents of
// its working tree and its Git directory.
func stateOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	state := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, content := strings.TrimPrefix(path, dir), info.Mode().String()
		switch {
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content += " " + info.ModTime().String() + " " + string(data)
		case d.Type() == os.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			content += " " + target
		}
		state[name] = content
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestRepositoryIsUntouched compares a repository with everything in it byte for
// byte, before and after a whole run.
func TestRepositoryIsUntouched(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n", "b": "2\n", ".gitignore": "*.log\n"})
	write(t, filepath.Join(dir, "a"), "stashed\n")
	git(t, dir, "stash", "-q")
	git(t, dir, "branch", "other")
	git(t, dir, "tag", "-a", "-m", "t", "v1")
	git(t, dir, "config", "user.name", "somebody")
	write(t, filepath.Join(dir, "a"), "dirty\n")
	write(t, filepath.Join(dir, "b"), "staged\n")
	git(t, dir, "add", "b")
	write(t, filepath.Join(dir, "untracked"), "u\n")
	write(t, filepath.Join(dir, "x.log"), "ignored\n")
	before := stateOf(t, dir)

	ctx := context.Background()
	r := open(t, newStore(t), dir)
	if _, err := r.Dirty(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := r.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range []substrate.Commit{resolve(t, r, ""), c} {
		baseOf(t, r, base)
	}
	if diff := cmp.Diff(before, stateOf(t, dir)); diff != "" {
		t.Fatalf("reading the repository has changed it:\n%s", diff)
	}
	result, err := grow(t, r, resolve(t, r, ""), meta, record{substrate.File, "new", "n\n"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Diff(ctx, result.Tree, result.Commit, substrate.DiffOptions{}); err == nil {
		t.Error("a tree is no commit")
	}
	after := stateOf(t, dir)
	for name := range after {
		if _, ok := before[name]; !ok && (strings.HasPrefix(name, "/.git/objects/pack/pack-") || strings.HasPrefix(name, "/.git/refs/heads/tendril")) {
			delete(after, name)
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the run has changed more than one branch and a pack:\n%s", diff)
	}
	if err := r.Reject(ctx, meta.Run, result.Commit); err != nil {
		t.Fatal(err)
	}
	if out := git(t, dir, "for-each-ref", "--format=%(refname)"); out != "refs/heads/main\nrefs/heads/other\nrefs/stash\nrefs/tags/v1" {
		t.Errorf("references at the end: %s", out)
	}
}

// TestForms runs the whole way in every form that a repository can have.
func TestForms(t *testing.T) {
	files := map[string]string{"a": "1\n", "d/b": "2\n"}
	forms := map[string]func(t *testing.T) (path, gitIn, branch string){
		"plain": func(t *testing.T) (string, string, string) { d := newRepo(t, files); return d, d, "main" },
		"sub-directory": func(t *testing.T) (string, string, string) {
			d := newRepo(t, files)
			return filepath.Join(d, "d"), d, "main"
		},
		"sha256": func(t *testing.T) (string, string, string) {
			d := newRepo(t, files, "--object-format=sha256")
			return d, d, "main"
		},
		"detached": func(t *testing.T) (string, string, string) {
			d := newRepo(t, files)
			git(t, d, "checkout", "-q", "--detach")
			return d, d, ""
		},
		"packed": func(t *testing.T) (string, string, string) {
			d := newRepo(t, files)
			git(t, d, "gc", "-q")
			git(t, d, "pack-refs", "--all")
			return d, d, "main"
		},
		"bare": func(t *testing.T) (string, string, string) {
			d := filepath.Join(t.TempDir(), "bare.git")
			git(t, "/", "clone", "-q", "--bare", newRepo(t, files), d)
			return d, d, "main"
		},
		"bare behind a .git file": func(t *testing.T) (string, string, string) {
			d := t.TempDir()
			git(t, "/", "clone", "-q", "--bare", newRepo(t, files), filepath.Join(d, ".bare"))
			write(t, filepath.Join(d, ".git"), "gitdir: ./.bare\n")
			return d, d, "main"
		},
		"linked worktree": func(t *testing.T) (string, string, string) {
			d, w := newRepo(t, files), filepath.Join(t.TempDir(), "w")
			git(t, d, "worktree", "add", "-q", "-b", "topic/x", w)
			return w, d, "topic/x"
		},
		"shallow": func(t *testing.T) (string, string, string) {
			d, c := newRepo(t, files), filepath.Join(t.TempDir(), "c")
			for range 3 {
				git(t, d, "commit", "-q", "--allow-empty", "-m", "more")
			}
			git(t, "/", "clone", "-q", "--depth=2", "file://"+d, c)
			return c, c, "main"
		},
		"submodule": func(t *testing.T) (string, string, string) {
			d := newRepo(t, files)
			git(t, d, "-c", "protocol.file.allow=always", "submodule", "-q", "add", newRepo(t, files), "mod")
			return filepath.Join(d, "mod"), filepath.Join(d, "mod"), "main"
		},
		"with a submodule": func(t *testing.T) (string, string, string) {
			d := newRepo(t, files)
			git(t, d, "-c", "protocol.file.allow=always", "submodule", "-q", "add", newRepo(t, files), "mod")
			git(t, d, "commit", "-q", "-m", "mod")
			return d, d, "main"
		},
		"borrowed objects": func(t *testing.T) (string, string, string) {
			d, c := newRepo(t, files), filepath.Join(t.TempDir(), "quo\"te\n")
			git(t, "/", "clone", "-q", "--shared", d, c)
			return c, c, "main"
		},
		"an awkward path": func(t *testing.T) (string, string, string) {
			d, c := newRepo(t, files), filepath.Join(t.TempDir(), "a:b \"c\" \\ \xff\n#")
			git(t, "/", "clone", "-q", d, c)
			return c, c, "main"
		},
		"a relative link to it": func(t *testing.T) (string, string, string) {
			d, l := newRepo(t, files), filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(d, l); err != nil {
				t.Fatal(err)
			}
			return l, d, "main"
		},
		"split index": func(t *testing.T) (string, string, string) {
			d := newRepo(t, files)
			git(t, d, "update-index", "--split-index")
			write(t, filepath.Join(d, "a"), "1\n")
			git(t, d, "add", "-A")
			return d, d, "main"
		},
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			path, dir, branch := form(t)
			head := git(t, path, "rev-parse", "HEAD")
			r := open(t, newStore(t), path)
			base := resolve(t, r, "")
			if base.ID != head || base.Branch != branch {
				t.Fatalf("base is %+v, want %s on %q", base, head, branch)
			}
			if d, err := r.Dirty(context.Background()); err != nil || d != (substrate.Dirty{}) {
				t.Errorf("dirty: %+v, %v", d, err)
			}
			testInside(t, baseOf(t, r, base), base)
			result, err := grow(t, r, base, meta, record{substrate.File, "d/new", "n\n"}, record{substrate.Delete, "a", ""})
			if err != nil {
				t.Fatal(err)
			}
			got := git(t, dir, "diff-tree", "-r", "--name-status", head, "refs/heads/tendril/r-1")
			if got != "D\ta\nA\td/new" {
				t.Errorf("the commit has:\n%s", got)
			}
			if parents := git(t, dir, "log", "-1", "--format=%P", result.Commit); parents != head {
				t.Errorf("its parent is %s", parents)
			}
			if out := git(t, dir, "fsck", "--strict", "--connectivity-only"); strings.Contains(out, "error") {
				t.Error(out)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	first := git(t, dir, "rev-parse", "HEAD")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "second")
	second := git(t, dir, "rev-parse", "HEAD")
	git(t, dir, "tag", "-a", "-m", "t", "annotated", first)
	git(t, dir, "tag", "both", first)
	git(t, dir, "branch", "both", second)
	git(t, dir, "branch", "feature/login", first)
	git(t, dir, "update-ref", "refs/remotes/origin/main", first)
	git(t, dir, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
	git(t, dir, "tag", "tree", first+"^{tree}")
	r := open(t, newStore(t), dir)
	for _, packed := range []bool{false, true} {
		if packed {
			git(t, dir, "pack-refs", "--all", "--prune")
		}
		for rev, want := range map[string]string{
			"": second, "HEAD": second, "@": second, "main": second, "refs/heads/main": second, "heads/main": second,
			"annotated": first, "both": first, "heads/both": second, "origin": first, "origin/main": first,
			"feature/login": first, first: first, first[:8]: first, strings.ToUpper(first[:8]): first,
			"HEAD~1": first, "main^": first, "main~0": second, "annotated^0": first,
		} {
			c, err := r.Resolve(context.Background(), rev)
			if err != nil || c.ID != want {
				t.Errorf("%q resolves to %s, %v; want %s", rev, c.ID, err, want)
			}
			if c.Tree != git(t, dir, "rev-parse", want+"^{tree}") || c.Time != time.Unix(1_700_000_000, 0).UTC() {
				t.Errorf("%q is %+v", rev, c)
			}
		}
		for rev, kind := range map[string]fault.Kind{
			"feature/logni": fault.NotFound, "deadbeef": fault.NotFound, "main~5": fault.NotFound, "main@{1}": fault.NotFound,
			":/second": fault.NotFound, "--all": fault.NotFound, "main:a": fault.NotFound, "../../x": fault.NotFound, "main..both": fault.NotFound,
			"main^{/x}": fault.Invalid, "main\x00": fault.NotFound, "tree": fault.Invalid, strings.Repeat("1", 40): fault.NotFound,
		} {
			_, err := r.Resolve(context.Background(), rev)
			if !fault.Is(err, kind) {
				t.Errorf("%q: %v (%s), want %s", rev, err, fault.KindOf(err), kind)
			}
		}
	}
	_, err := r.Resolve(context.Background(), "feature/logni")
	if hint := hintOf(err); !strings.Contains(hint, "feature/login") {
		t.Errorf("the hint is %q", hint)
	}
	if c := resolve(t, r, "HEAD"); c.Branch != "main" {
		t.Errorf("HEAD's branch is %q", c.Branch)
	}
	if c := resolve(t, r, "main~1"); c.Branch != "" {
		t.Errorf("main~1 is on branch %q", c.Branch)
	}
}
