package substrate

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// FlagKind says why a reviewer has to look at a path.
type FlagKind string

// The kinds of flags.
const (
	FlagLeftOut    FlagKind = "left-out"   // the entry is not in the commit
	FlagCI         FlagKind = "ci"         // runs on a build server, often with secrets
	FlagHook       FlagKind = "hook"       // runs at the next git command, where it is set up
	FlagAutorun    FlagKind = "autorun"    // an editor, shell, package manager or agent acts on it
	FlagScripts    FlagKind = "scripts"    // package.json's scripts, which an install runs
	FlagExecutable FlagKind = "executable" // has become executable
	FlagSymlink    FlagKind = "symlink"    // leads out of the tree, or into .git
	FlagSubmodule  FlagKind = "submodule"
	FlagRepository FlagKind = "repository" // a directory that Git takes for a bare repository
	FlagAttributes FlagKind = "attributes" // .gitattributes: filters, drivers, what diffs show
	FlagLFS        FlagKind = "lfs"        // .lfsconfig: where large files are fetched from
	FlagBinary     FlagKind = "binary"     // holds a NUL byte
	FlagHidden     FlagKind = "hidden"     // control, bidirectional or invisible characters were added
	FlagLongLine   FlagKind = "long-line"  // a line is longer than what a diff shows of it
	FlagName       FlagKind = "name"       // the name itself has them, or is not UTF-8
	FlagCollision  FlagKind = "collision"  // differs from another name only in case
)

// Flag is something that a reviewer must see.
type Flag struct {
	Kind FlagKind
	Path string // raw bytes; show it through [Escape]
	Note string
}

// String is the flag on one line, safe to show.
func (f Flag) String() string {
	s := string(f.Kind)
	if f.Path != "" {
		s += ": " + Escape(f.Path)
	}
	if f.Note != "" {
		s += ": " + Escape(f.Note)
	}
	return s
}

// known are names that something acts on by itself. A name that ends in a slash
// stands for a directory and everything in it; one that begins with a slash is
// only meant at the top of the tree. Case does not matter.
var known = []struct {
	kind  FlagKind
	names []string
}{
	{FlagCI, []string{
		".github/workflows/", ".github/actions/", ".github/codeowners", "/codeowners", "/docs/codeowners", ".github/dependabot.yml",
		".gitlab-ci.yml", ".gitlab-ci.yaml", ".gitlab/", ".circleci/", "jenkinsfile", "azure-pipelines.yml", "azure-pipelines.yaml",
		".azure-pipelines/", ".azuredevops/", ".buildkite/", ".travis.yml", "appveyor.yml", ".appveyor.yml", "bitbucket-pipelines.yml",
		".drone.yml", ".drone.jsonnet", ".woodpecker/", ".woodpecker.yml", ".woodpecker.yaml", ".teamcity/", ".cirrus.yml", ".cirrus.star",
		".forgejo/", ".gitea/", ".tekton/", ".semaphore/", ".builds/", ".build.yml", "cloudbuild.yaml", "cloudbuild.json", "buildspec.yml",
		".pipelines/", ".ci/", "/ci/", ".harness/", ".depot/", ".earthly/", "earthfile", ".mergify.yml", "renovate.json", ".renovaterc",
	}},
	{FlagHook, []string{
		".husky/", ".githooks/", ".git-hooks/", "githooks/", ".hooks/", "/hooks/", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml",
		"lefthook.yml", "lefthook.yaml", "lefthook.toml", ".lefthook.yml", "lefthook-local.yml", ".lefthook/", ".overcommit.yml",
		".lintstagedrc", ".lintstagedrc.json", ".lintstagedrc.js", "lint-staged.config.js", ".captain-hook/", "captainhook.json",
		"simple-git-hooks.json", ".simple-git-hooks.json",
	}},
	{FlagAutorun, []string{
		".envrc", ".env", ".vscode/", ".idea/", ".fleet/", ".zed/", ".devcontainer/", ".devcontainer.json", ".gitpod.yml",
		".claude/", ".claude.json", "claude.md", "claude.local.md", "agents.md", "agent.md", "gemini.md", ".gemini/", ".codex/", ".cursor/",
		".cursorrules", ".windsurf/", ".windsurfrules", ".clinerules", ".clinerules/", ".roo/", ".roorules", ".kiro/", ".continue/", ".junie/",
		".augment/", ".amazonq/", ".pi/", ".opencode/", "opencode.json", "opencode.jsonc", ".aider.conf.yml", ".aiderignore", ".mcp.json",
		"mcp.json", ".github/copilot-instructions.md", ".github/instructions/", ".github/prompts/", ".github/agents/", ".goosehints",
		".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/", ".pnpmfile.cjs", ".bunfig.toml", "bunfig.toml", "pip.conf", ".pypirc", ".cargo/",
		".bazelrc", ".gdbinit", ".lldbinit", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".dir-locals.el", ".mise.toml", "mise.toml",
		".mise/", ".tool-versions", ".rtx.toml", ".autoenv.zsh", ".env.zsh", ".sdkmanrc", ".ruby-version", ".python-version", ".nvmrc",
		"sitecustomize.py", "usercustomize.py", "conftest.py", ".mvn/", ".bundle/", ".irbrc", ".pryrc", ".rspec", ".ssh/", ".gitconfig",
	}},
	{FlagAttributes, []string{".gitattributes"}},
	{FlagLFS, []string{".lfsconfig"}},
	{FlagSubmodule, []string{".gitmodules"}},
}

