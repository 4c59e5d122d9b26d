package main

import (
	"context"
	"fmt"

	"tendril/capability"
	"tendril/display"
	"tendril/pollen"
	"tendril/run"
)

type grantCommands struct {
	Add     grantAddCommand     `cmd:"" help:"Let a Pollen do more."`
	List    grantListCommand    `cmd:"" help:"List the grants in force."`
	Revoke  grantRevokeCommand  `cmd:"" help:"Take a class, a Substrate or everything from a Pollen's grants."`
	Check   grantCheckCommand   `cmd:"" help:"Say whether a grants file is understood whole."`
	Explain grantExplainCommand `cmd:"" help:"Say whether a Pollen may, by which rule, or what is missing."`
}

type grantAddCommand struct {
	Pollen     string     `required:"" placeholder:"NAME" help:"Who may."`
	Substrate  []string   `required:"" placeholder:"NAME" help:"On which Substrate; can be given more than once."`
	Class      []string   `required:"" placeholder:"CAPABILITY" help:"What, such as sprout.grow; can be given more than once."`
	Providers  []string   `name:"allow-provider" placeholder:"WALL" help:"Behind which wall; can be given more than once (default: any sealed one)."`
	Provider   string     `placeholder:"WALL" help:"The wall of requests that name none."`
	Images     []string   `name:"image" sep:"none" placeholder:"IMAGE" help:"An OCI image that may be the root file system; can be given more than once (default: none)."`
	Egress     []string   `placeholder:"HOST" help:"A host to read from; can be given more than once."`
	Credential []string   `placeholder:"NAME" help:"A credential to use; can be given more than once."`
	Runs       string     `enum:"own,substrate," default:"" placeholder:"own|substrate" help:"Whose runs it may see and cancel (default: its own)."`
	DailyRuns  *int       `placeholder:"N" help:"How many runs a day."`
	Expires    string     `placeholder:"DATE" help:"When it ends, such as 2027-06-30 (default: with the Pollen)."`
	Limits     limitFlags `embed:"" group:"Limits (what a request may ask for, and gets if it asks for nothing):"`
}

func (a *grantAddCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "grant.add", capability.GrantAddInput{
		Pollen: a.Pollen, Substrates: a.Substrate, Classes: a.Class, Providers: a.Providers, Provider: a.Provider, Images: a.Images,
		EgressHosts: a.Egress, Credentials: a.Credential, Limits: a.Limits.limits(), Runs: a.Runs, DailyRuns: a.DailyRuns, Expires: a.Expires,
	})
	return c.grantChange(output, err)
}

// grantChange says what became of the grants file.
func (c *console) grantChange(output any, err error) error {
	return show(c, output, err, func(change capability.GrantChange) error {
		for _, note := range change.Notes {
			c.notice("tendril: " + display.Line(note))
		}
		fmt.Fprintf(c.stdout, "%s: %d added, %d removed\n", display.Line(change.File), change.Added, change.Removed)
		return nil
	})
}

type grantListCommand struct{}

func (*grantListCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "grant.list", capability.EmptyInput{})
	return list(c, output, err, "LINE\tLIVE\tGRANT", func(g capability.Grant) string {
		live := "yes"
		if !g.Live {
			live = "no"
		}
		return fmt.Sprintf("%d\t%s\t%s", g.Line, live, display.Line(string(g.Grant)))
	})
}

type grantRevokeCommand struct {
	Pollen    string `required:"" placeholder:"NAME" help:"From whom."`
	Class     string `placeholder:"CAPABILITY" help:"Only this class (default: everything)."`
	Substrate string `placeholder:"NAME" help:"Only this Substrate (default: everything)."`
}

func (r *grantRevokeCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "grant.revoke", capability.GrantRevokeInput{Pollen: r.Pollen, Class: r.Class, Substrate: r.Substrate})
	return c.grantChange(output, err)
}

type grantCheckCommand struct {
	File string `arg:"" optional:"" help:"A file that is not in force yet; - is stdin (default: the one in force)."`
}

// largestChecked is more than any grants file may have, so that the Stem says so.
const largestChecked = 1 << 20

func (k *grantCheckCommand) Run(ctx context.Context, c *console) error {
	in := capability.GrantCheckInput{File: k.File}
	if k.File != "" {
		text, err := readFile(ctx, k.File, c.stdin, largestChecked)
		if err != nil {
			return err
		}
		in.Text = new(string(text))
	}
	output, err := c.invoke(ctx, "grant.check", in)
	return show(c, output, err, func(check capability.GrantCheck) error {
		fmt.Fprintf(c.stdout, "%s: understood, %d grants\n", display.Line(check.File), check.Grants)
		return nil
	})
}

type grantExplainCommand struct {
	Pollen    string     `required:"" placeholder:"NAME" help:"Who asks."`
	Class     string     `required:"" placeholder:"CAPABILITY" help:"What for, such as sprout.grow."`
	Substrate string     `placeholder:"NAME" help:"On which Substrate."`
	Provider  string     `placeholder:"WALL" help:"Behind which wall."`
	Image     string     `placeholder:"IMAGE" help:"In which OCI image."`
	Limits    limitFlags `embed:"" group:"Limits:"`
}

func (e *grantExplainCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "grant.explain", capability.GrantExplainInput{
		Pollen: e.Pollen, Class: e.Class, Substrate: e.Substrate, Provider: e.Provider, Image: e.Image, Limits: e.Limits.limits(),
	})
	if err != nil {
		return err
	}
	explanation := output.(capability.Explanation)
	explanation.Missing = pollen.Redact(explanation.Missing) // it repeats what was asked
	if c.json {
		c.printJSON(explanation)
		return answered(explanation.Permitted)
	}
	word := "no"
	if explanation.Permitted {
		word = "yes"
	}
	fmt.Fprintf(c.stdout, "%s: %s\n", word, display.Line(explanation.Rule))
	for _, reason := range explanation.Reasons {
		fmt.Fprintf(c.stdout, "  %s\n", display.Line(reason))
	}
	if explanation.Missing != "" {
		fmt.Fprintf(c.stdout, "missing: %s\n", display.Line(explanation.Missing))
	}
	return answered(explanation.Permitted)
}

// answered makes a no an exit status of its own, for scripts.
func answered(yes bool) error {
	if yes {
		return nil
	}
	return status(run.ExitRefused)
}
