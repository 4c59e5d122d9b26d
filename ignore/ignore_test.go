package ignore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestIgnored(t *testing.T) {
	for _, tc := range []struct {
		file, path string
		want       bool
	}{
		{"foo", "foo", true},
		{"foo", "a/foo", true},
		{"foo/", "foo", false},
		{"foo/", "foo/", true},
		{"/foo", "a/foo", false},
		{"a/foo", "a/foo", true},
		{"a/foo", "b/a/foo", false},
		{"*.o\n!keep.o", "keep.o", false},
		{"*.o\n!keep.o", "x.o", true},
		{"dir/\n!dir/keep", "dir/keep", true}, // nothing comes back from an ignored directory
		{"**/x", "x", true},
		{"**/x", "a/b/x", true},
		{"**/x", "a/bx", false},
		{"a/**", "a/b/c", true},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"a/*/b", "a/x/y/b", false},
		{"foo**/bar", "foox/y/bar", true}, // Git's matcher sees the rest as a start
		{"\xef\xbb\xbffoo", "foo", true},
		{"foo\r\n", "foo", true},
		{"foo \n", "foo", true},
		{"foo\\ \n", "foo ", true},
		{"foo\\  \n", "foo ", true},
		{"\\#a", "#a", true},
		{"#a", "#a", false},
		{"\\!a", "!a", true},
		{"[[:alpha:]]x", "ax", true},
		{"[[:alpha:]]x", "1x", false},
		{"[!a]x", "bx", true},
		{"[^a]x", "ax", false},
		{"[]a]x", "]x", true},
		{"[a-", "[a-", false},
		{"a\x00b", "a", true},
		{"?", "\xff", true},
		{"", "", false},
		{"!", "a", false},
		{"/", "a", false},
	} {
		name, dir := strings.CutSuffix(tc.path, "/")
		parts := strings.Split(name, "/")
		d := Top([]byte(tc.file))
		for _, p := range parts[:len(parts)-1] {
			d = d.Enter(p, nil)
		}
		if got := d.Ignored(parts[len(parts)-1], dir); got != tc.want {
			t.Errorf("%q on %q: %v, want %v", tc.file, tc.path, got, tc.want)
		}
	}
}

// gitTree is a generated work tree with .gitignore files.
type gitTree struct {
	dir     string
	tracked map[string]bool
}

var (
	names     = []string{"a", "b", "foo", "bar.o", "x.y", "-d", "a b", "A1", "#h", "!n", "t ", "\xc3\xa9", "[x]"}
	fragments = []string{"a", "b", "foo", "bar", ".o", "x", "*", "**", "?", "/", "/", "[a-f]", "[!a]", "[[:alpha:]]", "[[:digit:]x]",
		"[]-a]", "\\", "!", "#", " ", "\\ ", "-", "A", "[", "]", ":", "\xc3\xa9", "[[:upper:]-z]", "[a-\\f]", "[[:bad:]]", "[^/]"}
)

func randomPatterns(r *rand.Rand) []byte {
	var b bytes.Buffer
	if r.IntN(8) == 0 {
		b.WriteString("\xef\xbb\xbf")
	}
	for range r.IntN(5) {
		if r.IntN(3) == 0 {
			b.WriteString(names[r.IntN(len(names))])
		}
		for range 1 + r.IntN(4) {
			b.WriteString(fragments[r.IntN(len(fragments))])
		}
		b.WriteString([]string{"\n", "\r\n", "\n\n", "/\n", " \n", ""}[r.IntN(6)])
	}
	return b.Bytes()
}

