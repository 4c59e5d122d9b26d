package substrate_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gvisor "gvisor.dev/gvisor/pkg/erofs"

	"tendril/substrate"
)

// inside is one entry of a base image.
type inside struct {
	Mode     uint16
	UID, GID uint32
	Mtime    int64
	Content  string
}

// readImage reads an image with gVisor's own reader, as the wall will.
func readImage(t testing.TB, path string) map[string]inside {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	image, err := gvisor.OpenImage(f)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	all := map[string]inside{}
	var walk func(path string, nid uint64)
	walk = func(path string, nid uint64) {
		node, err := image.Inode(nid)
		if err != nil {
			t.Fatal(err)
		}
		e := inside{Mode: node.Mode(), UID: node.UID(), GID: node.GID(), Mtime: int64(node.Mtime())}
		switch {
		case node.IsDir():
			err = node.IterDirents(func(name string, _ uint8, child uint64) error {
				if name != "." && name != ".." {
					walk(strings.TrimPrefix(path+"/"+name, "/"), child)
				}
				return nil
			})
		case node.IsSymlink():
			e.Content, err = node.Readlink()
		default:
			var ranges [2]gvisor.FileRange
			ranges, err = node.DataRanges()
			e.Content = string(ranges[0].Bytes) + string(ranges[1].Bytes)
		}
		if err != nil {
			t.Fatal(err)
		}
		all[path] = e
	}
	walk("", image.RootNid())
	return all
}

// unpack makes an image a directory, with modes and times.
func unpack(t testing.TB, entries map[string]inside) string {
	t.Helper()
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, e := range entries {
		path := filepath.Join(dir, name)
		check(os.MkdirAll(filepath.Dir(path), 0o755))
		switch e.Mode & 0o170000 {
		case 0o040000:
			check(os.MkdirAll(path, 0o755))
		case 0o120000:
			check(os.Symlink(e.Content, path))
		default:
			check(os.WriteFile(path, []byte(e.Content), os.FileMode(e.Mode&0o777)))
			check(os.Chtimes(path, time.Unix(e.Mtime, 0), time.Unix(e.Mtime, 0)))
		}
	}
	return dir
}

// baseOf makes the base image of a commit and reads it.
func baseOf(t testing.TB, r *substrate.Repository, c substrate.Commit) map[string]inside {
	t.Helper()
	b, err := r.Base(context.Background(), c, owner, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	return readImage(t, b.Image)
}

func TestBaseImage(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			long := strings.Repeat("n", 255)
			names := []string{"a/b/c", "a.b", "a-b", "-rf", "line\nbreak", "\xff\xfe", "Case", "case", long, "space ", `quo"te`, `back\slash`, ".hidden", "empty/.keep"}
			files := map[string]string{"crlf": "a\r\nb\r\n", "nothing": "", ".gitattributes": "* text=auto eol=crlf\n*.lfs filter=lfs\n", "big.lfs": "version https://git-lfs.github.com/spec/v1\n"}
			for _, name := range names {
				files[name] = "content of " + name
			}
			dir := newRepo(t, files, "--object-format="+format)
			if err := os.Chmod(filepath.Join(dir, "a/b/c"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("../../etc/passwd", filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			git(t, dir, "add", "-A")
			zero := strings.Repeat("1", len(git(t, dir, "rev-parse", "HEAD")))
			git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+zero+",sub/module")
			git(t, dir, "commit", "-q", "-m", "second")
			git(t, dir, "branch", "secret")
			git(t, dir, "tag", "v1")

			r := open(t, newStore(t), dir)
			c := resolve(t, r, "")
			got := baseOf(t, r, c)
			for name, content := range files {
				if name == "crlf" || strings.HasPrefix(name, ".gitattr") {
					content = gitInput(t, dir, "", "cat-file", "blob", "HEAD:"+name) + "\n"
				}
				if e, ok := got[name]; !ok || e.Content != content {
					t.Errorf("%.40q holds %q", name, e.Content)
				}
			}
			for name, mode := range map[string]uint16{"a/b/c": 0o100755, "a.b": 0o100644, "link": 0o120777, "sub/module": 0o040755, ".git": 0o040755} {
				if got[name].Mode != mode {
					t.Errorf("%s has mode %o, want %o", name, got[name].Mode, mode)
				}
			}
			for name, e := range got {
				if e.UID != owner.UID || e.GID != owner.GID {
					t.Fatalf("%q belongs to %d:%d", name, e.UID, e.GID)
				}
				if name != ".git/index" && e.Mtime != c.Time.Unix() {
					t.Errorf("%q has time %d", name, e.Mtime)
				}
				for _, hidden := range []string{"secret", "v1", "logs", "stash", "packed-refs", "ORIG_HEAD"} {
					if strings.HasPrefix(name, ".git/") && strings.Contains(name, hidden) {
						t.Errorf("the image has %s", name)
					}
				}
			}
			testInside(t, got, c)
		})
	}
}

// testInside looks at an image with the Git that the Sprout would use.
func testInside(t *testing.T, image map[string]inside, c substrate.Commit) {
	t.Helper()
	dir := unpack(t, image)
	if out := git(t, dir, "status", "--porcelain", "--ignore-submodules=none"); out != "" {
		t.Errorf("git status inside: %s", out)
	}
	if out := git(t, dir, "rev-parse", "HEAD"); out != c.ID {
		t.Errorf("HEAD inside is %s, want %s", out, c.ID)
	}
	if out := git(t, dir, "fsck", "--strict", "--full"); out != "" && !strings.HasPrefix(out, "notice") {
		t.Errorf("git fsck inside: %s", out)
	}
	if out := git(t, dir, "for-each-ref", "--format=%(refname)"); strings.Contains(out, "\n") {
		t.Errorf("references inside: %s", out)
	}
	// Poison contents behind the index's back: same size, same time. If Git read
	// one file, it would see the difference.
	for name, e := range image {
		if e.Mode&0o170000 != 0o100000 || e.Content == "" || strings.HasPrefix(name, ".git/") {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Repeat("x", len(e.Content))), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Unix(e.Mtime, 0), time.Unix(e.Mtime, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if out := git(t, dir, "status", "--porcelain"); out != "" {
		t.Errorf("the first git status inside reads contents: %s", out)
	}
	// And that the check can fail: a changed time makes it look.
	for name, e := range image {
		if e.Mode == 0o100644 && e.Content != "" && !strings.HasPrefix(name, ".git") {
			if err := os.Chtimes(filepath.Join(dir, name), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out := git(t, dir, "status", "--porcelain"); out == "" {
		t.Error("poisoned files are not noticed even when their time changes")
	}
}
