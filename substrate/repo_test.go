package substrate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

func TestOpenRefuses(t *testing.T) {
	files := map[string]string{"a": "1\n"}
	swap := func(t *testing.T, path string) { // by a link to itself elsewhere
		t.Helper()
		aside := filepath.Join(t.TempDir(), "aside")
		if err := os.Rename(path, aside); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(aside, path); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		make func(t *testing.T) string
		kind fault.Kind
		text string
	}{
		"nothing": {func(t *testing.T) string { return t.TempDir() }, fault.Invalid, "not inside a Git repository"},
		"absent":  {func(t *testing.T) string { return "/nowhere/at/all" }, fault.NotFound, "/nowhere"},
		"a file": {func(t *testing.T) string {
			write(t, filepath.Join(t.TempDir(), "f"), "")
			return filepath.Join(newRepo(t, files), "a")
		}, fault.Invalid, "not a directory"},
		"linked .git":    {func(t *testing.T) string { d := newRepo(t, files); swap(t, d+"/.git"); return d }, fault.Invalid, "symbolic link"},
		"linked objects": {func(t *testing.T) string { d := newRepo(t, files); swap(t, d+"/.git/objects"); return d }, fault.Invalid, "objects is a symbolic link"},
		"linked refs":    {func(t *testing.T) string { d := newRepo(t, files); swap(t, d+"/.git/refs"); return d }, fault.Invalid, "refs is a symbolic link"},
		"linked heads":   {func(t *testing.T) string { d := newRepo(t, files); swap(t, d+"/.git/refs/heads"); return d }, fault.Invalid, "refs/heads is a symbolic link"},
		"linked packs":   {func(t *testing.T) string { d := newRepo(t, files); swap(t, d+"/.git/objects/pack"); return d }, fault.Invalid, "objects/pack is a symbolic link"},
		"linked config":  {func(t *testing.T) string { d := newRepo(t, files); swap(t, d+"/.git/config"); return d }, fault.Invalid, "symbolic link"},
		"config is a FIFO": {func(t *testing.T) string {
			d := newRepo(t, files)
			if err := errors.Join(os.Remove(d+"/.git/config"), syscall.Mkfifo(d+"/.git/config", 0o600)); err != nil {
				t.Fatal(err)
			}
			return d
		}, fault.Invalid, "not a regular file"},
		"reftable": {func(t *testing.T) string {
			d := newRepo(t, files)
			git(t, d, "config", "core.repositoryFormatVersion", "1")
			git(t, d, "config", "extensions.refStorage", "reftable")
			return d
		}, fault.Invalid, "reftable"},
		"unknown extension": {func(t *testing.T) string {
			d := newRepo(t, files)
			write(t, d+"/.git/config", "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tfuture = 1\n")
			return d
		}, fault.Invalid, "future"},
		"broken config": {func(t *testing.T) string {
			d := newRepo(t, files)
			write(t, d+"/.git/config", "[core\n")
			return d
		}, fault.Invalid, "config"},
		"alternate of another account": {func(t *testing.T) string {
			if os.Geteuid() != 0 {
				t.Skip("giving files away needs root")
			}
			d, other := newRepo(t, files), newRepo(t, files)
			if err := os.Chown(other+"/.git/objects", 65534, 65534); err != nil {
				t.Fatal(err)
			}
			write(t, d+"/.git/objects/info/alternates", other+"/.git/objects\n")
			return d
		}, fault.Denied, "belongs to"},
		"alternate that is not there": {func(t *testing.T) string {
			d := newRepo(t, files)
			write(t, d+"/.git/objects/info/alternates", "../../nowhere\n")
			return d
		}, fault.Invalid, "nowhere"},
		"alternate that is a link": {func(t *testing.T) string {
			d, l := newRepo(t, files), filepath.Join(t.TempDir(), "l")
			if err := os.Symlink(newRepo(t, files)+"/.git/objects", l); err != nil {
				t.Fatal(err)
			}
			write(t, d+"/.git/objects/info/alternates", l+"\n")
			return d
		}, fault.Invalid, "borrows objects"},
		"http alternates": {func(t *testing.T) string {
			d := newRepo(t, files)
			write(t, d+"/.git/objects/info/http-alternates", "http://example.com/\n")
			return d
		}, fault.Invalid, "http-alternates"},
		"a chain of alternates": {func(t *testing.T) string {
			first := newRepo(t, files)
			last := first
			for range 6 {
				next := newRepo(t, files)
				write(t, last+"/.git/objects/info/alternates", next+"/.git/objects\n")
				last = next
			}
			return first
		}, fault.Invalid, "more than 5 places"},
		"bare repository in a working tree": {func(t *testing.T) string {
			d := newRepo(t, files)
			git(t, d, "init", "-q", "--bare", "sub")
			return d + "/sub"
		}, fault.Invalid, "inside the working tree"},
		"gitdir elsewhere": {func(t *testing.T) string {
			d := t.TempDir()
			write(t, d+"/.git", "gitdir: /nowhere\n")
			return d
		}, fault.Invalid, "/nowhere"},
		"gitdir nonsense": {func(t *testing.T) string { d := t.TempDir(); write(t, d+"/.git", "x"); return d }, fault.Invalid, "gitdir"},
		"another account's": {func(t *testing.T) string {
			if os.Geteuid() != 0 {
				t.Skip("giving files away needs root")
			}
			d := newRepo(t, files)
			if err := os.Chown(d+"/.git", 65534, 65534); err != nil {
				t.Fatal(err)
			}
			return d
		}, fault.Denied, "belongs to"},
		"shallow nonsense": {func(t *testing.T) string {
			d := newRepo(t, files)
			write(t, d+"/.git/shallow", "--upload-pack=x\n")
			return d
		}, fault.Invalid, "shallow"},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.make(t)
			s := newStore(t)
			r, err := s.Open(context.Background(), path)
			if err == nil {
				r.Close()
			}
			wantFault(t, err, c.kind, c.text)
			if left, _ := filepath.Glob(filepath.Join(storeDirs[s], "scratch/*")); len(left) > 0 {
				t.Errorf("left behind: %s", left)
			}
		})
	}
	t.Run("no commit", func(t *testing.T) {
		d := t.TempDir()
		git(t, d, "init", "-q")
		_, err := open(t, newStore(t), d).Resolve(context.Background(), "")
		wantFault(t, err, fault.Invalid, "no commit yet")
	})
}

