package substrate_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tendril/substrate"
)

// TestIgnored compares which new files stay behind with what "git add" leaves.
func TestIgnored(t *testing.T) {
	files := map[string]string{
		".gitignore": "*.log\n/build/\nnode_modules\n!keep.log\n# comment\ntrailing \n\\#hash\ndoc/**/x\n", "src/.gitignore": "*.o\n!vital.o\n",
		"tracked.log": "t\n", "src/main.c": "m\n",
	}
	records := []record{
		{substrate.File, "new.log", "x"}, {substrate.File, "keep.log", "x"}, {substrate.File, "tracked.log", "changed"}, {substrate.File, "build/a", "x"},
		{substrate.File, "src/build/a", "x"}, {substrate.File, "node_modules/p/index.js", "x"}, {substrate.File, "src/node_modules/q", "x"}, {substrate.File, "src/a.o", "x"},
		{substrate.File, "src/vital.o", "x"}, {substrate.File, "a.o", "x"}, {substrate.File, "#hash", "x"}, {substrate.File, "trailing", "x"}, {substrate.File, "doc/a/b/x", "x"},
		{substrate.File, "late/.gitignore", "*\n!.gitignore\n!yes\n"}, {substrate.File, "late/no", "only here"}, {substrate.File, "late/yes", "x"},
		{substrate.File, "-dash.log", "x"}, {substrate.File, "line\n.log", "x"}, {substrate.File, "\xff.log", "x"}, {substrate.File, ":(glob)*.log", "x"}, {substrate.File, ":!x", "x"},
		{substrate.Symlink, "link.log", "a"}, {substrate.Symlink, "build2", "a"}, {substrate.File, "local.tmp", "x"}, {substrate.File, "global.tmp", "x"},
	}
	dir := newRepo(t, files)
	git(t, dir, "add", "-f", "tracked.log")
	git(t, dir, "commit", "-q", "-m", "tracked")
	write(t, filepath.Join(dir, ".git/info/exclude"), "local.tmp\n")
	t.Setenv("HOME", homeDir(t))
	t.Setenv("XDG_CONFIG_HOME", "")
	write(t, filepath.Join(homeDir(t), "global ignore"), "global.tmp\n")
	git(t, dir, "config", "--global", "core.excludesFile", "~/global ignore")

	theirs := filepath.Join(t.TempDir(), "clone")
	git(t, "/", "clone", "-q", dir, theirs)
	write(t, filepath.Join(theirs, ".git/info/exclude"), "local.tmp\n")
	for _, rec := range records {
		path := filepath.Join(theirs, rec.path)
		if rec.kind == substrate.Symlink {
			if err := os.Symlink(rec.content, path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		write(t, path, rec.content)
	}
	git(t, theirs, "add", "-A")
	git(t, theirs, "commit", "-q", "-m", "theirs")

	r := open(t, newStore(t), dir)
	result, err := grow(t, r, resolve(t, r, ""), meta, records...)
	if err != nil {
		t.Fatal(err)
	}
	want := nameStatus(t, theirs, "HEAD~1", "HEAD")
	if diff := cmp.Diff(want, nameStatus(t, dir, "main", result.Commit)); diff != "" {
		t.Errorf("(-git add +fruit):\n%s", diff)
	}
	if result.Ignored != len(records)-len(want) || result.Ignored < 10 {
		t.Errorf("%d ignored, want %d", result.Ignored, len(records)-len(want))
	}
	if result.Tree != git(t, theirs, "rev-parse", "HEAD^{tree}") {
		t.Error("the tree is not the one that Git makes")
	}
	// What stayed behind is not in the repository at all.
	if _, err := tryGit(t, dir, "", "cat-file", "-e", git(t, theirs, "hash-object", "late/no")); err == nil {
		t.Error("an ignored file's content was imported")
	}
}

// TestRandomRecords compares arbitrary changes with what Git makes of the same.
func TestRandomRecords(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	name := func() string {
		parts := make([]string, 1+rnd.IntN(3))
		for i := range parts {
			parts[i] = string("abcx."[rnd.IntN(4)]) + string("-.0a"[rnd.IntN(4)])
		}
		return strings.Join(parts, "/")
	}
	for round := range 8 {
		files := map[string]string{}
		for range 30 {
			n := name()
			if !slices.ContainsFunc(keys(files), func(o string) bool { return strings.HasPrefix(o, n+"/") || strings.HasPrefix(n, o+"/") }) {
				files[n] = fmt.Sprint(rnd.IntN(3))
			}
		}
		dir := newRepo(t, files)
		theirs := filepath.Join(t.TempDir(), "clone")
		git(t, "/", "clone", "-q", dir, theirs)
		var records []record
		for range 20 {
			n := name()
			path := filepath.Join(theirs, n)
			if blocked(theirs, n) {
				continue
			}
			switch rnd.IntN(3) {
			case 0:
				records = append(records, record{substrate.Delete, n, ""})
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			default:
				content := fmt.Sprint(rnd.IntN(3))
				records = append(records, record{substrate.File, n, content})
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				write(t, path, content)
			}
		}
		git(t, theirs, "add", "-A")
		want := git(t, theirs, "write-tree")
		r := open(t, newStore(t), dir)
		result, err := grow(t, r, resolve(t, r, ""), meta, records...)
		if err != nil {
			t.Fatal(err)
		}
		if result.Tree != want {
			t.Errorf("round %d: tree %s, Git has %s\n%v", round, result.Tree, want, records)
		}
	}
}

// blocked reports whether a part of the path above it is a file.
func blocked(root, name string) bool {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(filepath.Join(root, dir)); err == nil && !info.IsDir() {
			return true
		}
	}
	return false
}

func keys(m map[string]string) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	return all
}
