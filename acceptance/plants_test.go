package acceptance_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"tendril/capability"
	"tendril/corpora"
	"tendril/run"
)

// TestPlants lets a hostile owner of a repository, and a hostile Sprout, plant
// whatever makes Git run programs: the product runs none of it and writes nothing
// outside of the repository.
func TestPlants(t *testing.T) {
	t.Run("corpus", everyMeasuredPlantIsHere)
	t.Run("owner", plantedByOwner)
	t.Run("refused", refusedRepositories)
	t.Run("foreign owner", foreignOwner)
	t.Run("symlinked branch directory", symlinkedBranchDirectory)
	t.Run("reads", plantsThatMakeReadElsewhere)
	t.Run("sprout", plantedBySprout)
	t.Run("submodule command", submoduleCommand)
}

func TestPlantsAsOrdinaryUser(t *testing.T) {
	asOrdinaryUser(t, "TestPlants")
}

// elsewhere are plants of the corpus that have a test of their own here.
var elsewhere = []string{
	"objects/info/alternates -> host object store", "tracked symlink to a host file, host reads through it",
	"safe.directory: foreign owner",
}

// everyMeasuredPlantIsHere compares the corpus with the tables.
func everyMeasuredPlantIsHere(t *testing.T) {
	have := slices.Clone(elsewhere)
	for _, p := range ownerPlants {
		have = append(have, p.name)
	}
	for _, p := range refusedPlants {
		have = append(have, p.name)
	}
	for _, row := range corpora.Rows(t, "git_plants_measured.tsv") {
		if !slices.Contains(have, row["plant"]) {
			t.Errorf("no test plants %q", row["plant"])
		}
	}
}

// trap is where canaries show up, and a place outside of every repository.
type trap struct{ marks, outside, programs string }

func newTrap(t *testing.T) trap {
	t.Helper()
	root := workDir(t) // its name is fit to stand in a command
	tr := trap{filepath.Join(root, "marks"), filepath.Join(root, "outside"), filepath.Join(root, "programs")}
	for _, dir := range []string{tr.marks, tr.outside, tr.programs} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func (tr trap) mark(p plant) string {
	return filepath.Join(tr.marks, strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return r
		}
		return '-'
	}, p.name))
}

// set runs a plant's script in a repository.
func (tr trap) set(g *garden, repo string, p plant) {
	g.t.Helper()
	copies, ends := tr.program(g.t, filepath.Base(tr.mark(p)), "cat"), tr.program(g.t, filepath.Base(tr.mark(p))+".once", "")
	g.shell(`cd "$1" && export P="$2" Q="$3" OUTSIDE="$4" && { `+p.script+"\n}", repo, copies, ends, tr.outside)
}

