package substrate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tendril/bench"
	"tendril/substrate"
)

// manyFiles makes a repository with 80 000 files in 800 directories, without a
// checkout.
func manyFiles(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "many.git")
	git(t, "/", "init", "-q", "--bare", "-b", "main", dir)
	var in strings.Builder
	in.WriteString("commit refs/heads/main\ncommitter A <a@example.com> 1700000000 +0000\ndata 1\nx\n")
	for d := range 800 {
		for f := range 100 {
			content := fmt.Sprintf("file %d in directory %d\n%s", f, d, strings.Repeat("line of text\n", f%20))
			fmt.Fprintf(&in, "M 100644 inline d%d/sub%d/f%d\ndata %d\n%s\n", d%20, d, f, len(content), content)
		}
	}
	gitInput(t, dir, in.String(), "fast-import", "--quiet")
	return dir
}

// TestManyFiles makes the image of 80 000 files, and reads it back.
func TestManyFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: 80 000 files")
	}
	r := open(t, newStore(t), manyFiles(t))
	base := resolve(t, r, "")
	steps := 0
	b, err := r.Base(context.Background(), base, owner, func(done, total int) {
		if steps++; done != steps || total != 80_000 {
			t.Errorf("progress says %d of %d at step %d", done, total, steps)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	n := 0
	for name := range readImage(t, b.Image) {
		if !strings.HasPrefix(name, ".git") {
			n++
		}
	}
	if n != 80_000+800+20+1 || steps != 80_000 {
		t.Errorf("the image has %d entries after %d steps", n, steps)
	}
}

// BenchmarkRow4OneChange hands over one change in 80 000 files, with the base in the
// cache, against what a user would do with Git: a worktree, a commit, and its removal.
// Both work on the same repository, in turn.
func BenchmarkRow4OneChange(b *testing.B) {
	dir := manyFiles(b)
	store := newStore(b)
	ctx := context.Background()
	n := 0
	ours := func() error {
		r, err := store.Open(ctx, dir)
		if err != nil {
			return err
		}
		defer r.Close()
		base := resolve(b, r, "")
		image, err := r.Base(ctx, base, owner, nil)
		if err != nil {
			return err
		}
		defer image.Release()
		n++
		m := meta
		m.Run = fmt.Sprintf("r-%d", n)
		result, err := grow(b, r, base, m, record{substrate.File, "d1/sub1/f1", fmt.Sprint(n)})
		if err == nil && result.Changed != 1 {
			err = fmt.Errorf("%d changed", result.Changed)
		}
		return err
	}
	theirs := func() error {
		n++
		w := filepath.Join(b.TempDir(), "w")
		git(b, dir, "worktree", "add", "-q", "-b", fmt.Sprintf("w-%d", n), w, "main")
		if err := os.WriteFile(filepath.Join(w, "d1/sub1/f1"), []byte(fmt.Sprint(n)), 0o600); err != nil {
			return err
		}
		git(b, w, "commit", "-q", "-am", "x")
		git(b, dir, "worktree", "remove", w)
		return nil
	}
	if err := ours(); err != nil { // makes the image
		b.Fatal(err)
	}
	bench.Pairs(b, ours, theirs)
}

// BenchmarkColdBase makes the image of 80 000 files.
func BenchmarkColdBase(b *testing.B) {
	dir := manyFiles(b)
	for b.Loop() {
		r := open(b, newStore(b), dir)
		image, err := r.Base(context.Background(), resolve(b, r, ""), owner, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := image.Release(); err != nil {
			b.Fatal(err)
		}
	}
}
