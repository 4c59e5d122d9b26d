package main

import (
	"fmt"
	"io"

	"tendril/display"
	"tendril/fault"
	"tendril/policy"
	"tendril/run"
)

type policyCommands struct {
	Eval policyEvalCommand `cmd:"" help:"Say whether a boundary and an action go together."`
}

// policyEvalCommand has no required flag: what is missing is out of range, and the
// policy says so.
type policyEvalCommand struct {
	Runtime    *string `placeholder:"NAME" help:"host, container or microvm."`
	Privileged *string `placeholder:"NAME" help:"no or yes."`
	Filesystem *string `placeholder:"NAME" help:"scratch, workspace or host."`
	Network    *string `placeholder:"NAME" help:"disabled, allowlist or unrestricted."`
	Secrets    *string `placeholder:"NAME" help:"none, brokered or raw."`
	Approval   *string `placeholder:"NAME" help:"none or exact."`
	Action     *string `placeholder:"NAME" help:"compute, edit-workspace, https-read or external-message."`

	Input string `arg:"" optional:"" name:"input" help:"-: read the inputs from stdin, as one JSON object."`
}

func (*policyEvalCommand) Help() string {
	return `Pure arithmetic: nothing is looked up, run or recorded. An input that is missing or not known is out of range, which denies.

As one JSON object: tendril policy eval --json - <input.json

Exit status: 0 permit, 2 deny (docs/policy.md).`
}

// Run says what the policy decides. It is no capability: it acts on nothing and
// tells nobody anything about this site.
func (e *policyEvalCommand) Run(c *console) error {
	names, err := e.names(c.stdin)
	if err != nil {
		return err
	}
	decision := names.Evaluate()
	if c.json {
		c.printJSON(decision)
	} else {
		fmt.Fprintf(c.stdout, "%s (mask %d)\n", decision.Decision, decision.Mask)
		for _, reason := range decision.Reasons {
			fmt.Fprintf(c.stdout, "  %s\n", display.Line(reason))
		}
	}
	if !decision.Permits() {
		return status(run.ExitRefused)
	}
	return nil
}

func (e *policyEvalCommand) names(stdin io.Reader) (policy.Names, error) {
	names := policy.Names{}
	for name, value := range map[string]*string{
		"runtime": e.Runtime, "privileged": e.Privileged, "filesystem": e.Filesystem, "network": e.Network,
		"secrets": e.Secrets, "approval": e.Approval, "action": e.Action,
	} {
		if value != nil {
			names[name] = *value
		}
	}
	switch {
	case e.Input == "":
		return names, nil
	case e.Input != "-":
		return nil, fault.New(fault.Invalid, "unexpected argument %s", e.Input).
			WithHint("name the inputs as flags, or write - to read one JSON object from stdin")
	case len(names) > 0:
		return nil, fault.New(fault.Invalid, "the inputs are named twice: as flags and on stdin").WithHint("leave out the flags or the -")
	}
	data, err := io.ReadAll(io.LimitReader(stdin, policy.LargestJSON+1))
	if err != nil {
		return nil, fault.New(fault.Unavailable, "reading the inputs from stdin: %w", err)
	}
	return policy.DecodeJSON(data)
}
