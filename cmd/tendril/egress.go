package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"tendril/capability"
	"tendril/display"
	"tendril/fault"
	"tendril/run"
)

type egressCommands struct {
	Fetch   egressFetchCommand   `cmd:"" help:"Fetch one file from outside, as the grant permits."`
	Explain egressExplainCommand `cmd:"" help:"Say whether a request would leave, by which rule, and as what."`
}

type egressFetchCommand struct {
	URL       string            `arg:"" help:"What to fetch."`
	Substrate string            `short:"s" required:"" placeholder:"NAME" help:"The Substrate whose grant permits it."`
	Digest    string            `placeholder:"sha256:HEX" help:"Refuse any other file."`
	Limit     *capability.Bytes `placeholder:"SIZE" help:"The most that it may have (default: 16MiB)."`
	Out       string            `placeholder:"FILE" type:"path" help:"Write it into this new file instead of to stdout, where control characters are escaped."`
}

func (f *egressFetchCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "egress.fetch", capability.FetchInput{
		Substrate: run.Substrate{Name: f.Substrate}, URL: f.URL, Digest: f.Digest, Limit: f.Limit,
	})
	if err != nil {
		return err
	}
	fetched := output.(capability.Fetched)
	if f.Out != "" {
		if err := writeNew(f.Out, fetched.Content); err != nil {
			return err
		}
	}
	if c.json {
		c.printJSON(fetched)
		return nil
	}
	c.notice(fmt.Sprintf("tendril: %s, %d bytes, %s", display.Line(fetched.Final), fetched.Size, display.Line(fetched.Digest)))
	if f.Out == "" {
		fmt.Fprint(c.stdout, display.Text(string(fetched.Content)))
	}
	return nil
}

// writeNew writes a file that did not exist, for its owner alone.
func writeNew(name string, content []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = file.Write(content)
		if closed := file.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		return fault.New(fault.Invalid, "writing the file: %w", err).WithHint("name a file that does not exist yet")
	}
	return nil
}

type egressExplainCommand struct {
	URL       string `arg:"" help:"What would be asked for."`
	Method    string `default:"GET" help:"How."`
	Pollen    string `placeholder:"NAME" help:"By whom (default: the Botanist)."`
	Substrate string `short:"s" placeholder:"NAME" help:"On which Substrate (default: any of its grants)."`
}

func (e *egressExplainCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "egress.explain", capability.EgressExplainInput{URL: e.URL, Method: e.Method, Pollen: e.Pollen, Substrate: e.Substrate})
	if err != nil {
		return err
	}
	x := output.(capability.EgressExplanation)
	if c.json {
		c.printJSON(x)
		return answered(x.Permitted)
	}
	word := "no"
	if x.Permitted {
		word = "yes"
	}
	fmt.Fprintf(c.stdout, "%s: %s\n", word, display.Line(x.Rule))
	fmt.Fprintf(c.stdout, "  what would be sent: %s\n", display.Line(x.URL))
	if x.Permitted {
		fmt.Fprintf(c.stdout, "  by: %s\n", display.Line(strings.Join(x.Classes, ", ")))
	}
	if x.Permitted && !x.Inspected {
		fmt.Fprintln(c.stdout, "  in a tunnel that nobody looks into")
	}
	if len(x.Credentials) > 0 {
		fmt.Fprintf(c.stdout, "  with the credential %s\n", display.Line(strings.Join(x.Credentials, ", ")))
	}
	for _, problem := range x.Unreadable {
		fmt.Fprintf(c.stdout, "  which would fail now: %s\n", display.Line(problem))
	}
	for _, reason := range x.Reasons {
		fmt.Fprintf(c.stdout, "  %s\n", display.Line(reason))
	}
	return answered(x.Permitted)
}
