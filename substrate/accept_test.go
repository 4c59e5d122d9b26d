package substrate_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tendril/fault"
	"tendril/substrate"
)

func acceptance(result substrate.Result, into string) substrate.Acceptance {
	return substrate.Acceptance{Run: meta.Run, Commit: result.Commit, Into: into, Time: time.Unix(1_800_000_100, 0)}
}

// fruit makes a repository with one Fruit in it; HEAD is detached, so that main
// can be accepted into.
func fruit(t *testing.T, files map[string]string, records ...record) (string, *substrate.Repository, substrate.Result) {
	t.Helper()
	dir := newRepo(t, files)
	git(t, dir, "checkout", "-q", "--detach")
	r := open(t, newStore(t), dir)
	result, err := grow(t, r, resolve(t, r, "main"), meta, records...)
	if err != nil {
		t.Fatal(err)
	}
	return dir, r, result
}

func wantFault(t testing.TB, err error, kind fault.Kind, texts ...string) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Fatalf("error is %v (%s), want kind %s", err, fault.KindOf(err), kind)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

func TestAcceptFastForward(t *testing.T) {
	dir, r, result := fruit(t, map[string]string{"a": "1\n"}, record{substrate.File, "b", "2\n"})
	got, err := r.Accept(context.Background(), acceptance(result, "main"))
	if err != nil {
		t.Fatal(err)
	}
	if !got.FastForward || got.To != result.Commit || git(t, dir, "rev-parse", "main") != result.Commit {
		t.Errorf("accepted as %+v", got)
	}
	if _, err := r.Accept(context.Background(), acceptance(result, "main")); !fault.Is(err, fault.Invalid) {
		t.Errorf("accepted twice: %v", err)
	}
}

func TestAcceptMerge(t *testing.T) {
	dir, r, result := fruit(t, map[string]string{"a": "1\n2\n3\n4\n5\n6\n7\n8\n"}, record{substrate.File, "a", "one\n2\n3\n4\n5\n6\n7\n8\n"})
	git(t, dir, "checkout", "-q", "main")
	write(t, filepath.Join(dir, "a"), "1\n2\n3\n4\n5\n6\n7\neight\n")
	git(t, dir, "commit", "-q", "-am", "theirs")
	git(t, dir, "checkout", "-q", "--detach")
	git(t, dir, "pack-refs", "--all")
	before := git(t, dir, "rev-parse", "main")
	got, err := r.Accept(context.Background(), acceptance(result, "main"))
	if err != nil {
		t.Fatal(err)
	}
	if got.FastForward || got.From != before || git(t, dir, "rev-parse", "main") != got.To {
		t.Errorf("accepted as %+v", got)
	}
	if parents := git(t, dir, "log", "-1", "--format=%P", "main"); parents != before+" "+result.Commit {
		t.Errorf("parents are %s", parents)
	}
	if a := git(t, dir, "cat-file", "blob", "main:a"); a != "one\n2\n3\n4\n5\n6\n7\neight" {
		t.Errorf("merged to %q", a)
	}
	git(t, dir, "fsck", "--strict")
	if _, err := os.Stat(filepath.Join(dir, ".git/refs/heads/main.lock")); err == nil {
		t.Error("a lock is left")
	}
}

func TestAcceptConflict(t *testing.T) {
	dir, r, result := fruit(t, map[string]string{"d/a": "1\n", "b": "x\n"}, record{substrate.File, "d/a", "2\n"})
	git(t, dir, "checkout", "-q", "main")
	write(t, filepath.Join(dir, "d/a"), "3\n")
	git(t, dir, "commit", "-q", "-am", "theirs")
	git(t, dir, "checkout", "-q", "--detach")
	before := git(t, dir, "rev-parse", "main")
	_, err := r.Accept(context.Background(), acceptance(result, "main"))
	wantFault(t, err, fault.Invalid, "conflicts", "d/a")
	if git(t, dir, "rev-parse", "main") != before {
		t.Error("the branch has moved")
	}
}

