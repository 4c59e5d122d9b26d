package main

import (
	"context"
	"fmt"

	"tendril/capability"
	"tendril/display"
)

type fruitCommands struct {
	Diff   fruitDiffCommand   `cmd:"" help:"Show what a Fruit changes and what a reviewer must see."`
	Accept fruitAcceptCommand `cmd:"" help:"Merge a Fruit into a branch that nobody has checked out."`
	Reject fruitRejectCommand `cmd:"" help:"Remove the branch of a Fruit."`
}

type fruitDiffCommand struct {
	runArgument
	Stat bool `help:"Only which entries changed, and the flags."`
}

func (d *fruitDiffCommand) Run(ctx context.Context, c *console) error {
	id, err := d.id()
	if err != nil {
		return err
	}
	output, err := c.invoke(ctx, "fruit.diff", capability.DiffInput{Run: id, NoPatch: d.Stat})
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(output)
		return nil
	}
	diff := output.(capability.Diff)
	for _, f := range diff.Flags {
		fmt.Fprintf(c.stdout, "! %s: %s (%s)\n", display.Line(f.Kind), display.Line(string(f.Path)), display.Line(f.Note))
	}
	for _, change := range diff.Changes {
		fmt.Fprintf(c.stdout, "%-8s %s%s\n", display.Line(change.Kind), display.Line(string(change.Path)), linesText(change))
	}
	if !d.Stat {
		fmt.Fprintln(c.stdout)
		fmt.Fprint(c.stdout, display.Text(string(diff.Patch)))
		if diff.Truncated {
			fmt.Fprintf(c.stdout, "\ntendril: the patch is longer than what is shown; see the rest with: git diff %s %s\n", diff.Base, diff.Commit)
		}
	}
	return nil
}

func linesText(c capability.Change) string {
	text := ""
	if c.Added != nil && c.Removed != nil {
		text = fmt.Sprintf(" (+%d -%d)", *c.Added, *c.Removed)
	} else {
		text = " (binary)"
	}
	if c.OldMode != c.NewMode {
		text += fmt.Sprintf(" mode %s -> %s", display.Line(c.OldMode), display.Line(c.NewMode))
	}
	return text
}

type fruitAcceptCommand struct {
	runArgument
	Into string `placeholder:"BRANCH" help:"The branch to merge into (default: the branch that HEAD names)."`
}

func (a *fruitAcceptCommand) Run(ctx context.Context, c *console) error {
	id, err := a.id()
	if err != nil {
		return err
	}
	output, err := c.invoke(ctx, "fruit.accept", capability.AcceptInput{Run: id, Into: a.Into})
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(output)
		return nil
	}
	done := output.(capability.Acceptance)
	fmt.Fprintf(c.stdout, "%s: %s %s -> %s\n", done.How, display.Line(string(done.Into)), short(done.Before), short(done.After))
	return nil
}

func short(oid string) string { return display.Line(oid[:min(len(oid), 12)]) }

type fruitRejectCommand struct{ runArgument }

func (r *fruitRejectCommand) Run(ctx context.Context, c *console) error {
	id, err := r.id()
	if err != nil {
		return err
	}
	output, err := c.invoke(ctx, "fruit.reject", capability.RunInput{Run: id})
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(output)
		return nil
	}
	done := output.(capability.Rejection)
	if !done.Removed {
		fmt.Fprintf(c.stdout, "%s was gone already\n", display.Line(done.Branch))
		return nil
	}
	fmt.Fprintf(c.stdout, "removed %s; it was at %s\n", display.Line(done.Branch), display.Line(done.Commit))
	return nil
}