// byName returns the kinds that a path has by its name.
func byName(p string) []FlagKind {
	p = "/" + strings.ToLower(p)
	var kinds []FlagKind
	for _, k := range known {
		if slices.ContainsFunc(k.names, func(name string) bool { return named(p, name) }) {
			kinds = append(kinds, k.kind)
		}
	}
	if strings.HasSuffix(p, ".code-workspace") {
		kinds = append(kinds, FlagAutorun)
	}
	return kinds
}

func named(p, name string) bool {
	if top, ok := strings.CutPrefix(name, "/"); ok {
		if strings.HasSuffix(top, "/") {
			return strings.HasPrefix(p, name)
		}
		return p == name
	}
	if strings.HasSuffix(name, "/") {
		return strings.Contains(p, "/"+name)
	}
	return strings.HasSuffix(p, "/"+name)
}

// flags looks at the changes that lead to a tree.
func (g *gitDir) flags(ctx context.Context, format Format, changes []Change, to string) ([]Flag, error) {
	objects, err := g.openBatch(ctx, format)
	if err != nil {
		return nil, err
	}
	defer objects.Close()
	v := &reviewer{
		objects: objects, tree: newBaseView(objects, to),
		folded: map[string]map[string]int{}, searched: map[string]bool{}, counts: map[FlagKind]int{},
	}
	for _, c := range changes {
		if err := v.look(c); err != nil {
			return nil, err
		}
	}
	return v.all(), nil
}

type reviewer struct {
	objects  *batch
	tree     *baseView
	folded   map[string]map[string]int // how many names of a directory fold to one
	searched map[string]bool           // directories, and so all above them, for a repository
	flags    []Flag
	counts   map[FlagKind]int
}

// maxFlags is how many flags of one kind are kept. The rest is counted.
const maxFlags = 200

func (v *reviewer) add(kind FlagKind, path, note string) {
	if v.counts[kind]++; v.counts[kind] <= maxFlags {
		v.flags = append(v.flags, Flag{kind, path, note})
	}
}

func (v *reviewer) all() []Flag {
	for _, kind := range slices.Sorted(maps.Keys(v.counts)) {
		if more := v.counts[kind] - maxFlags; more > 0 {
			v.flags = append(v.flags, Flag{Kind: kind, Note: strconv.Itoa(more) + " more paths"})
		}
	}
	return v.flags
}

func (v *reviewer) look(c Change) error {
	for _, kind := range byName(c.Path) {
		v.add(kind, c.Path, string(c.Status))
	}
	if c.Status != Deleted && (!utf8.ValidString(c.Path) || Escape(c.Path) != c.Path || strings.Contains(c.Path, "\t")) {
		v.add(FlagName, c.Path, "the name has characters that do not show, or is not UTF-8")
	}
	if c.NewMode == modeExec && c.OldMode != modeExec {
		v.add(FlagExecutable, c.Path, "is executable now")
	}
	if c.NewMode == modeGitlink || c.OldMode == modeGitlink {
		v.add(FlagSubmodule, c.Path, string(c.Status))
	}
	if c.Status == Added {
		if err := v.collisions(c.Path); err != nil {
			return err
		}
	}
	if c.Status != Deleted {
		if err := v.embedded(c.Path); err != nil {
			return err
		}
	}
	switch c.NewMode {
	case modeSymlink:
		target, err := v.objects.read(c.NewID, "blob", maxBuffered)
		if err != nil {
			return err
		}
		if why := leaves(c.Path, string(target)); why != "" {
			v.add(FlagSymlink, c.Path, why+": "+string(target))
		}
	case modeFile, modeExec:
		return v.content(c)
	}
	return nil
}

// leaves says how a symbolic link leads out of the tree, judged by its text: a
// link to a link is judged by its own.
func leaves(p, target string) string {
	if path.IsAbs(target) {
		return "leads to an absolute path"
	}
	dir, _ := splitPath(p)
	at := path.Join(dir, target)
	if at == ".." || strings.HasPrefix(at, "../") {
		return "leads out of the tree"
	}
	if refuseName(strings.SplitN(at, "/", 2)[0], modeFile) != "" {
		return "leads into .git"
	}
	return ""
}

