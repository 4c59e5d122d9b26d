package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"tendril/capability"
	"tendril/display"
	"tendril/fault"
	"tendril/run"
)

type runCommands struct {
	List   runListCommand   `cmd:"" help:"List runs, the newest first."`
	Get    runGetCommand    `cmd:"" help:"Show the record of a run."`
	Logs   runLogsCommand   `cmd:"" help:"Show what a Sprout wrote."`
	Watch  runWatchCommand  `cmd:"" help:"Follow the events of a run until it ends."`
	Cancel runCancelCommand `cmd:"" help:"Stop a run; its work so far is kept."`
}

// runArgument is the id of a run on the command line.
type runArgument struct {
	ID string `arg:"" name:"run" help:"The run's id."`
}

func (a runArgument) id() (run.ID, error) { return run.ParseID(a.ID) }

type runListCommand struct {
	Limit int    `default:"20" help:"How many."`
	State string `placeholder:"STATE" help:"Only runs in this state."`
}

func (l *runListCommand) Run(ctx context.Context, c *console) error {
	if l.Limit < 1 {
		return fault.New(fault.Invalid, "a limit of %d runs is not between 1 and %d", l.Limit, capability.MostListed)
	}
	output, err := c.invoke(ctx, "run.list", capability.ListInput{Limit: l.Limit, State: run.State(l.State)})
	return list(c, output, err, "RUN\tSTATE\tCHANGED\tVERDICT\tWHEN\tSUBSTRATE", func(r run.Run) string {
		return fmt.Sprintf("%s\t%s\t%d\t%s\t%s\t%s", r.ID, r.State, r.Changed, verdictText(r), at(r.ID.Time()), display.Line(r.Substrate.String()))
	})
}

func verdictText(r run.Run) string {
	if r.Verdict == nil {
		return "-"
	}
	return string(*r.Verdict)
}

type runGetCommand struct{ runArgument }

func (g *runGetCommand) Run(ctx context.Context, c *console) error {
	id, err := g.id()
	if err != nil {
		return err
	}
	output, err := c.invoke(ctx, "run.get", capability.RunInput{Run: id})
	return show(c, output, err, c.printRun)
}

func (c *console) printRun(r run.Run) error {
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(table, "%s\t%s\n", name, display.Line(fmt.Sprint(value))) }
	row("run", r.ID)
	row("state", r.State)
	row("pollen", r.Pollen)
	row("substrate", r.Substrate)
	if r.Base != nil {
		row("base", *r.Base)
	}
	if r.Provider != nil {
		row("provider", *r.Provider)
	}
	if r.Exit != nil {
		row("command", exitText(*r.Exit))
	}
	if r.Stop != nil {
		row("stopped by", strings.TrimSpace(string(r.Stop.Limit)+" "+r.Stop.Cancel))
	}
	if r.Branch != nil {
		row("branch", *r.Branch)
		row("commit", *r.Commit)
	}
	row("changed", r.Changed)
	row("left behind", fmt.Sprintf("%d ignored, %d that Git cannot hold", r.Ignored, r.Skipped))
	row("partial", r.Partial)
	row("verdict", verdictText(r))
	if r.Review != nil {
		row("review", *r.Review)
	}
	if r.Error != nil {
		row("error", sentence(r.Error))
	}
	if r.Started != nil {
		row("started", r.Started.Local().Format(time.DateTime))
	}
	if r.DurationMS != nil {
		row("duration", display.Duration(time.Duration(*r.DurationMS)*time.Millisecond))
	}
	for _, e := range r.Egress {
		row("egress", fmt.Sprintf("%s: %d allowed, %d refused, %s sent, %s received", e.Destination, e.Allowed, e.Refused, display.Size(e.Sent), display.Size(e.Received)))
		if e.Refusal != nil {
			row("  refused by", *e.Refusal)
		}
	}
	if r.Usage != nil {
		row("models", fmt.Sprintf("%d tokens, %d.%06d USD", r.Usage.Tokens, r.Usage.MicroUSD/1e6, r.Usage.MicroUSD%1e6))
	}
	for _, f := range r.Flags {
		row("flag", fmt.Sprintf("%s %s: %s", f.Kind, f.Path, f.Note))
	}
	for _, b := range r.Boundary {
		row("boundary", fmt.Sprintf("%s %s: %s (%s, enforced: %s) %s", b.Dimension, b.Field, b.Applied, b.How, b.Enforced, b.Note))
	}
	return table.Flush()
}

type runLogsCommand struct {
	runArgument
	After  int64 `help:"Only what came after the event with this id."`
	Follow bool  `short:"f" help:"Wait for more until the run ends."`
}

func (l *runLogsCommand) Run(ctx context.Context, c *console) error {
	id, err := l.id()
	if err != nil {
		return err
	}
	// A log is an answer, so it goes to stdout; what is in it is still hostile.
	out := display.NewLive(c.stdout.Writer)
	streams := map[int]*display.Stream{1: out.Stream(display.StdoutPrefix), 2: out.Stream(display.StderrPrefix)}
	_, err = c.invoke(capability.WithEvents(ctx, func(e run.Event) {
		if c.json {
			c.printJSON(e)
			return
		}
		if chunk, ok := e.Data.(run.OutputChunk); ok {
			streams[min(max(chunk.FD, 1), 2)].Write(chunk.Bytes)
		}
	}), "run.logs", capability.LogsInput{Run: id, After: l.After, Follow: l.Follow})
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	return err
}

type runWatchCommand struct {
	runArgument
	After int64 `help:"Only events after the one with this id."`
}

func (w *runWatchCommand) Run(ctx context.Context, c *console) error {
	id, err := w.id()
	if err != nil {
		return err
	}
	live := newLive(c)
	live.all = true
	output, err := c.invoke(capability.WithEvents(ctx, func(e run.Event) {
		if c.json {
			c.printJSON(e)
			return
		}
		live.event(e)
	}), "run.watch", capability.WatchInput{Run: id, After: w.After})
	if err != nil {
		return err
	}
	record := output.(run.Run)
	if !c.json {
		c.printEnd(record)
	}
	if code := run.ExitStatus(record, false); code != 0 {
		return status(code)
	}
	return nil
}

type runCancelCommand struct{ runArgument }

func (k *runCancelCommand) Run(ctx context.Context, c *console) error {
	id, err := k.id()
	if err != nil {
		return err
	}
	output, err := c.invoke(ctx, "run.cancel", capability.RunInput{Run: id})
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(output)
		return nil
	}
	fmt.Fprintf(c.stdout, "asked %s to stop; follow it with: tendril run watch %s\n", id, id)
	return nil
}
