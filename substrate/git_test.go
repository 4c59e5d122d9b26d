package substrate_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tendril/substrate"
)

// owner is who entries belong to inside.
var owner = substrate.Owner{UID: 70707, GID: 70707}

var meta = substrate.Meta{Run: "r-1", Pollen: "botanist", Provider: "runsc", Time: time.Unix(1_800_000_000, 0)}

// testEnv is what a person's Git sees in the tests: nothing of this machine.
func testEnv(t testing.TB) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + homeDir(t), "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=1700000000 +0000",
	}
}

var homes = map[string]string{}

// homeDir is one empty home directory per test.
func homeDir(t testing.TB) string {
	if homes[t.Name()] == "" {
		homes[t.Name()] = t.TempDir()
		t.Cleanup(func() { delete(homes, t.Name()) })
	}
	return homes[t.Name()]
}

// git runs a person's Git in dir and returns its output without the last
// newline.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	return gitInput(t, dir, "", args...)
}

func gitInput(t testing.TB, dir, stdin string, args ...string) string {
	t.Helper()
	out, err := tryGit(t, dir, stdin, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryGit(t testing.TB, dir, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = testEnv(t)
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	if err != nil {
		return out.String() + complaints.String(), err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// newRepo makes a repository with one commit of the files on branch main.
func newRepo(t testing.TB, files map[string]string, initArgs ...string) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, append([]string{"init", "-q", "-b", "main"}, initArgs...)...)
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "base")
	return dir
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// storeDirs remembers where each store is.
var storeDirs = map[*substrate.Store]string{}

func newStore(t testing.TB) *substrate.Store {
	t.Helper()
	dir := t.TempDir()
	s, err := substrate.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	storeDirs[s] = dir
	return s
}

// open opens a repository and closes it with the test.
func open(t testing.TB, s *substrate.Store, path string) *substrate.Repository {
	t.Helper()
	r, err := s.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func resolve(t testing.TB, r *substrate.Repository, rev string) substrate.Commit {
	t.Helper()
	c, err := r.Resolve(context.Background(), rev)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// record is one change of a Sprout.
type record struct {
	kind    substrate.Kind
	path    string
	content string
}

// grow makes a Fruit of the records on the base.
func grow(t testing.TB, r *substrate.Repository, base substrate.Commit, meta substrate.Meta, records ...record) (substrate.Result, error) {
	t.Helper()
	f, err := r.NewFruit(context.Background(), base, substrate.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range records {
		if err := f.Add(rec.kind, []byte(rec.path), int64(len(rec.content)), strings.NewReader(rec.content)); err != nil {
			if err := f.Discard(); err != nil {
				t.Error(err)
			}
			return substrate.Result{}, err
		}
	}
	return f.Commit(context.Background(), meta)
}
