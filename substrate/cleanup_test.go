package substrate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tendril/substrate"
)

// TestCleanUp puts into a repository what a process leaves that dies between any
// two steps of a commit.
func TestCleanUp(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	r := open(t, newStore(t), dir)
	result, err := grow(t, r, resolve(t, r, ""), meta, record{substrate.File, "b", "2\n"})
	if err != nil {
		t.Fatal(err)
	}
	packs := dir + "/.git/objects/pack"
	names, err := filepath.Glob(packs + "/pack-*.idx")
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	pack := strings.TrimSuffix(filepath.Base(names[0]), ".idx")
	staged := packs + "/tmp_tendril_r-1_X_" + pack + "_idx"
	must(t, os.Rename(names[0], staged)) // died between pack and index
	write(t, packs+"/tmp_tendril_r-1_Y_pack-x_pack", "half")
	write(t, packs+"/tmp_tendril_r-10_Y_pack-x_pack", "another run's")
	write(t, packs+"/tmp_pack_theirs", "git's own")
	write(t, dir+"/.git/refs/heads/tendril/r-1.lock", "")
	write(t, dir+"/.git/refs/heads/tendril/r-10.lock", "")

	for range 2 { // nothing is left to do the second time
		if err := r.CleanUp("r-1"); err != nil {
			t.Fatal(err)
		}
	}
	left := map[string]bool{}
	for name := range stateOf(t, dir+"/.git") {
		left[name] = true
	}
	for name, want := range map[string]bool{
		"/objects/pack/" + pack + ".idx": true, "/objects/pack/" + pack + ".pack": true, "/objects/pack/" + filepath.Base(staged): false,
		"/objects/pack/tmp_tendril_r-1_Y_pack-x_pack": false, "/objects/pack/tmp_tendril_r-10_Y_pack-x_pack": true, "/objects/pack/tmp_pack_theirs": true,
		"/refs/heads/tendril/r-1.lock": false, "/refs/heads/tendril/r-10.lock": true, "/refs/heads/tendril/r-1": true,
	} {
		if left[name] != want {
			t.Errorf("%s is there: %v, want %v", name, left[name], want)
		}
	}
	git(t, dir, "cat-file", "-e", result.Commit)
}

// TestRunsAtTheSameTime commits many Fruits on one repository at once, each from
// a store of its own, as separate processes would.
func TestRunsAtTheSameTime(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	var wg sync.WaitGroup
	repos := make([]*substrate.Repository, 6)
	for i := range repos {
		repos[i] = open(t, newStore(t), dir)
	}
	for i, r := range repos {
		wg.Go(func() {
			base, err := r.Resolve(context.Background(), "")
			if err != nil {
				t.Error(err)
				return
			}
			m := meta
			m.Run = fmt.Sprintf("r-%d", i%5) // two of them want the same branch
			f, err := r.NewFruit(context.Background(), base, substrate.Limits{})
			if err != nil {
				t.Error(err)
				return
			}
			err = f.Add(substrate.File, []byte("b"), 1, strings.NewReader(fmt.Sprint(i)))
			if err != nil {
				t.Error(err)
			}
			if _, err := f.Commit(context.Background(), m); err != nil && i%5 != 0 {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if refs := git(t, dir, "for-each-ref", "--format=%(refname:short)", "refs/heads/tendril"); strings.Count(refs, "\n") != 4 {
		t.Errorf("branches: %s", refs)
	}
	if out := git(t, dir, "fsck", "--strict"); strings.Contains(out, "error") {
		t.Error(out)
	}
	if left, _ := filepath.Glob(dir + "/.git/refs/heads/tendril/*.lock"); len(left) > 0 {
		t.Errorf("locks left: %v", left)
	}
}
