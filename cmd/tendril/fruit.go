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
		fmt.Fprintf(c.stdout, "%-8s %s%s\n", display.Line(change.Kind), display.Line(string(change.Path)), changeNotes(change))
	}
	if d.Stat {
		return nil
	}
	for _, change := range diff.Changes {
		fmt.Fprintf(c.stdout, "\n--- %s%s\n", display.Line(string(change.Path)), changeNotes(change))
		fmt.Fprint(c.stdout, display.Text(change.Hunks))
		if change.Truncated {
			fmt.Fprintf(c.stdout, "tendril: this file's changes are longer; see all of them with: git diff %s %s\n", display.Line(diff.Base), display.Line(diff.Commit))
		}
	}
	if diff.Truncated {
		fmt.Fprintf(c.stdout, "\ntendril: not everything is shown; see the rest with: git diff %s %s\n", display.Line(diff.Base), display.Line(diff.Commit))
	}
	return nil
}

func changeNotes(c capability.Change) string {
	var notes string
	if c.RenamedFrom != nil {
		notes += " (renamed from " + display.Line(string(*c.RenamedFrom)) + ")"
	}
	if c.OldMode != c.NewMode {
		notes += fmt.Sprintf(" (mode %s -> %s)", display.Line(c.OldMode), display.Line(c.NewMode))
	}
	return notes
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
	fmt.Fprintf(c.stdout, "removed %s; it was at %s\n", display.Line(done.Branch), display.Line(done.Commit))
	return nil
}
