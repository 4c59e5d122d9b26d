package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"tendril/capability"
	"tendril/display"
	"tendril/fault"
	"tendril/run"
)

type limitFlags struct {
	CPUs   *float64             `name:"cpus" placeholder:"N" help:"Processors, also a fraction."`
	Memory *capability.Bytes    `placeholder:"SIZE" help:"Memory, swap included, such as 2GiB."`
	Disk   *capability.Bytes    `placeholder:"SIZE" help:"Changes in the workspace and scratch together."`
	Output *capability.Bytes    `placeholder:"SIZE" help:"stdout and stderr together."`
	Pids   *int                 `placeholder:"N" help:"Processes and threads."`
	Wall   *capability.Duration `placeholder:"TIME" help:"Wall-clock time, such as 30m."`
	Idle   *capability.Duration `placeholder:"TIME" help:"Time without output and without processor use."`
}

func (f limitFlags) limits() capability.Limits {
	return capability.Limits{CPUs: f.CPUs, Memory: f.Memory, Disk: f.Disk, Output: f.Output, Pids: f.Pids, Wall: f.Wall, Idle: f.Idle}
}

// workFlags say what a Sprout is to do, and behind which wall.
type workFlags struct {
	Substrate string     `short:"s" default:"." placeholder:"PATH|NAME" help:"The Git repository to work on: a path with a slash or a dot, or a name of the Botanist's (default: this directory)."`
	Base      string     `placeholder:"REV" help:"The commit to start from: a branch, a tag or an id (default: HEAD)."`
	Dirty     bool       `help:"Start from a snapshot of the working tree, uncommitted changes included."`
	Provider  string     `placeholder:"NAME" help:"The wall to use (default: the strongest that is ready)."`
	Image     string     `placeholder:"IMAGE" help:"An OCI image whose tree is the root file system inside: oci:PATH[:TAG], docker-archive:PATH[:TAG] or a registry's (default: a view of this host's toolchain)."`
	Override  string     `placeholder:"host" help:"Take the wall of that name for this one run although the policy denies it. There is only one such: host, which isolates nothing."`
	Task      string     `arg:"" optional:"" help:"What the agent is to do (after -- if it begins with a dash)."`
	Agent     string     `placeholder:"NAME" help:"Let this agent do the task: claude, codex, opencode, pi, aider, sprout (built in), or one of tendril.yaml."`
	Ask       string     `placeholder:"TASK" help:"Let the built-in agent do this; with --agent, that one."`
	Model     string     `placeholder:"NAME" help:"The model that the agent asks (default: the first that the grant names)."`
	Env       []string   `sep:"none" placeholder:"NAME=VALUE" help:"A variable for the Sprout. Nothing is inherited."`
	Fetch     []string   `sep:"none" placeholder:"URL=PATH" help:"Fetch this file before the work, as the grant permits, and put it there; URL#sha256=HEX=PATH takes no other file."`
	Stdin     bool       `short:"i" help:"Pass stdin to the Sprout."`
	TTY       bool       `name:"tty" short:"t" help:"Give the Sprout a terminal."`
	Limits    limitFlags `embed:"" group:"Limits (a limit that is asked for is kept or the run is refused):"`
}

// work is what the flags ask for, and the context that carries the caller's input. The
// function gives the caller's terminal back.
func (f *workFlags) work(ctx context.Context, c *console) (context.Context, capability.Work, func(), error) {
	none := func() {}
	argv, agent, task, err := f.asked(c.argv)
	if err != nil {
		return ctx, capability.Work{}, none, err
	}
	substrate, err := substrateArgument(f.Substrate)
	if err != nil {
		return ctx, capability.Work{}, none, err
	}
	image, err := imageArgument(f.Image)
	if err != nil {
		return ctx, capability.Work{}, none, err
	}
	work := capability.Work{
		Substrate: substrate, Base: f.Base, Dirty: f.Dirty, Argv: argv, Agent: agent, Ask: task, Model: f.Model, Env: f.Env, Provider: f.Provider, Image: image, Override: f.Override, Limits: f.Limits.limits(),
	}
	if work.Fetch, err = fetchArguments(f.Fetch); err != nil {
		return ctx, work, none, err
	}
	if f.Stdin || f.TTY {
		ctx = capability.WithInput(ctx, c.stdin)
	}
	if !f.TTY {
		return ctx, work, none, nil
	}
	terminal, restore, err := c.takeTerminal()
	if err != nil {
		return ctx, work, none, err
	}
	work.Terminal = &terminal.size
	return capability.WithResizes(ctx, terminal.resizes), work, restore, nil
}