// TestHostileReferences plants references that lead elsewhere.
func TestHostileReferences(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, strings.Repeat("1", 40)+"\n")
	for name, plant := range map[string]func(dir string) error{
		"HEAD is a link": func(d string) error { os.Remove(d + "/.git/HEAD"); return os.Symlink(secret, d+"/.git/HEAD") },
		"HEAD leads outside": func(d string) error {
			return os.WriteFile(d+"/.git/HEAD", []byte("ref: refs/../../../"+secret+"\n"), 0o600)
		},
		"branch is a link": func(d string) error {
			os.Remove(d + "/.git/refs/heads/main")
			return os.Symlink(secret, d+"/.git/refs/heads/main")
		},
		"branch is a FIFO": func(d string) error {
			os.Remove(d + "/.git/refs/heads/main")
			return syscall.Mkfifo(d+"/.git/refs/heads/main", 0o600)
		},
		"branch names itself": func(d string) error {
			return os.WriteFile(d+"/.git/refs/heads/main", []byte("ref: refs/heads/main\n"), 0o600)
		},
		"branch is no id": func(d string) error { return os.WriteFile(d+"/.git/refs/heads/main", []byte("main\n"), 0o600) },
		"branch is endless": func(d string) error {
			os.Remove(d + "/.git/refs/heads/main")
			return os.Truncate(newFile(d+"/.git/refs/heads/main"), 1<<40)
		},
		"packed-refs is a link": func(d string) error {
			os.Remove(d + "/.git/refs/heads/main")
			return os.Symlink(secret, d+"/.git/packed-refs")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newRepo(t, map[string]string{"a": "1\n"})
			if err := plant(dir); err != nil {
				t.Fatal(err)
			}
			r, err := newStore(t).Open(context.Background(), dir)
			if err == nil {
				defer r.Close()
				_, err = r.Resolve(context.Background(), "")
			}
			wantFault(t, err, fault.Invalid)
			if strings.Contains(err.Error(), "11111") {
				t.Errorf("the error tells what the file holds: %v", err)
			}
		})
	}
	t.Run("the way to the new branch is a link", func(t *testing.T) {
		for _, at := range []string{"tendril", "tendril/r-1"} {
			dir, outside := newRepo(t, map[string]string{"a": "1\n"}), t.TempDir()
			path := filepath.Join(dir, ".git/refs/heads", at)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(outside, path)); err != nil {
				t.Fatal(err)
			}
			r := open(t, newStore(t), dir)
			_, err := grow(t, r, resolve(t, r, ""), meta, record{substrate.File, "b", "2\n"})
			if err == nil {
				t.Error("the link was followed")
			}
			if left, _ := os.ReadDir(outside); len(left) > 0 {
				t.Errorf("written outside: %v", left)
			}
		}
	})
}

func newFile(path string) string {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		panic(err)
	}
	return path
}