func TestAcceptRefusals(t *testing.T) {
	dir, r, result := fruit(t, map[string]string{"a": "1\n"}, record{substrate.File, "b", "2\n"})
	ctx := context.Background()
	_, err := r.Accept(ctx, acceptance(result, "mian"))
	wantFault(t, err, fault.NotFound, "mian")
	_, err = r.Accept(ctx, acceptance(result, "a..b"))
	wantFault(t, err, fault.Invalid)
	other := acceptance(result, "main")
	other.Commit = git(t, dir, "rev-parse", "main")
	_, err = r.Accept(ctx, other)
	wantFault(t, err, fault.Invalid, "is at "+result.Commit)
	other = acceptance(result, "main")
	other.Run = "r-2"
	_, err = r.Accept(ctx, other)
	wantFault(t, err, fault.NotFound, "tendril/r-2")

	git(t, dir, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
	_, err = r.Accept(ctx, acceptance(result, "alias"))
	wantFault(t, err, fault.Invalid, "stands for refs/heads/main")

	write(t, filepath.Join(dir, ".git/refs/heads/main.lock"), "")
	_, err = r.Accept(ctx, acceptance(result, "main"))
	wantFault(t, err, fault.Unavailable, "locked")
	if err := os.Remove(filepath.Join(dir, ".git/refs/heads/main.lock")); err != nil {
		t.Fatal(err)
	}

	git(t, dir, "checkout", "-q", "main")
	_, err = r.Accept(ctx, acceptance(result, "main"))
	wantFault(t, err, fault.Invalid, "checked out in "+dir)
	if hint := hintOf(err); !strings.Contains(hint, "merge --no-ff tendril/r-1") {
		t.Errorf("the hint is %q", hint)
	}
	git(t, dir, "checkout", "-q", "--detach")
	linked := filepath.Join(t.TempDir(), "linked")
	git(t, dir, "worktree", "add", "-q", linked, "main")
	_, err = r.Accept(ctx, acceptance(result, "main"))
	wantFault(t, err, fault.Invalid, "checked out in "+linked)
}

func TestAcceptGuardsWhatConfigurationExecutes(t *testing.T) {
	for name, c := range map[string]struct {
		key, value, path string
		refused          bool
	}{
		"hooksPath":          {"core.hooksPath", ".husky", ".husky/pre-commit", true},
		"hooksPath case":     {"core.hooksPath", ".Husky", ".husky/pre-commit", true},
		"hooksPath dotted":   {"core.hooksPath", "./x/../.husky/", ".husky/_/h", true},
		"hooksPath replaced": {"core.hooksPath", "tools/hooks", "tools", true},
		"include":            {"include.path", "../team.gitconfig", "team.gitconfig", true},
		"includeIf":          {"includeIf.gitdir:/nowhere/.path", "../team.gitconfig", "team.gitconfig", true},
		"filter":             {"filter.x.clean", "sh scripts/clean.sh %f", "scripts/clean.sh", true},
		"filter process":     {"filter.x.process", "./scripts/filter", "scripts/filter", true},
		"merge driver":       {"merge.x.driver", "'scripts/merge' %A %B", "scripts/merge", true},
		"textconv":           {"diff.x.textconv", "python3 tools/conv.py", "tools/conv.py", true},
		"diff command":       {"diff.x.command", "tools/d", "tools/d", true},
		"external diff":      {"diff.external", "tools/d", "tools/d", true},
		"fsmonitor":          {"core.fsmonitor", "tools/fs", "tools/fs", true},
		"attributesFile":     {"core.attributesFile", "attrs", "attrs", true},
		"alias":              {"alias.go", "!bash tools/go.sh", "tools/go.sh", true},
		"plain alias":        {"alias.st", "log main.txt", "main.txt", false},
		"archiver":           {"tar.x.command", "tools/pack -c", "tools/pack", true},
		"quotes in a word":   {"core.pager", `to"ol"s/page`, "tools/page", true},
		"backslash":          {"core.editor", `to\ols/e`, "tools/e", true},
		"name with a blank":  {"core.editor", `'my tools/e'`, "my tools/e", true},
		"variable":           {"alias.go", `!f() { sh "$PWD"/go.sh; }; f`, "go.sh", true},
		"after cd":           {"alias.go", `!cd tools && ./go.sh`, "tools/go.sh", true},
		"first word":         {"core.pager", `less;x`, "x", true},
		"glob":               {"alias.go", `!cat to?ls/*.sh | sh`, "tools/go.sh", true},
		"glob of a name":     {"alias.go", `!. ./h[o]ok`, "hook", true},
		"path into a word":   {"filter.x.clean", `sh -c "exec tools/clean"`, "tools/clean", true},
		"case of a word":     {"filter.x.clean", `sh -c '. TOOLS/clean'`, "tools/clean", true},
		"shell, elsewhere":   {"alias.go", `!f() { git log --oneline "$1" | head; }; f`, "src/main.go", false},
		"of the home":        {"core.excludesFile", "~/.gitignore", ".gitignore", false},
		"part of a word":     {"alias.go", `!f() { git catalogue "$@"; }; f`, "src/cat", false},
		"on the PATH":        {"core.pager", "less -R", "less", false},
		"elsewhere":          {"core.hooksPath", ".husky", "src/.husky2/x", false},
		"data":               {"user.name", "README", "README", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, r, result := fruit(t, map[string]string{"a": "1\n"}, record{substrate.File, c.path, "new\n"})
			git(t, dir, "config", c.key, c.value)
			_, err := r.Accept(context.Background(), acceptance(result, "main"))
			if !c.refused {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantFault(t, err, fault.Denied, c.path, strings.ToLower(c.key[:4]))
			if git(t, dir, "rev-parse", "main") == result.Commit {
				t.Error("the branch has moved")
			}
		})
	}
	t.Run("absolute", func(t *testing.T) {
		dir, r, result := fruit(t, map[string]string{"a": "1\n"}, record{substrate.File, "h/post-merge", "new\n"})
		git(t, dir, "config", "core.hooksPath", filepath.Join(dir, "h"))
		_, err := r.Accept(context.Background(), acceptance(result, "main"))
		wantFault(t, err, fault.Denied, "h/post-merge")
	})
	t.Run("through a link", func(t *testing.T) {
		dir, r, result := fruit(t, map[string]string{"real/x": "1\n"}, record{substrate.File, "real/post-merge", "new\n"})
		if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		git(t, dir, "config", "core.hooksPath", "link")
		_, err := r.Accept(context.Background(), acceptance(result, "main"))
		wantFault(t, err, fault.Denied, "real/post-merge")
	})
	t.Run("included file", func(t *testing.T) {
		dir, r, result := fruit(t, map[string]string{"team.gitconfig": "[user]\n\tname = x\n"}, record{substrate.File, "team.gitconfig", "[alias]\n\tx = !true\n"})
		git(t, dir, "config", "include.path", "../team.gitconfig")
		_, err := r.Accept(context.Background(), acceptance(result, "main"))
		wantFault(t, err, fault.Denied, "team.gitconfig")
	})
}

func TestReject(t *testing.T) {
	for _, packed := range []bool{false, true} {
		dir, r, result := fruit(t, map[string]string{"a": "1\n"}, record{substrate.File, "b", "2\n"})
		git(t, dir, "tag", "-a", "-m", "annotated", "v1", "main")
		if packed {
			git(t, dir, "pack-refs", "--all")
		}
		ctx := context.Background()
		wantFault(t, r.Reject(ctx, meta.Run, git(t, dir, "rev-parse", "main")), fault.Invalid, "is at")
		wantFault(t, r.Reject(ctx, "r-9", result.Commit), fault.NotFound, "tendril/r-9")
		git(t, dir, "checkout", "-q", result.Branch)
		wantFault(t, r.Reject(ctx, meta.Run, result.Commit), fault.Invalid, "checked out")
		git(t, dir, "checkout", "-q", "--detach", "main")
		if err := r.Reject(ctx, meta.Run, result.Commit); err != nil {
			t.Fatal(err)
		}
		refs := git(t, dir, "for-each-ref", "--format=%(refname)")
		if refs != "refs/heads/main\nrefs/tags/v1" {
			t.Errorf("references after reject: %s", refs)
		}
		if git(t, dir, "rev-parse", "v1^{}") != git(t, dir, "rev-parse", "main") {
			t.Error("the tag no longer peels")
		}
		if out := git(t, dir, "fsck", "--strict"); strings.Contains(out, "error") {
			t.Error(out)
		}
	}
}

func hintOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Hint
	}
	return ""
}