// program writes a program that leaves a mark of its own name, without .once, and
// then does more.
func (tr trap) program(t testing.TB, name, more string) string {
	t.Helper()
	path := filepath.Join(tr.programs, name)
	content := "#!/bin/sh\ntouch " + filepath.Join(tr.marks, strings.TrimSuffix(name, ".once")) + "\n" + more + "\n"
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// sprung lists the marks that are there.
func (tr trap) sprung(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(tr.marks)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// manyLines makes base.txt long enough for both sides of a merge to change it, and
// lets the branch topic do so.
const manyLines = `cd "$1" && seq 20 >base.txt && git commit -qam lines && git checkout -q -B topic && sed -i 's/^1$/one/' base.txt &&
	git commit -qam 'on topic' && git checkout -q main`

// changingAll touches every file that a plant is tied to.
const changingAll = `sed -i 's/^20$/twenty/' base.txt; echo '# changed' >>run.sh; chmod +x run.sh; rm old.txt; echo new >new.txt; mkdir d; echo new >d/new.sh`

func plantedByOwner(t *testing.T) {
	g := newGarden(t)
	tr := newTrap(t)
	g.shell(manyLines, g.repo)
	g.shell(`cd "$1" && ln -s "$2" lnk && git add lnk && git commit -qm link`, g.repo, filepath.Join(tr.outside, "secret"))
	if err := os.WriteFile(filepath.Join(tr.outside, "secret"), []byte("HOSTSECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range ownerPlants {
		tr.set(g, g.repo, p)
	}
	for _, name := range tr.sprung(t) { // by the planting itself
		os.Remove(filepath.Join(tr.marks, name))
	}
	g.shell(`cd "$1" && sed -i 's/^3$/three/' base.txt && echo untracked >untracked.txt`, g.repo)
	w := witness{g, mustFingerprint(t, g.repo)}
	outside := mustFingerprint(t, tr.outside)
	// A hostile caller's environment is no better.
	program := tr.program(t, "environment", "")
	hostile := g.in(t)
	hostile.env = append(slices.Clone(g.env), "GIT_DIR="+tr.outside, "GIT_EXTERNAL_DIFF="+program, "GIT_SSH_COMMAND="+program, "GIT_PAGER="+program,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.fsmonitor", "GIT_CONFIG_VALUE_0="+program, "GIT_EXEC_PATH="+tr.programs, "GIT_TEMPLATE_DIR="+tr.outside)

	first := g.record(hostile.growWell(changingAll + `; cat lnk || true`))
	second := g.record(hostile.growWell(changingAll, "--dirty"))
	diff := hostile.succeed("fruit", "diff", string(first.ID))
	accepted := hostile.succeed("fruit", "accept", string(first.ID), "--into", "topic")
	hostile.succeed("fruit", "diff", "--json", string(second.ID))
	hostile.succeed("fruit", "reject", string(second.ID))

	sprung := tr.sprung(t)
	for _, p := range ownerPlants {
		t.Run(p.name, func(t *testing.T) {
			if slices.Contains(sprung, filepath.Base(tr.mark(p))) {
				t.Errorf("it ran")
			}
			controlFires(t, g.in(t), p)
		})
	}
	if slices.Contains(sprung, "environment") {
		t.Error("a program that the environment names ran")
	}
	if after := mustFingerprint(t, tr.outside); after != outside {
		t.Errorf("outside of the repository: %s", firstDifference(outside, after))
	}
	if strings.Contains(g.output(first.ID)+diff.stdout, "HOSTSECRET") {
		t.Error("a symbolic link was followed to a file of the host")
	}
	// What was done was done for real, drivers or not.
	for _, want := range []string{"one", "twenty"} {
		if !strings.Contains(plainGit(t, g, "show", "topic:base.txt"), want+"\n") {
			t.Errorf("the merge (%s) lacks %q", accepted.stdout, want)
		}
	}
	left := mustFingerprint(t, g.repo)
	moved := func(text string) string { return withoutLine(text, "refs/heads/topic ") } // that is what accept is for
	if moved(left) != moved(w.before) {
		t.Errorf("the repository has changed:\n%s", firstDifference(moved(w.before), moved(left)))
	}
}

func withoutLine(text, with string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.Contains(line, with) }), "\n")
}

// plainGit runs plumbing in a planted repository without firing its plants.
func plainGit(t *testing.T, g *garden, args ...string) string {
	t.Helper()
	bare := filepath.Join(t.TempDir(), "plain.git")
	return g.shell(`git init -q --bare "$1" && echo "$2/.git/objects" >"$1/objects/info/alternates" && cp "$2/.git/HEAD" "$1/" && cp -r "$2/.git/refs" "$1/" &&
		cd "$1" && shift 2 && git "$@"`, slices.Concat([]string{bare, g.repo}, args)...)
}

// growWell runs a script to its end, which has to be good.
func (g *garden) growWell(script string, flags ...string) answer {
	g.t.Helper()
	a := g.grow(script, flags...).wait()
	if a.status != 0 {
		r := g.record(a)
		g.t.Fatalf("status %d, %s, %+v\n%s%s", a.status, r.State, r.Error, a.stderr, g.output(r.ID))
	}
	return a
}

// controlFires shows that a plant makes the host's own Git run a program.
func controlFires(t *testing.T, g *garden, p plant) {
	t.Helper()
	if p.control == "" {
		return
	}
	tr := newTrap(t)
	repo := filepath.Join(t.TempDir(), "repo")
	g.makeRepository(repo)
	g.shell(manyLines, repo)
	tr.set(g, repo, p)
	os.Remove(tr.mark(p))
	out, _ := g.tryShell(`cd "$1"; `+p.control, repo)
	if !exists(tr.mark(p)) {
		t.Errorf("the control does not show that this is a plant: %s\n%s", p.control, out)
	}
}

// refusedRepositories are such that nothing sane can be done with them.
func refusedRepositories(t *testing.T) {
	g := newGarden(t)
	for _, p := range refusedPlants {
		t.Run(p.name, func(t *testing.T) {
			g := g.in(t)
			tr := newTrap(t)
			g.repo = filepath.Join(t.TempDir(), "repo")
			g.makeRepository(g.repo)
			tr.set(g, g.repo, p.plant)
			os.Remove(tr.mark(p.plant))
			outside, before := mustFingerprint(t, tr.outside), mustFingerprint(t, g.repo)
			runs := len(g.runs())
			for _, flags := range [][]string{nil, {"--dirty"}} {
				a := g.grow(changingAll, flags...).wait()
				if a.status != run.ExitRefused || !strings.Contains(a.stdout, p.says) {
					t.Errorf("status %d: %s%s", a.status, a.stdout, a.stderr)
				}
			}
			if sprung := tr.sprung(t); len(sprung) > 0 {
				t.Errorf("it ran")
			}
			if after := mustFingerprint(t, tr.outside); after != outside {
				t.Errorf("outside of the repository: %s", firstDifference(outside, after))
			}
			if after := mustFingerprint(t, g.repo); after != before {
				t.Errorf("in the repository: %s", firstDifference(before, after))
			}
			if after := len(g.runs()); after != runs {
				t.Errorf("%d runs were recorded", after-runs)
			}
			controlFires(t, g, p.plant)
		})
	}
}

// foreignOwner is a repository of another account.
func foreignOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a repository to another account")
	}
	g := newGarden(t)
	tr := newTrap(t)
	p := plant{"foreign", `git config core.fsmonitor "$P"`, ""}
	tr.set(g, g.repo, p)
	g.shell(`chown -R 12345 "$1"`, g.repo)
	for _, flags := range [][]string{nil, {"--dirty"}} {
		if a := g.grow(changingAll, flags...).wait(); a.status != run.ExitRefused || !strings.Contains(a.stdout, "belongs to") {
			t.Errorf("status %d: %s%s", a.status, a.stdout, a.stderr)
		}
	}
	// Nor is a store of objects of another account read.
	other := filepath.Join(t.TempDir(), "repo")
	g.makeRepository(other)
	g.shell(`mv "$1/.git/objects" "$2/objects" && mkdir -p "$1/.git/objects/info" && echo "$2/objects" >"$1/.git/objects/info/alternates" && chown -R 12345 "$2"`, other, tr.outside)
	g.repo = other
	if a := g.grow(changingAll).wait(); a.status != run.ExitRefused || !strings.Contains(a.stdout, "belongs to") {
		t.Errorf("status %d: %s%s", a.status, a.stdout, a.stderr)
	}
	if sprung := tr.sprung(t); len(sprung) > 0 {
		t.Error("it ran")
	}
}