func randomTree(t *testing.T, r *rand.Rand, dir string, depth int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if r.IntN(2) == 0 {
		if err := os.WriteFile(filepath.Join(dir, ".gitignore"), randomPatterns(r), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range names {
		switch {
		case r.IntN(2) == 0:
		case depth > 0 && r.IntN(2) == 0:
			randomTree(t, r, filepath.Join(dir, n), depth-1)
		default:
			if err := os.WriteFile(filepath.Join(dir, n), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// others lists the untracked files that are not ignored, as this package sees
// it. Git does not list an ignored directory's files unless they are tracked.
func others(t *testing.T, tree gitTree, d *Dir, prefix string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(tree.dir, prefix))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		path := prefix + e.Name()
		switch {
		case e.Name() == ".git":
		case e.IsDir():
			file, _ := os.ReadFile(filepath.Join(tree.dir, path, ".gitignore"))
			list = append(list, others(t, tree, d.Enter(e.Name(), file), path+"/")...)
		case !tree.tracked[path] && !d.Ignored(e.Name(), false):
			list = append(list, path)
		}
	}
	return list
}

func TestAgreesWithGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i := range 60 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		tree := gitTree{dir: t.TempDir(), tracked: map[string]bool{}}
		git := func(args ...string) string {
			t.Helper()
			cmd := exec.Command("git", append([]string{"-C", tree.dir}, args...)...)
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "XDG_CONFIG_HOME=/nonexistent", "HOME=/nonexistent")
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("git %q: %v", args, err)
			}
			return string(out)
		}
		git("init", "-q")
		randomTree(t, r, tree.dir, 2)
		// Some files are tracked, ignored or not.
		var add []string
		for _, f := range strings.Split(git("ls-files", "-oz"), "\x00") {
			if f != "" && r.IntN(6) == 0 {
				add = append(add, f)
				tree.tracked[f] = true
			}
		}
		if len(add) > 0 {
			git(append([]string{"--literal-pathspecs", "add", "-f", "--"}, add...)...)
		}
		var want []string
		for _, f := range strings.Split(git("ls-files", "-oz", "--exclude-standard"), "\x00") {
			if f != "" {
				want = append(want, f)
			}
		}
		file, _ := os.ReadFile(filepath.Join(tree.dir, ".gitignore"))
		got := others(t, tree, Top(file), "")
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("tree %d of seed %d: git and this package differ", i, seed)
			for _, f := range got {
				if !slices.Contains(want, f) {
					t.Errorf("git ignores %q: %s", f, why(tree.dir, f))
				}
			}
			for _, f := range want {
				if !slices.Contains(got, f) {
					t.Errorf("git does not ignore %q", f)
				}
			}
			return
		}
	}
}

func why(dir, file string) string {
	out, _ := exec.Command("git", "-C", dir, "check-ignore", "--no-index", "-v", "--", file).CombinedOutput()
	return fmt.Sprintf("%q", out)
}

func TestHostilePatternsAreBounded(t *testing.T) {
	// Git's own matcher needs exponential time for the like of these.
	pattern := strings.Repeat("*a", 2000) + "b"
	path := strings.Repeat("a", 4000)
	if Top([]byte(pattern)).Ignored(path, false) {
		t.Error("matched")
	}
	pattern = "x/" + strings.Repeat("**/a*", 500) + "b"
	d := Top([]byte(pattern)).Enter("x", nil)
	for range 100 {
		d = d.Enter("aa", nil)
	}
	if d.Ignored("aa", false) {
		t.Error("matched")
	}
}

func FuzzIgnored(f *testing.F) {
	for _, s := range []string{"a/**/b", "[[:alpha:]", "\\", "!a\n*", "**/**/**/x", "[]]\r\n", "*\\", "a[!-z]/"} {
		f.Add([]byte(s), "a/b/c")
	}
	f.Fuzz(func(t *testing.T, file []byte, path string) {
		if len(file) > 1<<12 || len(path) > 1<<8 {
			return
		}
		d := Top(file)
		parts := strings.Split(path, "/")
		for _, p := range parts[:len(parts)-1] {
			above := d.Ignored(p, true)
			d = d.Enter(p, file)
			if above && !d.Ignored("anything", false) {
				t.Error("an entry of an ignored directory is not ignored")
			}
		}
		d.Ignored(parts[len(parts)-1], false)
	})
}