func TestDiff(t *testing.T) {
	esc := "\x1b[31mred\u202e\n"
	_, r, result := fruit(t, map[string]string{
		".gitattributes": "* -diff\n*.bin diff=evil\n", "plain": "1\n2\n3\n", "moved/from": strings.Repeat("line\n", 30), "kind": "file\n", "gone": "x\n",
	},
		record{substrate.File, "plain", "1\ntwo\x00\n3\n"},
		record{substrate.File, "escape", esc},
		record{substrate.File, "name\n\x1b[2J\xff", "diff --git a/x b/x\n@@ -1 +1 @@\n"},
		record{substrate.Delete, "moved/from", ""},
		record{substrate.File, "moved/to", strings.Repeat("line\n", 30)},
		record{substrate.Symlink, "kind", "../../etc/passwd"},
		record{substrate.Delete, "gone", ""},
		record{substrate.File, "long", strings.Repeat("é", 10_000) + "\n"},
	)
	d, err := r.Diff(context.Background(), git(t, r.Worktree, "rev-parse", "main"), result.Commit, substrate.DiffOptions{})
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]substrate.FileDiff{}
	for _, f := range d.Files {
		byPath[f.Path] = f
	}
	for path, want := range map[string]string{
		"plain":             "-2\n+two\\x00\n",
		"escape":            `+\x1b[31mred\u202e`,
		"name\n\x1b[2J\xff": "+diff --git a/x b/x\n+@@ -1 +1 @@\n",
		"kind":              "-file\n",
		"gone":              "-x\n",
		"long":              " […]\n",
	} {
		if !strings.Contains(byPath[path].Hunks, want) {
			t.Errorf("hunks of %q: %q, want %q in it", path, byPath[path].Hunks, want)
		}
	}
	if byPath["moved/to"].RenamedFrom != "moved/from" {
		t.Errorf("the rename is %+v", byPath["moved/to"])
	}
	if !strings.Contains(byPath["kind"].Hunks, "+../../etc/passwd") {
		t.Errorf("a change of kind shows only one side: %q", byPath["kind"].Hunks)
	}
	var text bytes.Buffer
	if _, err := d.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	for _, c := range text.String() {
		if c != '\n' && c != '\t' && (c < 0x20 || c == 0x7f || c == 0x202e || c == 0xfffd) {
			t.Fatalf("the text holds %U:\n%s", c, text.String())
		}
	}
	for _, want := range []string{`=== added "name\n\x1b[2J\xff"`, "! symlink: kind: leads out of the tree", "=== renamed \"moved/from\" -> moved/to"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	if f := byPath["long"]; !f.Truncated || !d.Truncated || byPath["plain"].Truncated {
		t.Errorf("a line is cut: its file says %v, the diff %v, another file %v", f.Truncated, d.Truncated, byPath["plain"].Truncated)
	}
	short, err := r.Diff(context.Background(), d.From, d.To, substrate.DiffOptions{Bytes: 40})
	if err != nil || !short.Truncated || len(short.Files) != len(d.Files) {
		t.Errorf("a bounded diff: %v, truncated %v, %d files", err, short.Truncated, len(short.Files))
	}
	short, err = r.Diff(context.Background(), d.From, d.To, substrate.DiffOptions{FileBytes: 200})
	if err != nil || !short.Truncated {
		t.Errorf("a diff with a bounded file: %v, truncated %v", err, short.Truncated)
	}
	_, err = r.Diff(context.Background(), strings.Repeat("1", 40), d.To, substrate.DiffOptions{})
	wantFault(t, err, fault.NotFound)
	_, err = r.Diff(context.Background(), "HEAD", d.To, substrate.DiffOptions{})
	wantFault(t, err, fault.Invalid)
}

