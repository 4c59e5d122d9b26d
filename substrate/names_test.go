package substrate_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tendril/substrate"
)

// TestNamesAgreeWithFsck compares, for thousands of names near those that some
// file system takes for .git or .gitmodules, what is left out with what "git
// fsck --strict" refuses.
func TestNamesAgreeWithFsck(t *testing.T) {
	dir := newRepo(t, nil)
	raw := t.TempDir()
	rnd := rand.New(rand.NewPCG(5, 6))
	starts := []string{".git", ".gitmodules", "git~1", "gitmod~1", "gi7eba~1", "gi7eb~10", "gi7~1234", "~1234567", "gitmo~1", ".gitignore", ".gitmodule", "GI7EBA~9"}
	pieces := []string{".", " ", ":", `\`, "\u200c", "\u206a", "\ufeff", "\u202e", "\xff", "\xe2\x80", "x", "~", "1", "0", "G", "I", "\u0131", "::$DATA", ".git", "\n"}
	type tree struct {
		name    string
		symlink bool
	}
	trees := map[string]tree{}
	var paths []string
	var order []tree
	names := map[string]bool{}
	for range 4000 {
		name := starts[rnd.IntN(len(starts))]
		for range rnd.IntN(4) {
			at := rnd.IntN(len(name) + 1)
			if rnd.IntN(2) == 0 {
				at = len(name)
			}
			name = name[:at] + pieces[rnd.IntN(len(pieces))] + name[at:]
		}
		if rnd.IntN(4) == 0 {
			name = strings.ToUpper(name)
		}
		if name == "" || name == "." || name == ".." || names[name] {
			continue
		}
		names[name] = true
		for _, symlink := range []bool{false, true} {
			mode := "100644 "
			if symlink {
				mode = "120000 "
			}
			path := filepath.Join(raw, fmt.Sprint(len(paths)))
			if err := os.WriteFile(path, []byte(mode+name+"\x00"+strings.Repeat("\x11", 20)), 0o600); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
			order = append(order, tree{name, symlink})
		}
	}
	// In batches: hash-object --literally keeps every file open.
	for batch := range slices.Chunk(paths, 500) {
		ids := gitInput(t, dir, strings.Join(batch, "\n"), "hash-object", "--literally", "-w", "-t", "tree", "--stdin-paths")
		for id := range strings.SplitSeq(ids, "\n") {
			trees[id] = order[len(trees)]
		}
	}
	out, _ := tryGit(t, dir, "", "fsck", "--strict", "--no-dangling")
	refused := map[string]bool{}
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "error in tree "); ok && (strings.Contains(line, "hasDotgit") || strings.Contains(line, "gitmodulesSymlink")) {
			refused[rest[:40]] = true
		}
	}
	if len(refused) < 200 {
		t.Fatalf("git fsck refuses only %d names", len(refused))
	}
	for id, tree := range trees {
		got := substrate.RefuseName(tree.name, tree.symlink) != ""
		// On Windows a backslash separates: there, Git is as strict as we are.
		if got != refused[id] && !(got && strings.Contains(tree.name, `\`)) {
			t.Errorf("%+q, symlink %v: left out %v, git fsck refuses %v", tree.name, tree.symlink, got, refused[id])
		}
	}
}
