package main

import (
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

type growCommand struct {
	Substrate string     `short:"s" default:"." placeholder:"PATH" help:"The Git repository to work on (default: this directory)."`
	Base      string     `placeholder:"REV" help:"The commit to start from: a branch, a tag or an id (default: HEAD)."`
	Dirty     bool       `help:"Start from a snapshot of the working tree, uncommitted changes included."`
	Provider  string     `placeholder:"NAME" help:"The wall to use (default: the strongest that is ready)."`
	Env       []string   `sep:"none" placeholder:"NAME=VALUE" help:"A variable for the Sprout. Nothing is inherited."`
	Stdin     bool       `short:"i" help:"Pass stdin to the Sprout."`
	TTY       bool       `name:"tty" short:"t" help:"Give the Sprout a terminal."`
	Require   string     `enum:"clean,any" default:"any" placeholder:"clean" help:"With clean: exit with 5 unless the verdict is clean."`
	Limits    limitFlags `embed:"" group:"Limits (a limit that is asked for is kept or the run is refused):"`
}

// Help is what grow's help says beyond its one line.
func (*growCommand) Help() string {
	return "The command stands after --, as in: tendril grow --wall 30m -- make test\n\n" +
		"It runs in /workspace, over the tree of the base commit, as a user of its own, without network and " +
		"without anything of yours but the toolchain below /usr (docs/terrarium.md). What it changed becomes one " +
		"commit on tendril/RUN. stdout gets one line that names the branch; progress, the Sprout's output and " +
		"everything else go to stderr."
}

func (g *growCommand) Run(ctx context.Context, c *console) error {
	if c.argv == nil {
		return fault.New(fault.Invalid, "the command for the Sprout is missing").
			WithHint("put it after --, as in: tendril grow -- make test")
	}
	path, err := filepath.Abs(g.Substrate)
	if err != nil {
		return fault.New(fault.Invalid, "substrate %q: %w", g.Substrate, err)
	}
	in := capability.GrowInput{RequireClean: g.Require == "clean", Work: capability.Work{
		Substrate: run.Substrate{Path: run.Path(path)}, Base: g.Base, Dirty: g.Dirty, Argv: c.argv, Env: g.Env,
		Provider: g.Provider, Limits: g.Limits.limits(),
	}}
	if g.Stdin || g.TTY {
		ctx = capability.WithInput(ctx, c.stdin)
	}
	if g.TTY {
		terminal, restore, err := c.takeTerminal()
		if err != nil {
			return err
		}
		defer restore()
		in.Terminal = &terminal.size
		ctx = capability.WithResizes(ctx, terminal.resizes)
	}
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

// printEnd says what became of a run: on stdout the branch, on stderr the rest.
func (c *console) printEnd(r run.Run) {
	say := func(format string, args ...any) { c.live.Notice("tendril: " + fmt.Sprintf(format, args...)) }
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
