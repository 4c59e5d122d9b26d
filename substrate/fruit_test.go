package substrate_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tendril/substrate"
)

func TestThinPath(t *testing.T) {
	dir := newRepo(t, map[string]string{"old.txt": "old\n", "run.sh": "#!/bin/sh\n", "a/b/c": "deep\n", "a/x": "x\n"})
	r := open(t, newStore(t), dir)
	base := resolve(t, r, "")
	image, err := r.Base(context.Background(), base, owner, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := image.Release(); err != nil {
		t.Fatal(err)
	}
	result, err := grow(t, r, base, meta,
		record{substrate.File, "new.txt", "hi\n"},
		record{substrate.Delete, "old.txt", ""},
		record{substrate.Exec, "run.sh", "#!/bin/sh\n"},
		record{substrate.File, "a/x", "x\n"}, // copied up, unchanged
		record{substrate.Dir, "empty", ""},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := "A\tnew.txt\nD\told.txt\nM\trun.sh"
	if diff := cmp.Diff(want, git(t, dir, "diff-tree", "-r", "--name-status", "main", result.Branch)); diff != "" {
		t.Error(diff)
	}
	if result.Changed != 3 {
		t.Errorf("changed %d paths", result.Changed)
	}
	if out := git(t, dir, "fsck", "--strict"); out != "" {
		t.Error(out)
	}
}
