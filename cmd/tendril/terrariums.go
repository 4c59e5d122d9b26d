package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"text/tabwriter"

	"tendril/capability"
	"tendril/display"
	"tendril/run"
)

type terrariumCommands struct {
	List  terrariumListCommand  `cmd:"" help:"List the walls and whether this host can build them."`
	Probe terrariumProbeCommand `cmd:"" help:"Build a wall and try to get out of it."`
}

type terrariumListCommand struct{}

func (*terrariumListCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "terrarium.list", capability.TerrariumListInput{})
	return list(c, output, err, "PROVIDER\tREADY\tPRIMITIVE\tSEALS", func(t capability.Terrarium) string {
		ready := "yes"
		if !t.Ready {
			ready = "no"
			if t.Reason != nil {
				ready += ": " + *t.Reason
			}
			if t.Hint != nil {
				ready += "; " + *t.Hint
			}
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s", display.Line(t.Provider), display.Line(ready), display.Line(t.Primitive), display.Line(strings.Join(t.Seals, " ")))
	})
}

type terrariumProbeCommand struct {
	Provider string `placeholder:"NAME" help:"The wall to probe (default: the strongest that is ready)."`
}

func (p *terrariumProbeCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "terrarium.probe", capability.ProbeInput{Provider: p.Provider})
	if err != nil {
		return err
	}
	report := output.(capability.ProbeReport)
	counts := map[string]int{}
	for _, r := range report.Probes {
		counts[r.Result]++
	}
	if c.json {
		c.printJSON(report)
	} else {
		table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "PROBE\tSEAL\tRESULT\tOBSERVED")
		for _, r := range report.Probes {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", display.Line(r.Probe), display.Line(r.Seal), display.Line(r.Result), display.Line(r.Observed))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s: %d sealed, %d leaks, %d unknown, %d not applicable\n",
			display.Line(report.Provider), counts["sealed"], counts["leak"], counts["unknown"], counts["not-applicable"])
	}
	if counts["leak"] > 0 {
		return status(run.ExitTouched)
	}
	if !report.Held {
		return status(run.ExitInternal)
	}
	return nil
}

type versionCommand struct{}

func (versionCommand) Run(c *console) error {
	if c.json {
		c.printJSON(struct {
			Version string `json:"version"`
			Go      string `json:"go"`
			OS      string `json:"os"`
			Arch    string `json:"arch"`
		}{version, runtime.Version(), runtime.GOOS, runtime.GOARCH})
		return nil
	}
	fmt.Fprintf(c.stdout, "tendril %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