// asked is exactly one of a command and a task with its agent, which is the built-in one
// where --ask names no other.
func (f *workFlags) asked(argv []string) (_ []string, agent, task string, err error) {
	switch agent, task = f.Agent, cmp.Or(f.Ask, f.Task); {
	case f.Ask != "" && f.Task != "":
		err = fault.New(fault.Invalid, "the task is given twice, with --ask and without").WithHint("leave one of them out")
	case f.Ask != "":
		agent = cmp.Or(agent, "sprout")
	case agent != "" && task == "" && len(argv) == 1:
		argv, task = nil, argv[0]
	case agent == "" && task != "":
		err = fault.New(fault.Invalid, "unexpected argument %s; a Sprout's command stands after --, and a task needs --agent", task)
	case argv == nil && agent == "":
		err = fault.New(fault.Invalid, "the command for the Sprout is missing").
			WithHint("put it after --, as in: tendril grow -- make test")
	}
	return argv, agent, task, err
}

// fetchArguments reads URL=PATH, with a digest as pip writes it behind the URL.
func fetchArguments(arguments []string) ([]capability.FetchedFile, error) {
	var files []capability.FetchedFile
	for _, argument := range arguments {
		i := strings.LastIndexByte(argument, '=')
		if i < 0 {
			return nil, fault.New(fault.Invalid, "--fetch %q is not URL=PATH", argument)
		}
		file := capability.FetchedFile{URL: argument[:i], Path: argument[i+1:]}
		if url, digest, ok := strings.Cut(file.URL, "#sha256="); ok {
			file.URL, file.Digest = url, "sha256:"+digest
		}
		files = append(files, file)
	}
	return files, nil
}

type growCommand struct {
	workFlags
	Require string `enum:"clean,any" default:"any" placeholder:"clean" help:"With clean: exit with 5 unless the verdict is clean."`
}

// Help is what grow's help says beyond its one line.
func (*growCommand) Help() string {
	return "The command stands after --, as in: tendril grow --wall 30m -- make test\n\n" +
		"Or an agent does a task: tendril grow --agent codex 'make the failing test pass' (docs/agents.md).\n\n" +
		"It runs in /workspace, over the tree of the base commit, as a user of its own, without network and " +
		"without anything of yours but the toolchain below /usr (docs/terrarium.md). What it changed becomes one " +
		"commit on tendril/RUN. stdout gets one line that names the branch; progress, the Sprout's output and " +
		"everything else go to stderr."
}

func (g *growCommand) Run(ctx context.Context, c *console) error {
	ctx, work, restore, err := g.work(ctx, c)
	if err != nil {
		return err
	}
	defer restore()
	in := capability.GrowInput{RequireClean: g.Require == "clean", Work: work}
	live := newLive(c)
	output, err := c.invoke(capability.WithEvents(ctx, live.event), "sprout.grow", in)
	if err != nil {
		return err
	}
	record := output.(run.Run)
	if c.json {
		c.printJSON(record)
	} else {
		c.printEnd(record)
	}
	if code := run.ExitStatus(record, in.RequireClean); code != 0 {
		return status(code)
	}
	return nil
}

type passCommand struct{ workFlags }

// Help is what pass's help says beyond its one line.
func (*passCommand) Help() string {
	return "The command stands after --, as in: tendril pass -- git log --oneline -3\n\n" +
		"It runs as in grow. What it prints is the answer, on stdout and stderr, at the end and with control characters " +
		"escaped (--json has the exact bytes); what it changes goes with its Terrarium."
}