// symlinkedBranchDirectory has the directory of our branches lead elsewhere.
func symlinkedBranchDirectory(t *testing.T) {
	g := newGarden(t)
	for name, script := range map[string]string{
		"directory":        `ln -s "$OUTSIDE" .git/refs/heads/tendril`,
		"dangling":         `ln -s "$OUTSIDE/nothing" .git/refs/heads/tendril`,
		"objects/pack":     `rm -rf .git/objects/pack; git count-objects -v >/dev/null`,
		"branch of a name": `git branch tendril`,
	} {
		t.Run(name, func(t *testing.T) {
			g := g.in(t)
			tr := newTrap(t)
			g.repo = filepath.Join(t.TempDir(), "repo")
			g.makeRepository(g.repo)
			tr.set(g, g.repo, plant{name: name, script: script})
			outside := mustFingerprint(t, tr.outside)
			a := g.grow(changingAll).wait()
			if name == "objects/pack" { // Git makes that directory when it needs it, and so do we
				if r := g.record(a); r.State != run.Fruited {
					t.Errorf("%s: %+v", r.State, r.Error)
				}
				return
			}
			if a.status != run.ExitRefused || !strings.Contains(a.stdout, "refs/heads/tendril exists") {
				t.Errorf("status %d: %s", a.status, a.stdout)
			}
			if after := mustFingerprint(t, tr.outside); after != outside {
				t.Errorf("outside of the repository: %s", firstDifference(outside, after))
			}
			if left := g.leftovers(); len(left) > 0 {
				t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}

// plantsThatMakeReadElsewhere would bring content of elsewhere inside.
func plantsThatMakeReadElsewhere(t *testing.T) {
	g := newGarden(t)
	for _, c := range []struct{ name, script, control string }{
		{"core.worktree", `git config core.worktree "$OUTSIDE"; echo TOPSECRET >"$OUTSIDE/base.txt"`, `git diff`},
		{"replace refs", `blob=$(echo TOPSECRET | git hash-object -w --stdin); tree=$(printf '100644 blob %s\tbase.txt\n' $blob | git mktree)
			git replace HEAD $(git commit-tree -m x $tree)`, `git show HEAD:base.txt`},
		{"grafts", `blob=$(echo TOPSECRET | git hash-object -w --stdin); tree=$(printf '100644 blob %s\tsecret.txt\n' $blob | git mktree)
			echo "$(git rev-parse HEAD) $(git commit-tree -m x $tree)" >.git/info/grafts`, `git show HEAD^:secret.txt`},
		{"alternates", `git init -q "$OUTSIDE/other"; echo TOPSECRET >"$OUTSIDE/other/secret.txt"; git -C "$OUTSIDE/other" add .; git -C "$OUTSIDE/other" commit -qm leak
			echo "$OUTSIDE/other/.git/objects" >.git/objects/info/alternates; git branch leak $(git -C "$OUTSIDE/other" rev-parse HEAD)`, `git show leak:secret.txt`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := g.in(t)
			tr := newTrap(t)
			g.repo = filepath.Join(t.TempDir(), "repo")
			g.makeRepository(g.repo)
			tr.set(g, g.repo, plant{name: c.name, script: c.script})
			if out, _ := g.tryShell(`cd "$1"; `+c.control, g.repo); !strings.Contains(out, "TOPSECRET") {
				t.Fatalf("the control does not show the secret: %s", out)
			}
			// Everything that there is inside, packed objects included.
			const look = `cat *; git log -p --all; git cat-file --batch-all-objects --batch --unordered; echo new >new.txt`
			for _, flags := range [][]string{nil, {"--dirty"}} {
				r := g.record(g.growWell(look, flags...))
				if out := g.output(r.ID); strings.Contains(out, "TOPSECRET") || !strings.Contains(out, "base") {
					t.Errorf("with %v the Sprout sees:\n%.2000s", flags, out)
				}
			}
		})
	}
}

// sproutPlants is what a hostile Sprout leaves in its workspace. $P is a command
// that leaves the mark on the host, if it runs there.
const sproutPlants = `
mkdir -p tools && printf '#!/bin/sh\n%s\n' "$P" >tools/fire && chmod +x tools/fire
for hook in pre-commit post-checkout post-merge reference-transaction post-index-change; do cp tools/fire .git/hooks/$hook 2>/dev/null || { mkdir -p .git/hooks; cp tools/fire .git/hooks/$hook; }; done
git config core.fsmonitor "$P"; git config core.hooksPath tools
mkdir nested && git -C nested init -q && cp tools/fire nested/.git/hooks/post-checkout && echo x >nested/file.txt
git() { :; }
for name in .GIT .Git 'git~1' 'GIT~1' '.git ' '.git.' '.git...' '.git::$INDEX_ALLOCATION' '.git:x' '.git\hooks' "$(printf '.g\342\200\214it')" "$(printf '\357\273\277.git')" "$(printf '.GI\342\200\256T')"; do
	mkdir -p "$name/hooks" "deep/er/$name" && cp tools/fire "$name/hooks/post-checkout" && printf '[core]\n\tfsmonitor = %s\n' "$P" >"$name/config" && echo x >"deep/er/$name/x"
done
ln -s .git linked; mkdir sym; ln -s ../../x sym/.git; ln -s /etc/passwd sym/.gitmodules; ln -s "$OUTSIDE" escape; ln -s /etc/shadow shadow
printf '* filter=canary diff=canary merge=canary\n' >.gitattributes
printf '[submodule "x"]\n\tpath = x\n\turl = ext::%s\n' "$P" >.gitmodules
printf '[lfs]\n\turl = ext::%s\n' "$P" >.lfsconfig
mkdir -p .husky .githooks && cp tools/fire .husky/pre-commit && cp tools/fire .githooks/pre-commit
` + "mkdir -p '$('\"$P\"')' 2>/dev/null; echo x >'--upload-pack=touch'; echo x >'`touch x`'; printf x >\"$(printf 'new\\nline')\"\n" + `
sed -i 's/^20$/twenty/' base.txt`

func plantedBySprout(t *testing.T) {
	g := newGarden(t)
	tr := newTrap(t)
	g.shell(manyLines, g.repo)
	mark := filepath.Join(tr.marks, "sprout")
	before, outside := mustFingerprint(t, g.repo), mustFingerprint(t, tr.outside)
	script := sproutPlants + "\n" + strings.ReplaceAll(embeddedBare, "$P", "touch "+mark)
	env := []string{"--env", "P=touch " + mark, "--env", "OUTSIDE=" + tr.outside}
	first := g.record(g.growWell(script, env...))
	second := g.record(g.growWell(script, slices.Concat(env, []string{"--dirty"})...))
	var diff capability.Diff
	if err := json.Unmarshal([]byte(g.succeed("fruit", "diff", "--json", string(first.ID)).stdout), &diff); err != nil {
		t.Fatal(err)
	}
	g.succeed("fruit", "diff", string(first.ID))
	if after := mustFingerprint(t, g.repo); after != before {
		t.Errorf("the repository has changed:\n%s", firstDifference(before, after))
	}
	g.succeed("fruit", "accept", string(first.ID), "--into", "topic")
	g.succeed("fruit", "reject", string(second.ID))
	if sprung := tr.sprung(t); len(sprung) > 0 {
		t.Error("something that the Sprout planted ran on the host")
	}
	if after := mustFingerprint(t, tr.outside); after != outside {
		t.Errorf("outside of the repository: %s", firstDifference(outside, after))
	}
	paths := strings.Split(g.git("ls-tree", "-r", "-t", "-z", "--name-only", *first.Commit), "\x00")
	if !slices.Contains(paths, "tools/fire") || !slices.Contains(paths, "nested/file.txt") {
		t.Errorf("what is harmless is not there: %q", paths)
	}
	for _, path := range paths {
		for part := range strings.SplitSeq(path, "/") {
			if looksLikeDotGit(part) {
				t.Errorf("the Fruit holds %q", path)
			}
		}
	}
	flagged := map[string]bool{}
	for _, f := range first.Flags {
		flagged[f.Kind+" "+string(f.Path)] = true
	}
	for _, want := range []string{
		"left-out .GIT", "left-out git~1", "left-out .git ", "left-out sym/.gitmodules", "repository sub",
		"attributes .gitattributes", "submodule .gitmodules", "lfs .lfsconfig", "executable tools/fire", "symlink escape", "symlink shadow", "hook .husky/pre-commit",
	} {
		if !flagged[want] {
			t.Errorf("a reviewer is not told of %q", want)
		}
	}
	if first.Skipped < 2 { // nested/.git and sym/.git, which Git cannot hold
		t.Errorf("%d entries were skipped", first.Skipped)
	}
	g.git("fsck", "--strict", "--no-dangling")
	// The host's own Git, in a working tree of the Fruit, shows that they are plants.
	tree := filepath.Join(t.TempDir(), "tree")
	g.shell(`git -C "$1" worktree add -q "$2" "$3" && cd "$2/sub" && git status; true`, g.repo, tree, *first.Commit)
	if !exists(mark) {
		t.Error("the control does not show that anything was planted")
	}
}

// submoduleCommand is a file that Git itself refuses to have in an object. It is left
// out, and the rest of the work is not lost with it.
func submoduleCommand(t *testing.T) {
	g := newGarden(t)
	r := g.record(g.growWell(`echo work >work.txt; printf '[submodule "x"]\n\tpath = x\n\turl = ./x\n\tupdate = !touch canary\n' >.gitmodules`))
	if got := g.changes(r); got != "A\twork.txt" {
		t.Errorf("the Fruit has\n%s", got)
	}
	if !slices.ContainsFunc(r.Flags, func(f run.Flag) bool { return f.Kind == "left-out" && f.Path == ".gitmodules" }) {
		t.Errorf("a reviewer is not told: %q", r.Flags)
	}
	g.git("fsck", "--strict", "--no-dangling")
}

// looksLikeDotGit reports whether some file system takes a name for .git: without
// case, without what HFS+ passes over, without what NTFS does.
func looksLikeDotGit(name string) bool {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	for part := range strings.SplitSeq(name, `\`) {
		part, _, _ = strings.Cut(part, ":")
		part = strings.TrimRight(part, ". ")
		if part == ".git" || part == "git~1" {
			return true
		}
	}
	return false
}
