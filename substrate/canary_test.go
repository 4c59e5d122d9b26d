package substrate_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tendril/corpora"
	"tendril/substrate"
)

// canary is a command that leaves a mark when it runs.
type canary struct{ script, dir string }

func newCanary(t *testing.T) canary {
	t.Helper()
	// Not t.TempDir, whose name has the test's: a shell has to take it as a word.
	dir, err := os.MkdirTemp("", "canary")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	script := filepath.Join(dir, "fire")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$0 $*\" >> "+dir+"/mark\ncat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return canary{script, dir}
}

func (c canary) fired() string {
	data, _ := os.ReadFile(filepath.Join(c.dir, "mark"))
	return string(data)
}

func (c canary) reset() { os.Remove(filepath.Join(c.dir, "mark")) }

var hookNames = []string{
	"applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit", "post-index-change", "post-merge",
	"post-receive", "post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase",
	"pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout", "reference-transaction", "sendemail-validate", "update",
}

// attributes apply every driver to every file.
const attributes = "* filter=evil diff=evil merge=evil\n*.x filter=proc -diff working-tree-encoding=UTF-7 ident\n"

// plants are what a hostile owner of a repository, or a Sprout that could write
// its .git, would put there, by the names of the measured corpus and some more.
var plants = map[string]func(t *testing.T, dir string, c canary){
	"core.fsmonitor": config("core.fsmonitor", "%s"),
	"hooks/pre-commit": func(t *testing.T, dir string, c canary) {
		for _, name := range hookNames {
			os.Remove(dir + "/.git/hooks/" + name)
			must(t, os.MkdirAll(dir+"/.git/hooks", 0o755))
			must(t, os.Symlink(c.script, dir+"/.git/hooks/"+name))
		}
	},
	"hooks/post-checkout":         hooksPath,
	"hooks/reference-transaction": hooksPath,
	"hooks/post-index-change":     hooksPath,
	"filter clean via .gitattributes + config": func(t *testing.T, dir string, c canary) {
		for _, kind := range []string{"clean", "smudge"} {
			config("filter.evil."+kind, "%s "+kind)(t, dir, c)
		}
		config("filter.proc.process", "%s process")(t, dir, c)
		config("filter.evil.required", "true")(t, dir, c)
		write(t, dir+"/.git/info/attributes", attributes)
	},
	"diff.external":                      config("diff.external", "%s"),
	"diff driver textconv":               config("diff.evil.textconv", "%s"),
	"diff driver command":                config("diff.evil.command", "%s"),
	"merge driver":                       many(config("merge.evil.driver", "%s %%A"), config("merge.default", "evil")),
	"credential.helper":                  config("credential.helper", "!%s"),
	"gpg.program + log --show-signature": many(config("gpg.program", "%s"), config("log.showSignature", "true"), config("commit.gpgSign", "true")),
	"alias shadowing a builtin":          many(config("alias.status", "!%s"), config("alias.cat-file", "!%s"), config("alias.config", "!%s")),
	"core.gitProxy / ext:: remote": many(config("core.gitProxy", "%s"), config("protocol.ext.allow", "always"), config("remote.origin.url", "ext::%s"),
		config("remote.origin.promisor", "true"), config("remote.origin.partialclonefilter", "blob:none"), config("core.sshCommand", "%s")),
	"worktree config (extensions.worktreeConfig)": func(t *testing.T, dir string, c canary) {
		config("core.repositoryFormatVersion", "1")(t, dir, c)
		config("extensions.worktreeConfig", "true")(t, dir, c)
		write(t, dir+"/.git/config.worktree", "[core]\n\tfsmonitor = "+c.script+"\n\thooksPath = "+c.dir+"\n")
	},
	"objects/info/alternates -> host object store": func(t *testing.T, dir string, c canary) {
		secret := newRepo(t, map[string]string{"s": "TOPSECRET\n"})
		write(t, dir+"/.git/objects/info/alternates", secret+"/.git/objects\n")
	},
	"tracked symlink to a host file, host reads through it": func(t *testing.T, dir string, c canary) {
		write(t, filepath.Join(c.dir, "host"), "TOPSECRET\n")
		os.Remove(dir + "/lnk")
		must(t, os.Symlink(filepath.Join(c.dir, "host"), dir+"/lnk"))
		must(t, os.Symlink(c.dir, dir+"/dirlnk"))
	},
	"embedded bare repo in a subdirectory": func(t *testing.T, dir string, c canary) {
		write(t, dir+"/sub/HEAD", "ref: refs/heads/main\n")
		write(t, dir+"/sub/objects/x", "")
		write(t, dir+"/sub/refs/x", "")
		write(t, dir+"/sub/config", "[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = "+c.script+"\n")
	},
	"more commands": many(
		config("core.pager", "%s"), config("core.editor", "%s"), config("core.askPass", "%s"), config("sequence.editor", "%s"),
		config("core.alternateRefsCommand", "%s"), config("uploadpack.packObjectsHook", "%s"), config("trailer.x.cmd", "%s"),
		config("pager.config", "%s"), config("pager.diff-tree", "%s"), config("interactive.diffFilter", "%s"), config("gc.auto", "1"),
		config("hook.x.command", "%s"), config("hook.x.event", "reference-transaction"), config("core.untrackedCache", "true"),
		config("submodule.recurse", "true"), config("diff.submodule", "diff"), config("status.submoduleSummary", "true"), config("core.worktree", "/"),
	),
	"includes": func(t *testing.T, dir string, c canary) {
		write(t, dir+"/included", "[core]\n\tfsmonitor = "+c.script+"\n\tpager = "+c.script+"\n")
		config("include.path", "../included")(t, dir, c)
		config("includeIf.gitdir:**.path", "../included")(t, dir, c)
	},
	// These two are refused when the repository is opened; TestOpenRefuses.
	".git/objects symlink to a host directory": nil,
	".git symlink -> dir in the tree":          nil,
	"safe.directory: foreign owner":            nil,
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func config(key, value string) func(*testing.T, string, canary) {
	return func(t *testing.T, dir string, c canary) {
		t.Helper()
		value := strings.ReplaceAll(strings.ReplaceAll(value, "%s", c.script), "%%", "%")
		git(t, "/", "config", "--file", dir+"/.git/config", key, value)
	}
}

func many(all ...func(*testing.T, string, canary)) func(*testing.T, string, canary) {
	return func(t *testing.T, dir string, c canary) {
		for _, f := range all {
			f(t, dir, c)
		}
	}
}

func hooksPath(t *testing.T, dir string, c canary) {
	for _, name := range hookNames {
		os.Remove(filepath.Join(c.dir, name))
		must(t, os.Symlink(c.script, filepath.Join(c.dir, name)))
	}
	config("core.hooksPath", c.dir)(t, dir, c)
}

// TestNothingFires plants one thing after another, and then all of them, in a
// caller's repository, lets a Sprout hand over a tree that is as hostile, and
// runs everything there is. Nothing may run.
func TestNothingFires(t *testing.T) {
	all := func(t *testing.T, dir string, c canary) {
		for _, plant := range plants {
			if plant != nil {
				plant(t, dir, c)
			}
		}
	}
	for name, plant := range plants {
		if plant != nil {
			t.Run(name, func(t *testing.T) { everything(t, plant) })
		}
	}
	t.Run("all of them", func(t *testing.T) { everything(t, all) })
}

func everything(t *testing.T, plant func(*testing.T, string, canary)) {
	c := newCanary(t)
	t.Setenv("HOME", homeDir(t))
	dir := newRepo(t, map[string]string{"a": "1\n2\n3\n4\n5\n6\n7\n8\n", "b.x": "x\n", "clash": "1\n", ".gitattributes": attributes})
	git(t, dir, "branch", "target")
	git(t, dir, "checkout", "-q", "target")
	write(t, dir+"/a", "1\n2\n3\n4\n5\n6\n7\neight\n")
	git(t, dir, "commit", "-q", "-am", "theirs")
	git(t, dir, "checkout", "-q", "main")
	plant(t, dir, c)
	write(t, dir+"/a", "dirty\n")
	write(t, dir+"/untracked", "u\n")
	c.reset()

	ctx := context.Background()
	r := open(t, newStore(t), dir)
	base := resolve(t, r, "")
	check := func(step string) {
		t.Helper()
		if mark := c.fired(); mark != "" {
			t.Fatalf("%s ran: %s", step, mark)
		}
	}
	check("open or resolve")
	if d, err := r.Dirty(ctx); err != nil || d.Changed == 0 {
		t.Errorf("dirty: %+v, %v", d, err)
	}
	check("dirty")
	snapshot, err := r.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	check("snapshot")
	for _, commit := range []substrate.Commit{base, snapshot} {
		for name, e := range baseOf(t, r, commit) {
			if strings.Contains(e.Content, "TOPSECRET") {
				t.Errorf("the image has a secret of the host in %s", name)
			}
			if strings.HasPrefix(name, ".git/hooks/") || name == ".git/config" && strings.Contains(e.Content, c.dir) {
				t.Errorf("the image has the plant in %s", name)
			}
		}
		check("base")
	}
	result, err := grow(t, r, base, meta,
		record{substrate.File, "a", "one\n2\n3\n4\n5\n6\n7\n8\n"},
		record{substrate.File, "b.x", "changed\x00\n"},
		record{substrate.File, ".gitattributes", attributes + "# more\n"},
		record{substrate.Exec, ".husky/post-merge", "#!/bin/sh\n" + c.script + "\n"},
		record{substrate.Exec, ".git/hooks/post-merge", "#!/bin/sh\n" + c.script + "\n"},
		record{substrate.File, ".git/config", "[core]\n\tfsmonitor = " + c.script + "\n"},
		record{substrate.File, "GIT~1/config", "[core]\n\tfsmonitor = " + c.script + "\n"},
		record{substrate.File, "bare/HEAD", "ref: refs/heads/main\n"}, record{substrate.File, "bare/objects/x", ""}, record{substrate.File, "bare/refs/x", ""},
		record{substrate.File, "bare/config", "[core]\n\tfsmonitor = " + c.script + "\n"},
		record{substrate.Symlink, "link", c.script}, record{substrate.File, ".gitmodules", "[submodule \"m\"]\n\tpath = m\n\turl = ext::" + c.script + "\n"},
		record{substrate.File, ".mailmap", "x\n"}, record{substrate.File, ".lfsconfig", "[lfs]\n\turl = x\n"},
	)
	if err != nil {
		t.Fatal(err)
	}
	check("fruit")
	if _, err := r.Diff(ctx, base.ID, result.Commit, substrate.DiffOptions{}); err != nil {
		t.Error(err)
	}
	check("diff")
	a := acceptance(result, "target")
	accepted, err := r.Accept(ctx, a)
	if err != nil || accepted.FastForward {
		t.Errorf("accept: %+v, %v", accepted, err)
	}
	check("accept")
	if err := r.Reject(ctx, meta.Run, result.Commit); err != nil {
		t.Error(err)
	}
	check("reject")
}

// TestCanaryCanFire shows that the plants work: a person's own Git runs them.
func TestCanaryCanFire(t *testing.T) {
	for name, command := range map[string][]string{
		"core.fsmonitor":                              {"status"},
		"hooks/reference-transaction":                 {"branch", "y"},
		"filter clean via .gitattributes + config":    {"add", "-A"},
		"diff driver command":                         {"diff"},
		"diff driver textconv":                        {"diff"},
		"worktree config (extensions.worktreeConfig)": {"status"},
		"includes": {"status"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCanary(t)
			dir := newRepo(t, map[string]string{"a": "1\n", ".gitattributes": attributes})
			plants[name](t, dir, c)
			write(t, dir+"/a", "dirty\n")
			if out, _ := tryGit(t, dir, "", command...); c.fired() == "" {
				t.Errorf("nothing fired: %s", out)
			}
		})
	}
}

// TestCorpusIsCovered looks for kinds of plants that the table lacks.
func TestCorpusIsCovered(t *testing.T) {
	for _, row := range corpora.Rows(t, "git_plants_measured.tsv") {
		if _, ok := plants[row["plant"]]; !ok {
			t.Errorf("no test plants %q", row["plant"])
		}
	}
}