func TestMissingObjects(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n", "b": "2\n"})
	blob := git(t, dir, "rev-parse", "HEAD:a")
	t.Run("partial clone", func(t *testing.T) {
		git(t, dir, "config", "uploadpack.allowFilter", "true")
		partial := filepath.Join(t.TempDir(), "p")
		git(t, "/", "clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+dir, partial)
		r := open(t, newStore(t), partial)
		before := stateOf(t, partial)
		_, err := r.Base(context.Background(), resolve(t, r, ""), owner, nil)
		wantFault(t, err, fault.Invalid, "partial clone", "missing")
		if diff := cmp.Diff(before, stateOf(t, partial)); diff != "" {
			t.Errorf("something was fetched:\n%s", diff)
		}
	})
	t.Run("deleted", func(t *testing.T) {
		if err := os.Remove(filepath.Join(dir, ".git/objects", blob[:2], blob[2:])); err != nil {
			t.Fatal(err)
		}
		r := open(t, newStore(t), dir)
		_, err := r.Base(context.Background(), resolve(t, r, ""), owner, nil)
		wantFault(t, err, fault.Invalid, "not everything of commit", blob)
	})
	t.Run("forged", func(t *testing.T) {
		other := git(t, dir, "rev-parse", "HEAD:b")
		data, err := os.ReadFile(filepath.Join(dir, ".git/objects", other[:2], other[2:]))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ".git/objects", blob[:2], blob[2:]), data, 0o444); err != nil {
			t.Fatal(err)
		}
		r := open(t, newStore(t), dir)
		_, err = r.Base(context.Background(), resolve(t, r, ""), owner, nil)
		wantFault(t, err, fault.Invalid)
	})
}

// TestHostileBase refuses trees that Git would not make.
func TestHostileBase(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	blob, tree := git(t, dir, "rev-parse", "HEAD:a"), git(t, dir, "rev-parse", "HEAD^{tree}")
	raw := func(lines ...string) string {
		var b strings.Builder
		for i := 0; i < len(lines); i += 3 {
			b.WriteString(lines[i] + " " + lines[i+1] + "\x00")
			for j := 0; j < len(lines[i+2]); j += 2 {
				var c byte
				for _, h := range lines[i+2][j : j+2] {
					c = c<<4 | byte(strings.IndexRune("0123456789abcdef", h))
				}
				b.WriteByte(c)
			}
		}
		return b.String()
	}
	for name, content := range map[string]string{
		"dotdot":           raw("40000", "..", tree),
		"dot":              raw("100644", ".", blob),
		"empty":            raw("100644", "", blob),
		"slash":            raw("100644", "a/b", blob),
		".git":             raw("40000", ".git", tree),
		".GIT":             raw("40000", ".GIT", tree),
		"git~1":            raw("40000", "git~1", tree),
		".git with stream": raw("40000", ".git::$INDEX_ALLOCATION", tree),
		"invisible":        raw("40000", ".g\u200cit", tree),
		"linked modules":   raw("120000", ".gitmodules", blob),
		"twice":            raw("100644", "a", blob, "100644", "a", blob),
		"file and tree":    raw("100644", "a", blob, "100644", "a.b", blob, "40000", "a", tree),
		"unsorted":         raw("100644", "b", blob, "100644", "a", blob),
		"long":             raw("100644", strings.Repeat("n", 256), blob),
		"device":           raw("20000", "a", blob),
		"mode":             raw("-1", "a", blob),
		"cut off":          raw("100644", "a", blob)[:20],
		"blob as tree":     raw("40000", "a", blob),
		"tree as blob":     raw("100644", "a", tree),
		"absent":           raw("100644", "a", strings.Repeat("1", 40)),
	} {
		t.Run(name, func(t *testing.T) {
			id := gitInput(t, dir, content, "hash-object", "-w", "--literally", "-t", "tree", "--stdin")
			commit := git(t, dir, "commit-tree", "-m", "x", id)
			r := open(t, newStore(t), dir)
			_, err := r.Base(context.Background(), resolve(t, r, commit), owner, nil)
			wantFault(t, err, fault.Invalid)
		})
	}
	t.Run("bomb", func(t *testing.T) {
		id := tree
		for range 12 {
			var lines []string
			for i := range 10 {
				lines = append(lines, "40000", string(rune('a'+i)), id)
			}
			id = gitInput(t, dir, raw(lines...), "hash-object", "-w", "-t", "tree", "--stdin")
		}
		commit := git(t, dir, "commit-tree", "-m", "x", id)
		r := open(t, newStore(t), dir)
		_, err := r.Base(context.Background(), resolve(t, r, commit), owner, nil)
		wantFault(t, err, fault.Invalid, "more than")
	})
	t.Run("link with NUL", func(t *testing.T) {
		target := gitInput(t, dir, "a\x00b", "hash-object", "-w", "--stdin")
		id := gitInput(t, dir, raw("120000", "l", target), "hash-object", "-w", "-t", "tree", "--stdin")
		commit := git(t, dir, "commit-tree", "-m", "x", id)
		r := open(t, newStore(t), dir)
		_, err := r.Base(context.Background(), resolve(t, r, commit), owner, nil)
		wantFault(t, err, fault.Invalid, "NUL")
	})
}
