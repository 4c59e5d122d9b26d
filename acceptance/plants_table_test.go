package acceptance_test

// plant is something in a repository that makes Git on the host run a program.
// Each leaves a mark, the canary, when it does.
type plant struct {
	name string // as in the corpus of measured plants, if it is there

	// script plants it into the repository that is the current directory. $P is a
	// program that leaves the mark and then copies its input, $Q one that only leaves it.
	script string

	// control is what the host's own Git has to be asked for the mark to appear: it
	// shows that the plant is one. It runs in the repository.
	control string
}

// ownerPlants go together in one repository, as its hostile owner would leave it. A
// file that several write into is appended to.
var ownerPlants = []plant{
	{"embedded bare repo in a subdirectory", embeddedBare + `; git add -f sub; git commit -qm sub`, `cd sub && git status`},
	{"core.fsmonitor", `git config core.fsmonitor "$P"`, `git status`},
	{"hooks/pre-commit", `install -m 755 "$P" .git/hooks/pre-commit`, `git commit -q --allow-empty -m x`},
	{"hooks/post-checkout", `install -m 755 "$P" .git/hooks/post-checkout`, `git checkout -q -b elsewhere`},
	{"hooks/reference-transaction", `install -m 755 "$P" .git/hooks/reference-transaction`, `git branch elsewhere`},
	{"hooks/post-index-change", `install -m 755 "$P" .git/hooks/post-index-change`, `touch -d '1 hour ago' base.txt; git status`},
	{"hooks/post-merge", `install -m 755 "$P" .git/hooks/post-merge`, `git merge -q topic`},
	{"hooks/pre-merge-commit", `install -m 755 "$P" .git/hooks/pre-merge-commit`, `git commit -q --allow-empty -m x; git merge -q --no-edit topic`},
	{"hooks/update", `install -m 755 "$P" .git/hooks/update`, `git push -q . main:pushed`},
	{"hooks/pre-receive", `install -m 755 "$P" .git/hooks/pre-receive`, `git push -q . main:pushed`},
	{"filter clean via .gitattributes + config",
		`git config filter.canary.clean "$P"; git config filter.canary.smudge "$P"; echo '* filter=canary' >>.git/info/attributes`,
		`echo changed >>base.txt; git diff`},
	{"filter process",
		`git config filter.process.process "$P"; git config filter.process.required true; echo '*.sh filter=process' >>.git/info/attributes`,
		`echo changed >>run.sh; git diff`},
	{"diff.external", `git config diff.external "$P"`, `echo changed >>old.txt; git diff`},
	{"diff driver textconv", `git config diff.text.textconv "$P"; echo '*.txt diff=text' >>.git/info/attributes`, `echo changed >>base.txt; git diff`},
	{"diff driver command", `git config diff.command.command "$P"; echo '*.sh diff=command' >>.git/info/attributes`, `echo changed >>run.sh; git diff`},
	{"merge driver", `git config merge.canary.driver "$P"; echo '* merge=canary' >>.git/info/attributes`,
		`sed -i 's/^20$/twenty/' base.txt; git commit -qam x; git merge -q --no-edit topic`},
	{"core.gitProxy / ext:: remote", `git config protocol.ext.allow always; git config core.gitProxy "$Q"; git remote add proxied "ext::$Q"`, `git fetch -q proxied`},
	{"core.sshCommand", `git config core.sshCommand "$Q"; git remote add shelled ssh://localhost/nowhere`, `git fetch -q shelled`},
	{"credential.helper", `git config credential.helper "!$Q"`, `printf 'protocol=https\nhost=example.com\n\n' | GIT_TERMINAL_PROMPT=0 git credential fill`},
	{"gpg.program + log --show-signature", `git config gpg.program "$Q"; git config commit.gpgSign true; git config log.showSignature true`, `git commit -q --allow-empty -m x`},
	{"alias shadowing a builtin", `git config alias.status "!$Q"; git config alias.planted "!$Q"`, `git planted`},
	{"core.editor", `git config core.editor "$P"; git config sequence.editor "$P"`, `git commit -q --allow-empty`},
	{"worktree config (extensions.worktreeConfig)", `git config extensions.worktreeConfig true; git config --worktree core.fsmonitor "$P"`, `git status`},
	{"include.path", `printf '[core]\n\tfsmonitor = %s\n' "$P" >included.config; git config include.path ../included.config`, `git status`},
	{"a promised object", `git config protocol.ext.allow always; git remote add promisor "ext::$Q"
		git config remote.promisor.promisor true; git config extensions.partialClone promisor`,
		`git cat-file -e 0123456789012345678901234567890123456789`},
	{"gc.auto", `git config gc.autoPackLimit 1; git config gc.autoDetach false; install -m 755 "$P" .git/hooks/pre-auto-gc`,
		`for i in 1 2 3; do git commit -q --allow-empty -m $i; git repack -q; done; git gc --auto -q`},
}

// embeddedBare makes a directory that Git takes for a bare repository, whose
// configuration is content of the tree.
const embeddedBare = `mkdir -p sub/objects sub/refs; echo 'ref: refs/heads/main' >sub/HEAD; echo x >sub/objects/x; echo x >sub/refs/x
	printf '[core]\n\trepositoryFormatVersion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = %s\n' "$P" >sub/config`

// refusedPlants make a repository that is not worked on at all.
var refusedPlants = []struct {
	plant
	says string // in the refusal
}{
	{plant{".git symlink -> dir in the tree", `git config core.fsmonitor "$P"; mv .git tree; ln -s tree .git`, `git status`}, "symbolic link"},
	{plant{".git/objects symlink to a host directory", `mv .git/objects "$OUTSIDE/objects"; ln -s "$OUTSIDE/objects" .git/objects`, ""}, "symbolic link"},
	{plant{"objects/pack symlink to a host directory", `rm -rf .git/objects/pack; mkdir "$OUTSIDE/pack"; ln -s "$OUTSIDE/pack" .git/objects/pack`, ""}, "symbolic link"},
	{plant{"refs/heads symlink to a host directory", `mv .git/refs/heads "$OUTSIDE/heads"; ln -s "$OUTSIDE/heads" .git/refs/heads`, ""}, "symbolic link"},
	{plant{"HEAD symlink to a host file", `cp .git/HEAD "$OUTSIDE/HEAD"; ln -sf "$OUTSIDE/HEAD" .git/HEAD`, ""}, "symbolic link"},
	{plant{"packed-refs symlink to a host file", `git pack-refs --all; mv .git/packed-refs "$OUTSIDE/packed-refs"; ln -s "$OUTSIDE/packed-refs" .git/packed-refs`, ""}, "symbolic link"},
	{plant{"commondir to another repository", `git init -q --bare "$OUTSIDE/other.git"; echo "$OUTSIDE/other.git" >.git/commondir`, ""}, ""},
	{plant{"an unknown extension", `git config core.repositoryFormatVersion 1; git config extensions.surprise true`, ""}, "surprise"},
	{plant{"http-alternates", `echo http://localhost/ >.git/objects/info/http-alternates`, ""}, "http-alternates"},
}
