package substrate_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tendril/substrate"
)

// dirtyRepo has every way in which a working tree can differ.
func dirtyRepo(t *testing.T) string {
	t.Helper()
	dir := newRepo(t, map[string]string{
		"same": "1\n", "changed": "1\n", "staged": "1\n", "both": "1\n", "gone": "1\n", "unstaged": "1\n", "mode": "#!/bin/sh\n", "tolink": "1\n",
		"todir": "1\n", "tree/a": "1\n", "tree/b": "1\n", ".gitignore": "*.log\n/out/\n",
	})
	write(t, dir+"/changed", "2\n")
	write(t, dir+"/staged", "2\n")
	write(t, dir+"/both", "2\n")
	git(t, dir, "add", "staged", "both")
	write(t, dir+"/both", "3\n")
	for _, f := range []string{"gone", "tolink", "todir", "tree/a", "tree/b", "tree"} {
		if err := os.Remove(filepath.Join(dir, f)); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "rm", "-q", "--cached", "unstaged") // deleted in the index, there in the working tree
	if err := os.Chmod(dir+"/mode", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("same", dir+"/tolink"); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/todir/x", "x\n")
	write(t, dir+"/tree", "now a file\n")
	write(t, dir+"/new", "n\n")
	write(t, dir+"/new dir/\n\xff", "n\n")
	write(t, dir+"/x.log", "ignored\n")
	write(t, dir+"/out/a", "ignored\n")
	write(t, dir+"/out/b", "ignored\n")
	write(t, dir+"/forced.log", "f\n")
	git(t, dir, "add", "-f", "forced.log")
	return dir
}

func TestDirty(t *testing.T) {
	dir := dirtyRepo(t)
	r := open(t, newStore(t), dir)
	got, err := r.Dirty(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var want substrate.Dirty
	for line := range strings.SplitSeq(git(t, dir, "status", "--porcelain", "-z", "-uall", "--no-renames", "--ignored=matching"), "\x00") {
		switch {
		case line == "":
		case strings.HasPrefix(line, "??"):
			want.Untracked++
		case strings.HasPrefix(line, "!!"):
			want.Ignored++
		default:
			want.Changed++
		}
	}
	if got != want || got.Changed < 10 || got.Untracked < 3 || got.Ignored < 2 {
		t.Errorf("dirty is %+v, git status counts %+v", got, want)
	}
}

func TestSnapshot(t *testing.T) {
	dir := dirtyRepo(t)
	before := stateOf(t, dir)
	r := open(t, newStore(t), dir)
	c, err := r.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	// What Git itself would commit, in a copy.
	theirs := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", dir, theirs).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	git(t, theirs, "add", "-A")
	if want := git(t, theirs, "write-tree"); c.Tree != want {
		t.Errorf("the snapshot's tree is %s, Git makes %s", c.Tree, want)
	}
	again, err := r.Snapshot(context.Background())
	if err != nil || again.ID != c.ID {
		t.Errorf("the same working tree gives %s and %s, %v", c.ID, again.ID, err)
	}
	image := baseOf(t, r, c)
	testInside(t, image, c)
	if diff := cmp.Diff(before, stateOf(t, dir)); diff != "" {
		t.Errorf("the repository has changed:\n%s", diff)
	}
	unchanged, err := grow(t, r, c, meta, record{substrate.File, "new", "n\n"})
	if err != nil || unchanged.Commit != "" {
		t.Errorf("an unchanged run on a snapshot: %+v, %v", unchanged, err)
	}
	result, err := grow(t, r, c, meta, record{substrate.File, "more", "m\n"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A more"}, nameStatus(t, dir, c.ID, result.Commit)); diff != "" {
		t.Error(diff)
	}
	if got := git(t, dir, "log", "--format=%H", result.Commit); got != result.Commit+"\n"+c.ID+"\n"+git(t, dir, "rev-parse", "HEAD") {
		t.Errorf("history:\n%s", got)
	}
	git(t, dir, "fsck", "--strict")
	// The snapshot is in the repository now, also for another process.
	other := open(t, newStore(t), dir)
	if _, err := other.Diff(context.Background(), c.ID, result.Commit, substrate.DiffOptions{}); err != nil {
		t.Error(err)
	}
}

func TestSnapshotOfACleanTree(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	r := open(t, newStore(t), dir)
	c, err := r.Snapshot(context.Background())
	if err != nil || c.ID != git(t, dir, "rev-parse", "HEAD") {
		t.Errorf("a clean tree gives %+v, %v", c, err)
	}
}

// TestSubmodulesAreNotEntered has a submodule and another repository in the
// working tree, both dirty and both hostile.
func TestSubmodulesAreNotEntered(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	git(t, dir, "-c", "protocol.file.allow=always", "submodule", "-q", "add", newRepo(t, map[string]string{"x": "1\n"}), "mod")
	git(t, dir, "commit", "-q", "-m", "mod")
	write(t, dir+"/mod/x", "dirty\n")
	write(t, dir+"/nested/y", "y\n")
	git(t, dir+"/nested", "init", "-q")
	mark := filepath.Join(t.TempDir(), "mark")
	for _, d := range []string{dir + "/mod", dir + "/nested"} {
		git(t, d, "config", "core.fsmonitor", "touch "+mark+"; false")
	}
	r := open(t, newStore(t), dir)
	d, err := r.Dirty(context.Background())
	if err != nil || d.Changed != 0 {
		t.Errorf("dirty is %+v, %v", d, err)
	}
	c, err := r.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if c.ID != git(t, dir, "rev-parse", "HEAD") {
		t.Errorf("the snapshot holds %v", baseOf(t, r, c))
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("another repository's fsmonitor ran")
	}
}

// TestSnapshotDoesNotFollow plants what would lead it outside.
func TestSnapshotDoesNotFollow(t *testing.T) {
	secret := t.TempDir()
	write(t, filepath.Join(secret, "key"), "SECRET")
	dir := newRepo(t, map[string]string{"d/key": "1\n"})
	if err := os.RemoveAll(dir + "/d"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d", "untracked"} {
		if err := os.Symlink(secret, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, newStore(t), dir)
	c, err := r.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range baseOf(t, r, c) {
		if strings.Contains(e.Content, "SECRET") {
			t.Errorf("%s holds a host file", name)
		}
	}
}
