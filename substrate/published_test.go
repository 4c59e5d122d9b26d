package substrate

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What a branch or a tag holds is published, loose or packed; a stash, a run's branch and
// an object that nothing holds are not.
func TestPublished(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@localhost"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if out, err := exec.Command("git", "init", "-q", "-b", "main", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commit := func(message string) string {
		git("commit", "-q", "--allow-empty", "-m", message)
		return git("rev-parse", "HEAD")
	}
	first := commit("first")
	packed := commit("packed")
	git("tag", "-m", "annotated", "v1")
	git("pack-refs", "--all")
	loose := commit("loose")
	git("checkout", "-q", "--detach")
	dangling := commit("dangling")
	fruit := commit("fruit")
	git("update-ref", "refs/heads/tendril/r-01jd0000000000000000000000", fruit)
	stashed := commit("stashed")
	git("update-ref", "refs/stash", stashed)
	remote := commit("remote")
	git("update-ref", "refs/remotes/origin/secret", remote)
	git("checkout", "-q", "main")

	store, err := OpenStore(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	repository, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer repository.Close()
	for name, c := range map[string]struct {
		id   string
		want bool
	}{
		"an ancestor": {first, true}, "packed": {packed, true}, "loose": {loose, true},
		"dangling": {dangling, false}, "a run's branch": {fruit, false}, "a stash": {stashed, false}, "a remote's": {remote, false},
	} {
		if got, err := repository.Published(t.Context(), c.id); got != c.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
