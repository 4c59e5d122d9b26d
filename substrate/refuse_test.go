package substrate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tendril/fault"
	"tendril/substrate"
)

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
		"format version 2": {func(t *testing.T) string {
			d := newRepo(t, files)
			git(t, d, "config", "core.repositoryFormatVersion", "2")
			return d
		}, fault.Invalid, `repository format "2"`},
		"format version without a value": {func(t *testing.T) string {
			d := newRepo(t, files)
			write(t, d+"/.git/config", "[core]\n\trepositoryFormatVersion\n")
			return d
		}, fault.Invalid, "repository format"},
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