// TestDiffOfLongLines hides code behind blanks: what is cut off is announced, and
// what comes after it in the file is still shown.
func TestDiffOfLongLines(t *testing.T) {
	blanks := strings.Repeat(" ", 4089)
	_, r, result := fruit(t, map[string]string{"old": "x" + blanks + "evil()\n1\n", "gone": "x" + blanks + "evil()\n"},
		record{substrate.File, "hiding", "x" + blanks + "evil()\nafter\n"}, record{substrate.File, "unended", "x" + blanks + "evil()"},
		record{substrate.File, "whole", "x" + blanks + "well\n"}, record{substrate.File, "old", "x" + blanks + "evil(1)\n1\n"},
		record{substrate.Delete, "gone", ""})
	d, err := r.Diff(context.Background(), git(t, r.Worktree, "rev-parse", "main"), result.Commit, substrate.DiffOptions{})
	if err != nil {
		t.Fatal(err)
	}
	flagged := map[string]bool{}
	for _, f := range d.Flags {
		if f.Kind == substrate.FlagLongLine {
			flagged[f.Path] = true
		}
	}
	if !d.Truncated {
		t.Error("the diff does not say that it is truncated")
	}
	for _, f := range d.Files {
		cut := f.Path != "whole"
		if f.Truncated != cut || flagged[f.Path] != (cut && f.Path != "gone") {
			t.Errorf("%s: truncated %v, flagged %v", f.Path, f.Truncated, flagged[f.Path])
		}
		if f.Path == "hiding" && !strings.Contains(f.Hunks, "+after\n") {
			t.Errorf("what follows a cut line is not shown: %q", f.Hunks)
		}
	}
}
