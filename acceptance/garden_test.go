package acceptance_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"tendril/run"
	"tendril/state"
)

// patience bounds every wait for something that has to happen. It is no part of any
// promise: a machine that is busy with other tests is slow.
const patience = 2 * time.Minute

// garden is a place of its own for runs: a home, a state directory and a repository.
type garden struct {
	t      testing.TB
	binary string
	home   string
	tmp    string // where the product's temporary files would go
	state  string
	repo   string
	env    []string
	store  *state.Store // the product's database, to look at without recovering anything
}

// newGarden makes a garden with one commit: old.txt, base.txt, and a run.sh to
// make executable.
func newGarden(t testing.TB) *garden {
	t.Helper()
	return newGardenIn(t, "")
}

// newGardenIn makes one with its state directory elsewhere.
func newGardenIn(t testing.TB, state string) *garden {
	t.Helper()
	path := binary(t)
	adoptOrphans(t)
	root := workDir(t)
	if state == "" {
		state = filepath.Join(root, "state")
	}
	g := &garden{
		t: t, binary: path, home: filepath.Join(root, "home"), tmp: filepath.Join(root, "tmp"),
		state: state, repo: filepath.Join(root, "repo"),
	}
	for _, dir := range []string{g.home, g.tmp, g.state} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	g.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + g.home, "TMPDIR=" + g.tmp, "TENDRIL_STATE_DIR=" + g.state,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=gardener", "GIT_AUTHOR_EMAIL=gardener@localhost",
		"GIT_COMMITTER_NAME=gardener", "GIT_COMMITTER_EMAIL=gardener@localhost",
	}
	g.makeRepository(g.repo)
	g.succeed("run", "list") // makes the state directory's content
	var err error
	if g.store, err = openStore(t, g.state); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.store.Close() })
	return g
}

func openStore(t testing.TB, dir string) (*state.Store, error) {
	return state.Open(t.Context(), filepath.Join(dir, "state.db"))
}

// in is the same garden for a subtest.
func (g *garden) in(t testing.TB) *garden {
	same := *g
	same.t = t
	return &same
}

func (g *garden) makeRepository(dir string) {
	g.t.Helper()
	g.shell(`git init -q -b main "$1" && cd "$1" &&
		echo old >old.txt && echo base >base.txt && printf '#!/bin/sh\n' >run.sh &&
		git add -A && git commit -qm base && git branch topic`, dir)
}