// embedded flags a directory above a path that Git takes for a bare repository
// (gitrepository-layout(5)): a git command in it obeys its config, and so runs what
// the tree says, unless safe.bareRepository is explicit.
func (v *reviewer) embedded(p string) error {
	for at, _ := splitPath(p); at != "" && !v.searched[at]; at, _ = splitPath(at) {
		v.searched[at] = true
		entries, err := v.tree.dir(at)
		if err != nil {
			return err
		}
		if entries["objects"].mode == modeTree && entries["refs"].mode == modeTree && entries["HEAD"].mode != 0 {
			v.add(FlagRepository, at, "Git takes it for a repository, and runs what its config names")
		}
	}
	return nil
}

// collisions flags a path of which some part differs from a neighbour in case
// only: on a file system that folds case, one of them is lost.
func (v *reviewer) collisions(p string) error {
	for at := p; at != ""; at, _ = splitPath(at) {
		dir, name := splitPath(at)
		counts, ok := v.folded[dir]
		if !ok {
			entries, err := v.tree.dir(dir)
			if err != nil {
				return err
			}
			counts = map[string]int{}
			for n := range maps.Keys(entries) {
				counts[strings.ToLower(n)]++
			}
			v.folded[dir] = counts
		}
		if counts[strings.ToLower(name)] > 1 {
			v.add(FlagCollision, p, "another name differs from "+name+" only in case")
			return nil
		}
	}
	return nil
}

// content compares what the two versions of a file hold. A kind of character
// that the file had before is not news.
func (v *reviewer) content(c Change) error {
	if c.NewID == c.OldID {
		return nil
	}
	after, err := v.scan(c.NewID)
	if err != nil {
		return err
	}
	var before contents
	if c.OldMode == modeFile || c.OldMode == modeExec {
		if before, err = v.scan(c.OldID); err != nil {
			return err
		}
	}
	if after.binary {
		v.add(FlagBinary, c.Path, "holds NUL bytes")
	} else if after.hidden > before.hidden {
		v.add(FlagHidden, c.Path, "has control, bidirectional or invisible characters")
	}
	if after.long {
		v.add(FlagLongLine, c.Path, "a line is longer than what a diff shows of it")
	}
	if strings.HasSuffix("/"+strings.ToLower(c.Path), "/package.json") {
		same, err := v.sameScripts(c)
		if err != nil {
			return err
		}
		if !same {
			v.add(FlagScripts, c.Path, "its scripts differ")
		}
	}
	return nil
}

type contents struct {
	binary bool
	hidden int
	long   bool // has a line that a diff cuts
}

// scan reads one blob through.
func (v *reviewer) scan(id string) (contents, error) {
	var found contents
	if err := v.objects.ask(id); err != nil {
		return found, err
	}
	o, err := v.objects.next(id)
	if err != nil {
		return found, err
	}
	buf := make([]byte, 64<<10)
	line := 0 // bytes of it so far
	kept := 0 // bytes of a character that the last read cut in two
	for first := true; ; first = false {
		n, err := o.Read(buf[kept:])
		if err != nil && err != io.EOF {
			return found, err
		}
		text := buf[:kept+n]
		kept = 0
		for i := 0; i < len(text); {
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 && err == nil && !utf8.FullRune(text[i:]) {
				kept = copy(buf, text[i:])
				break
			}
			found.binary = found.binary || r == 0
			if deceptive(r) && (!first || i > 0 || r != 0xfeff) { // a leading byte order mark is ordinary
				found.hidden++
			}
			i += size
			if line += size; r == '\n' {
				line = 0
			}
			found.long = found.long || line >= maxLine // a diff's line begins with one more
		}
		if err == io.EOF {
			return found, nil
		}
		if found.binary {
			return found, drain(o)
		}
	}
}

// deceptive is [hidden] without what ordinary text is full of: ends of lines,
// and the joiners and selectors that emoji and some scripts are written with.
func deceptive(r rune) bool {
	switch {
	case r == '\n', r == '\r', r == '\t', r == '\f':
		return false
	case r == 0x200c, r == 0x200d, r == 0x00ad, r >= 0xfe00 && r <= 0xfe0f:
		return false
	}
	return hidden(r)
}

// sameScripts compares the part of package.json that package managers execute.
func (v *reviewer) sameScripts(c Change) (bool, error) {
	var scripts [2]map[string]json.RawMessage
	for i, id := range []string{c.OldID, c.NewID} {
		if id == "" {
			continue
		}
		data, err := v.objects.read(id, "blob", maxBuffered)
		if err != nil {
			return false, err
		}
		var parsed struct {
			Scripts map[string]json.RawMessage `json:"scripts"`
		}
		if json.Unmarshal(data, &parsed) != nil {
			return false, nil // whatever reads it may see scripts
		}
		scripts[i] = parsed.Scripts
	}
	return maps.EqualFunc(scripts[0], scripts[1], func(a, b json.RawMessage) bool { return string(a) == string(b) }), nil
}
