package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"text/tabwriter"

	"tendril/capability"
	"tendril/display"
	"tendril/fault"
	"tendril/run"
)

type terrariumCommands struct {
	List  terrariumListCommand   `cmd:"" help:"List the walls and whether this host can build them."`
	Probe terrariumProbeCommand  `cmd:"" help:"Build a wall and try to get out of it."`
	Setup terrariumSetupCommands `cmd:"" help:"Make this host ready for a wall."`
}

type terrariumListCommand struct{}

func (*terrariumListCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "terrarium.list", capability.TerrariumListInput{})
	return show(c, output, err, func(walls []capability.Terrarium) error {
		for _, t := range walls {
			c.printWall(t)
		}
		return nil
	})
}

// printWall says of one wall whether it is ready, and what it can and cannot close off.
func (c *console) printWall(t capability.Terrarium) {
	ready := "ready"
	switch {
	case !t.Ready && t.Reason != nil:
		ready = "not ready: " + *t.Reason
		if t.Hint != nil {
			ready += "; " + *t.Hint
		}
	case !t.Ready:
		ready = "not ready"
	case t.Default:
		ready += ", taken by runs that name none"
	case t.OnlyNamed:
		ready += ", only by name"
	}
	var unkept []string
	for _, kept := range t.Keeps {
		if kept.By != "host" {
			unkept = append(unkept, kept.Field+" ("+kept.By+")")
		}
	}
	fmt.Fprintf(c.stdout, "%s: %s\n", display.Line(t.Provider), display.Line(ready))
	for _, line := range []struct {
		name  string
		words []string
	}{
		{"made of", []string{t.Primitive}}, {"root", t.Roots}, {"seals", t.Seals}, {"leaves open", t.Unsealed}, {"weaker kept", unkept},
	} {
		if len(line.words) > 0 {
			fmt.Fprintf(c.stdout, "  %-12s %s\n", line.name, display.Line(strings.Join(line.words, " ")))
		}
	}
}

type terrariumProbeCommand struct {
	Provider string `placeholder:"NAME" xor:"which" help:"The wall to probe (default: the strongest that is ready)."`
	All      bool   `xor:"which" help:"Probe every wall that is ready."`
	Image    string `placeholder:"IMAGE" help:"The OCI image inside, as for grow."`
}

func (p *terrariumProbeCommand) Run(ctx context.Context, c *console) error {
	walls := []string{p.Provider}
	if p.All {
		var err error
		if walls, err = c.readyWalls(ctx); err != nil {
			return err
		}
	}
	image, err := imageArgument(p.Image)
	if err != nil {
		return err
	}
	var reports []capability.ProbeReport
	for _, wall := range walls {
		output, err := c.invoke(ctx, "terrarium.probe", capability.ProbeInput{Provider: wall, Image: image})
		if err != nil {
			return err
		}
		reports = append(reports, output.(capability.ProbeReport))
	}
	switch {
	case c.json && p.All:
		c.printJSON(reports)
	case c.json:
		c.printJSON(reports[0])
	case p.All:
		err = c.printProbesOfAll(reports)
	default:
		err = c.printProbes(reports[0])
	}
	return errors.Join(err, statusOf(reports))
}

// readyWalls are the walls that can be built here, but for the host, which is none. The
// others are named, with the reason.
func (c *console) readyWalls(ctx context.Context) ([]string, error) {
	output, err := c.invoke(ctx, "terrarium.list", capability.TerrariumListInput{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range output.([]capability.Terrarium) {
		switch {
		case t.Runtime == capability.Host && t.Ready:
			c.notice("host is not probed: it is no wall")
		case t.Ready:
			names = append(names, t.Provider)
		case t.Reason != nil:
			c.notice(fmt.Sprintf("%s is not probed: %s", display.Line(t.Provider), display.Line(*t.Reason)))
		}
	}
	if len(names) == 0 {
		return nil, fault.New(fault.Unavailable, "no wall is ready on this host").WithHint("tendril terrarium list says why")
	}
	return names, nil
}

// statusOf is 5 where anything leaks, and 1 where it cannot be told.
func statusOf(reports []capability.ProbeReport) error {
	code := 0
	for _, report := range reports {
		switch leaks := count(report, probeLeak); {
		case leaks > 0:
			code = run.ExitTouched
		case !report.Held && code == 0:
			code = run.ExitInternal
		}
	}
	if code == 0 {
		return nil
	}
	return status(code)
}

const probeLeak = "leak"

func count(report capability.ProbeReport, result string) int {
	n := 0
	for _, r := range report.Probes {
		if r.Result == result {
			n++
		}
	}
	return n
}

func summary(report capability.ProbeReport) string {
	return fmt.Sprintf("%s: %d sealed, %d leaks, %d open, %d unknown, %d not applicable", display.Line(report.Provider),
		count(report, "sealed"), count(report, probeLeak), count(report, capability.ProbeOpen), count(report, "unknown"), count(report, "not-applicable"))
}

func (c *console) printProbes(report capability.ProbeReport) error {
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROBE\tSEAL\tRESULT\tOBSERVED")
	for _, r := range report.Probes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", display.Line(r.Probe), display.Line(r.Seal), display.Line(r.Result), display.Line(r.Observed))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(c.stdout, summary(report))
	return nil
}

// printProbesOfAll has a row for each probe and a column for each wall. Below it stands,
// for everything that is not simply sealed, why.
func (c *console) printProbesOfAll(reports []capability.ProbeReport) error {
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "PROBE\tSEAL")
	for _, report := range reports {
		fmt.Fprintf(table, "\t%s", strings.ToUpper(display.Line(report.Provider)))
	}
	fmt.Fprintln(table)
	var why []string
	for i, p := range reports[0].Probes {
		fmt.Fprintf(table, "%s\t%s", display.Line(p.Probe), display.Line(p.Seal))
		for _, report := range reports {
			r := report.Probes[i] // one program, and so the same probes in the same order
			fmt.Fprintf(table, "\t%s", display.Line(r.Result))
			if r.Result != "sealed" {
				why = append(why, fmt.Sprintf("%s on %s: %s: %s", display.Line(r.Probe), display.Line(report.Provider), display.Line(r.Result), display.Line(r.Observed)))
			}
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, line := range why {
		fmt.Fprintln(c.stdout, line)
	}
	for _, report := range reports {
		fmt.Fprintln(c.stdout, summary(report))
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