// shell runs a script of the test on the host, with $1, $2, … and stops the test
// when it fails.
func (g *garden) shell(script string, args ...string) string {
	g.t.Helper()
	out, err := g.tryShell(script, args...)
	if err != nil {
		g.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

func (g *garden) tryShell(script string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", slices.Concat([]string{"-c", script, "sh"}, args)...)
	cmd.WaitDelay = time.Second
	cmd.Env, cmd.Dir = g.env, filepath.Dir(g.home)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// git runs Git in the repository.
func (g *garden) git(args ...string) string {
	g.t.Helper()
	cmd := exec.Command("git", slices.Concat([]string{"-C", g.repo}, args)...)
	cmd.Env = g.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// answer is what a tendril that has ended said.
type answer struct {
	stdout, stderr string
	status         int
}

// tendril runs the product to its end.
func (g *garden) tendril(args ...string) answer {
	g.t.Helper()
	return g.start(args...).wait()
}

func (g *garden) succeed(args ...string) answer {
	g.t.Helper()
	a := g.tendril(args...)
	if a.status != 0 {
		g.t.Fatalf("tendril %s: status %d\n%s%s", strings.Join(args, " "), a.status, a.stdout, a.stderr)
	}
	return a
}

// growing is a tendril that runs.
type growing struct {
	g              *garden
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr bytes.Buffer // complete once it was waited for
	ended          chan struct{}
}

// start starts the product, leader of a process group as a shell would make it.
func (g *garden) start(args ...string) *growing {
	g.t.Helper()
	return g.launch(exec.Command(g.binary, args...))
}

// startAs starts the product through a shell, for which it is $0.
func (g *garden) startAs(script string, args ...string) *growing {
	g.t.Helper()
	return g.launch(exec.Command("sh", slices.Concat([]string{"-c", script, g.binary}, args)...))
}

func (g *garden) launch(cmd *exec.Cmd) *growing {
	g.t.Helper()
	p := &growing{g: g, cmd: cmd, ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = g.env, g.home
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		g.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	g.t.Cleanup(func() { // only what a failed test left
		p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// grow starts a run of a shell script on the repository.
func (g *garden) grow(script string, flags ...string) *growing {
	g.t.Helper()
	return g.start(slices.Concat([]string{"grow", "--json", "--substrate", g.repo}, flags, []string{"--", "sh", "-c", script})...)
}

func (p *growing) pid() int { return p.cmd.Process.Pid }

func (p *growing) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// wait waits for the end.
func (p *growing) wait() answer {
	p.g.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.g.t.Fatalf("tendril %s does not end", strings.Join(p.cmd.Args[1:], " "))
	}
	return answer{p.stdout.String(), p.stderr.String(), p.cmd.ProcessState.ExitCode()}
}

// kill ends it with SIGKILL, and returns when it is gone.
func (p *growing) kill() {
	p.g.t.Helper()
	p.cmd.Process.Kill()
	p.wait()
}

// runs lists what the database knows, the newest first, without recovering anything.
func (g *garden) runs() []run.Run {
	g.t.Helper()
	runs, err := g.store.List(context.Background(), state.Filter{}, 1000, "")
	if err != nil {
		g.t.Fatal(err)
	}
	return runs
}

// newest is the newest run that is not among the known ones.
func (g *garden) newest(known map[run.ID]bool) (run.Run, bool) {
	g.t.Helper()
	runs, err := g.store.List(context.Background(), state.Filter{}, 1, "")
	if err != nil {
		g.t.Fatal(err)
	}
	if len(runs) == 0 || known[runs[0].ID] {
		return run.Run{}, false
	}
	return runs[0], true
}

func (g *garden) get(id run.ID) run.Run {
	g.t.Helper()
	r, err := g.store.Get(context.Background(), id)
	if err != nil {
		g.t.Fatal(err)
	}
	return r
}

// output is what a run's Sprout has written so far.
func (g *garden) output(id run.ID) string {
	g.t.Helper()
	events, err := g.store.Events(context.Background(), id, 0, 1000)
	if err != nil {
		g.t.Fatal(err)
	}
	var out []byte
	for _, e := range events {
		if chunk, ok := e.Data.(run.OutputChunk); ok {
			out = append(out, chunk.Bytes...)
		}
	}
	return string(out)
}

// eventually returns when done says true, and stops the test when that takes too
// long. It looks often: what is waited for may be short.
func (g *garden) eventually(what string, done func() bool) {
	g.t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			g.t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond / 2) // between two looks
	}
}

// awaitOutput waits until the newest unknown run, which p runs, has written the word.
func (g *garden) awaitOutput(p *growing, known map[run.ID]bool, word string) run.Run {
	g.t.Helper()
	var r run.Run
	g.eventually("a run writes "+word, func() bool {
		if p.hasEnded() {
			g.t.Fatalf("the run has ended: %+v", p.wait())
		}
		var there bool
		r, there = g.newest(known)
		return there && strings.Contains(g.output(r.ID), word)
	})
	return r
}

func known(runs []run.Run) map[run.ID]bool {
	ids := map[run.ID]bool{}
	for _, r := range runs {
		ids[r.ID] = true
	}
	return ids
}

// adoptOrphans makes this process the parent of whatever its descendants leave
// behind (PR_SET_CHILD_SUBREAPER, prctl(2)), so that nothing escapes by a double fork.
func adoptOrphans(t testing.TB) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}
