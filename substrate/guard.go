package substrate

import (
	"context"
	"path"
	"path/filepath"
	"strings"

	"tendril/fault"
)

// executing are the settings of git-config(1) whose value is a command that Git
// runs, a directory of such commands, or a file that Git reads further settings
// from. "*" stands for anything.
var executing = []string{
	"alias.*", "blame.ignorerevsfile", "browser.*.cmd", "browser.*.path", "column.*", "core.alternaterefscommand", "core.askpass",
	"core.attributesfile", "core.editor", "core.excludesfile", "core.fsmonitor", "core.gitproxy", "core.hookspath", "core.pager",
	"core.sshcommand", "core.worktree", "credential.helper", "credential.*.helper", "diff.external", "diff.*.command",
	"diff.*.textconv", "diff.orderfile", "difftool.*.cmd", "difftool.*.path", "filter.*.clean", "filter.*.process",
	"filter.*.smudge", "gpg.program", "gpg.*.program", "gpg.ssh.defaultkeycommand", "gpg.ssh.allowedsignersfile", "guitool.*.cmd",
	"hook.*.command", "include.path", "includeif.*.path", "init.templatedir", "instaweb.*", "interactive.difffilter", "man.*.cmd",
	"man.*.path", "merge.*.driver", "mergetool.*.cmd", "mergetool.*.path", "pager.*", "receive.procreceiverefs",
	"remote.*.receivepack", "remote.*.uploadpack", "remote.*.vcs", "remote.*.url", "remote.*.pushurl", "sendemail.*",
	"sequence.editor", "submodule.*.update", "tar.*.command", "trailer.*.cmd", "trailer.*.command", "uploadpack.packobjectshook", "web.browser",
}

// isExecuting reports whether a setting is one of those.
func isExecuting(key string) bool {
	for _, pattern := range executing {
		head, tail, wild := strings.Cut(pattern, "*")
		if key == pattern || wild && len(key) >= len(head)+len(tail) && strings.HasPrefix(key, head) && strings.HasSuffix(key, tail) {
			return true
		}
	}
	return false
}

// checkGuarded refuses changes to a file of the working tree that the effective
// configuration executes or includes: to accept them would be to let the Sprout
// decide what the person's next git command runs.
func (r *Repository) checkGuarded(ctx context.Context, changes []Change) error {
	touched := newTouched(changes)
	all, err := r.worktrees()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		all = []worktree{{gitDir: "."}} // a bare repository has a configuration too
	}
	for _, w := range all {
		gitDir := filepath.Join(r.CommonDir, w.gitDir)
		settings, err := r.effectiveConfig(ctx, gitDir)
		if err != nil {
			return err
		}
		for _, s := range settings {
			if hit := w.guarded(gitDir, s, touched); hit != "" {
				return fault.New(fault.Denied, "the result changes %q, which the configuration %s=%q executes or includes", Escape(hit), Escape(s.key), Escape(s.value)).
					WithRule("guarded path").
					WithHint("look at the change, then merge it yourself: git merge --no-ff")
			}
		}
	}
	return nil
}

// guarded returns the changed path that a setting executes or includes.
func (w worktree) guarded(gitDir string, s setting, changed touched) string {
	candidates := []string{}
	if s.origin != "" {
		candidates = append(candidates, absoluteTo(gitDir, s.origin)) // the file that the setting is from
	}
	if isExecuting(s.key) && (!strings.HasPrefix(s.key, "alias.") || strings.HasPrefix(s.value, "!")) {
		if hit := changed.spelled(s.value); hit != "" {
			return hit
		}
		for i, word := range shellWords(s.value) {
			word = expandHome(word)
			if strings.HasPrefix(s.key, "include") {
				candidates = append(candidates, absoluteTo(filepath.Dir(s.origin), word))
			}
			// The first word of a command is looked up on the PATH when it has
			// no slash; anything else is a path.
			if i == 0 && !strings.Contains(word, "/") && !strings.Contains(s.key, "path") && !strings.Contains(s.key, "file") && !strings.Contains(s.key, "dir") {
				continue
			}
			candidates = append(candidates, absoluteTo(gitDir, word))
			if w.path != "" {
				candidates = append(candidates, absoluteTo(w.path, word))
			} else if !filepath.IsAbs(word) {
				candidates = append(candidates, "/"+word) // no working tree: by its name in any
			}
		}
	}
	for _, c := range candidates {
		for _, inside := range w.inside(c) {
			if hit := changed.by(inside); hit != "" {
				return hit
			}
		}
	}
	return ""
}

// inside returns what an absolute path is called in the working tree, by its
// text and with symbolic links resolved.
func (w worktree) inside(p string) []string {
	if w.path == "" {
		return []string{strings.TrimPrefix(path.Clean(p), "/")}
	}
	var names []string
	root := w.path
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	forms := []string{p}
	if real, err := filepath.EvalSymlinks(p); err == nil {
		forms = append(forms, real)
	}
	for _, form := range forms {
		for _, base := range []string{w.path, root} {
			if rel, err := filepath.Rel(base, form); err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../") {
				names = append(names, rel)
			}
		}
	}
	return names
}

// touched are the paths that changes touch. Case is folded: the file system may.
type touched struct {
	changed map[string]string // what has changed
	above   map[string]string // directories in which something has
	// components are the names of those paths and of their directories.
	components map[string]string
}

func newTouched(changes []Change) touched {
	t := touched{map[string]string{}, map[string]string{}, map[string]string{}}
	for _, c := range changes {
		folded := strings.ToLower(c.Path)
		t.changed[folded] = c.Path
		for at, _ := splitPath(folded); at != ""; at, _ = splitPath(at) {
			t.above[at] = c.Path
		}
		for name := range strings.SplitSeq(folded, "/") {
			t.components[name] = c.Path
		}
	}
	return t
}

// by returns the changed path that is name, is in it, or takes the place of a
// directory above it; "" if there is none.
func (t touched) by(name string) string {
	if isOwnGit(name) {
		return "" // no Fruit holds one
	}
	name = strings.ToLower(name)
	if hit, ok := t.above[name]; ok {
		return hit
	}
	for at := name; at != ""; at, _ = splitPath(at) {
		if hit, ok := t.changed[at]; ok {
			return hit
		}
	}
	return ""
}

// shellWords splits a command as far as needed to find the paths in it: at
// white space, quotes and what a shell gives a meaning.
func shellWords(command string) []string {
	command = strings.TrimPrefix(command, "!")
	return strings.FieldsFunc(command, func(c rune) bool {
		return strings.ContainsRune(" \t\r\n\"'`;|&<>()=$,", c)
	})
}