func (p *passCommand) Run(ctx context.Context, c *console) error {
	ctx, work, restore, err := p.work(ctx, c)
	if err != nil {
		return err
	}
	defer restore()
	output, err := c.invoke(ctx, "stoma.pass", capability.PassInput{Work: work})
	if err != nil {
		return err
	}
	passed := output.(capability.Pass)
	if c.json {
		c.printJSON(passed)
	} else {
		if len(passed.Stderr) > 0 {
			c.live.Notice(strings.TrimSuffix(display.Text(string(passed.Stderr)), "\n"))
		}
		fmt.Fprint(c.stdout, display.Text(string(passed.Stdout)))
		if passed.Run.State != run.Passed || passed.Run.Exit.Failed() {
			c.printEnd(passed.Run)
		}
	}
	if code := run.ExitStatus(passed.Run, false); code != 0 {
		return status(code)
	}
	return nil
}

// printEnd says what became of a run: on stdout the branch, on stderr the rest.
func (c *console) printEnd(r run.Run) {
	say := func(format string, args ...any) { c.notice("tendril: " + fmt.Sprintf(format, args...)) }
	switch {
	case r.Error != nil:
		say("%s %s: %s", r.ID, r.State, sentence(r.Error))
	case r.Stop != nil && r.Stop.Limit != "":
		say("%s stopped: the %s limit was reached", r.ID, r.Stop.Limit)
	case r.Stop != nil:
		say("%s stopped: cancelled by %s", r.ID, display.Line(r.Stop.Cancel))
	case r.Exit != nil && r.Exit.Failed():
		say("%s %s: the command %s", r.ID, r.State, exitText(*r.Exit))
	default:
		say("%s %s", r.ID, r.State)
	}
	if r.State == run.Refused {
		return
	}
	if len(r.Boundary) > 0 {
		say("boundary: %s", boundaryText(r))
	}
	if r.Ignored > 0 || r.Skipped > 0 {
		say("left behind: %d ignored by Git, %d that Git cannot hold", r.Ignored, r.Skipped)
	}
	for _, f := range r.Flags {
		say("look at: %s (%s: %s)", display.Line(string(f.Path)), display.Line(f.Kind), display.Line(f.Note))
	}
	if r.Verdict != nil {
		say("verdict: %s", *r.Verdict)
	}
	if r.Branch == nil {
		if r.State == run.Unchanged {
			say("nothing changed, so there is no branch")
		} else {
			say("there is no branch")
		}
		return
	}
	if r.Partial {
		say("the work is partial: something ended the run before its command did")
	}
	say("review it with: tendril fruit diff %s", r.ID)
	fmt.Fprintf(c.stdout, "branch: %s (%d changed)\n", display.Line(*r.Branch), r.Changed)
}

func exitText(e run.Exit) string {
	if e.Signal != nil {
		return fmt.Sprintf("was ended by signal %d", *e.Signal)
	}
	return fmt.Sprintf("ended with status %d", *e.Code)
}

func boundaryText(r run.Run) string {
	var parts []string
	if r.Provider != nil {
		parts = append(parts, display.Line(*r.Provider))
	}
	kept := map[string][]string{}
	for _, row := range r.Boundary {
		if row.Field == "Network" {
			parts = append(parts, "network "+display.Line(row.Applied))
		}
		if row.Dimension == "resources" && row.Asked != "0" && row.Asked != "0s" {
			kept[row.Enforced] = append(kept[row.Enforced], strings.ToLower(row.Field))
		}
	}
	if len(kept["host"]) > 0 {
		parts = append(parts, "enforced: "+strings.Join(kept["host"], " "))
	}
	if len(kept["sampled"]) > 0 {
		parts = append(parts, "sampled only: "+strings.Join(kept["sampled"], " "))
	}
	if len(kept["no"]) > 0 {
		parts = append(parts, "not enforced: "+strings.Join(kept["no"], " "))
	}
	return strings.Join(parts, ", ")
}

// imageArgument makes the path in the name of an image absolute: a tendril that serves has
// another directory. What neither has a scheme nor begins as a path is a registry's.
func imageArgument(name string) (string, error) {
	scheme, path := "", name
	for _, known := range []string{"oci:", "docker-archive:"} {
		if rest, ok := strings.CutPrefix(name, known); ok {
			scheme, path = known, rest
		}
	}
	if path == "" || scheme == "" && path != "." && path != ".." && !strings.HasPrefix(path, "./") && !strings.HasPrefix(path, "../") {
		return name, nil
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", fault.New(fault.Invalid, "image %q: %w", name, err)
	}
	return scheme + absolute, nil
}
