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

// substrateArgument reads what --substrate names: what begins with a dot or holds a
// slash is a path, everything else a name that the Botanist gave.
func substrateArgument(value string) (run.Substrate, error) {
	if !strings.HasPrefix(value, ".") && !strings.ContainsRune(value, filepath.Separator) && !strings.ContainsRune(value, '/') {
		return run.Substrate{Name: value}, nil
	}
	path, err := filepath.Abs(value)
	if err != nil {
		return run.Substrate{}, fault.New(fault.Invalid, "substrate %q: %w", value, err)
	}
	return run.Substrate{Path: run.Path(path)}, nil
}

type substrateCommands struct {
	List   substrateListCommand   `cmd:"" help:"List the Substrates that have a name."`
	Add    substrateAddCommand    `cmd:"" help:"Bind a name to a repository."`
	Remove substrateRemoveCommand `cmd:"" help:"Forget the name of a repository, and nothing else of it."`
}

type substrateListCommand struct{}

func (*substrateListCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "substrate.list", capability.EmptyInput{})
	return list(c, output, err, "SUBSTRATE\tBOUND TO\tBRANCH\tPROVIDER", func(s capability.Substrate) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", display.Line(s.Name), display.Line(boundTo(s)), orDash(s.Branch), orDash(s.Provider))
	})
}

func boundTo(s capability.Substrate) string {
	switch {
	case s.Path != nil:
		return string(*s.Path)
	case s.URL != nil:
		return *s.URL
	default:
		return "-" // only the Botanist is told
	}
}

func orDash(s *string) string {
	if s == nil {
		return "-"
	}
	return display.Line(*s)
}

type substrateAddCommand struct {
	Name     string `arg:"" help:"Its name: lower case, digits and single hyphens."`
	Path     string `placeholder:"PATH" help:"The Git repository of this host."`
	URL      string `name:"url" placeholder:"URL" help:"The Git repository elsewhere, over https."`
	Branch   string `placeholder:"BRANCH" help:"What a run without a base starts from (default: HEAD)."`
	Provider string `placeholder:"NAME" help:"The wall of runs that name none (default: the strongest that is ready)."`
}

func (a *substrateAddCommand) Run(ctx context.Context, c *console) error {
	in := capability.SubstrateAddInput{Name: a.Name, URL: a.URL, Branch: a.Branch, Provider: a.Provider}
	if a.Path != "" {
		path, err := filepath.Abs(a.Path)
		if err != nil {
			return fault.New(fault.Invalid, "path %q: %w", a.Path, err)
		}
		in.Path = new(run.Path(path))
	}
	output, err := c.invoke(ctx, "substrate.add", in)
	return show(c, output, err, func(added capability.Substrate) error {
		fmt.Fprintf(c.stdout, "%s is %s\n", display.Line(added.Name), display.Line(boundTo(added)))
		return nil
	})
}

type substrateRemoveCommand struct {
	Name string `arg:"" help:"The Substrate's name."`
}

func (r *substrateRemoveCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "substrate.remove", capability.SubstrateInput{Name: r.Name})
	return show(c, output, err, func(removed capability.Substrate) error {
		fmt.Fprintf(c.stdout, "%s no longer names %s, which is as it was\n", display.Line(removed.Name), display.Line(boundTo(removed)))
		return nil
	})
}
