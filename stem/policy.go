//go:build linux

package stem

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"tendril/capability"
	"tendril/fault"
	"tendril/policy"
	"tendril/terrarium"
)

// actionsOf is what a capability does in somebody's name: what it lets a Sprout do, or
// what the Stem does itself. One that is not here only looks at or changes what the Stem
// keeps.
var actionsOf = map[string][]policy.Action{
	"sprout.grow":     {policy.ActionCompute, policy.ActionEditWorkspace},
	"stoma.pass":      {policy.ActionCompute, policy.ActionEditWorkspace},
	"terrarium.probe": {policy.ActionCompute},
	"egress.fetch":    {policy.ActionHTTPSRead},
}

// declared is the boundary that the provider of a call is going to be asked for.
//
// What asks for no wall runs nothing of anybody's. No value of Runtime says so; the weaker
// of those that isolate is given, and nothing but scratch is written.
func (c *call) declared() policy.Input {
	in := policy.Input{
		Runtime: policy.RuntimeContainer, Privileged: policy.PrivilegedNo, Filesystem: policy.FilesystemScratch,
		Network: c.network(), Secrets: c.secrets(), Approval: policy.ApprovalNone,
	}
	if _, walled := c.input.(capability.Walled); walled {
		in.Runtime, in.Filesystem = runtimeOf(c.provider), policy.FilesystemWorkspace
	}
	if in.Runtime == policy.RuntimeHost {
		return unwalled()
	}
	return in
}

// unwalled is what surrounds work on the host itself: what this process may, the work may.
func unwalled() policy.Input {
	in := policy.Input{
		Runtime: policy.RuntimeHost, Privileged: policy.PrivilegedNo, Filesystem: policy.FilesystemHost,
		Network: policy.NetworkUnrestricted, Secrets: policy.SecretsRaw, Approval: policy.ApprovalNone,
	}
	if os.Geteuid() == 0 {
		in.Privileged = policy.PrivilegedYes
	}
	return in
}

// overriding is a request that can take what is no wall, by its name.
type overriding interface{ Overrides() string }

func overridable(in capability.Request) bool {
	_, is := in.(overriding)
	return is
}

// overriddenAtMost are the rules that work on the host breaks by being there. What the Botanist
// cannot take for a run is an input that nobody understands, and a message that nobody
// approved of.
const overriddenAtMost = policy.HostRuntime | policy.PrivilegedWork | policy.HostWrites | policy.UnrestrictedEgress |
	policy.RawSecrets | policy.NeedsAllowlist | policy.NeedsWorkspace

// network is what the permit lets the call reach.
func (c *call) network() policy.Network {
	if c.permit.reaches() {
		return policy.NetworkAllowlist
	}
	return policy.NetworkDisabled
}

// secrets is how the permit's credentials get to what needs them: never inside.
func (c *call) secrets() policy.Secrets {
	if c.permit.reaches() && c.permit.reach.Credentials != nil {
		return policy.SecretsBrokered
	}
	return policy.SecretsNone
}

// actions are what the call does, and with a road out also what it may reach.
func (c *call) actions() []policy.Action {
	actions := actionsOf[c.name]
	if c.permit.reaches() {
		actions = append(slices.Clone(actions), policy.ActionHTTPSRead)
	}
	return actions
}

// applied is the boundary that was read back. What no row shows stays out of range,
// and so denies.
func (c *call) applied(rows []terrarium.Row) policy.Input {
	in := policy.Input{Runtime: runtimeOf(c.provider), Approval: policy.ApprovalNone}
	if in.Runtime == policy.RuntimeHost {
		return unwalled()
	}
	alone, listening := false, false
	for _, row := range rows {
		switch {
		case row.Enforced == terrarium.NotKept:
		case row.Field == "User" && !strings.HasPrefix(row.Applied, "0:"):
			in.Privileged = policy.PrivilegedNo
		case row.Field == "Workspace.Image" && row.Asked == row.Applied:
			in.Filesystem = policy.FilesystemWorkspace
		case row.Field == "Network" && row.Applied == terrarium.NetworkNone.String():
			alone = true
		case row.Field == "Listeners" && row.Asked == row.Applied:
			listening = row.Applied != ""
		case row.Field == "Env" && row.Asked == row.Applied:
			in.Secrets = c.secrets()
		}
	}
	switch {
	case alone && listening:
		in.Network = policy.NetworkAllowlist
	case alone:
		in.Network = policy.NetworkDisabled
	}
	return in
}

func runtimeOf(p terrarium.Provider) policy.Runtime {
	switch p.Capabilities().Runtime {
	case policy.RuntimeContainer.String():
		return policy.RuntimeContainer
	case policy.RuntimeMicroVM.String():
		return policy.RuntimeMicroVM
	case policy.RuntimeHost.String():
		return policy.RuntimeHost
	default:
		return 0
	}
}

// permitted refuses a boundary that breaks the policy for one of the capability's
// actions. when is said of the boundary: declared or applied.
func (c *call) permitted(kind fault.Kind, when string, in policy.Input) error {
	decision := policy.EvaluateAll(in, c.actions()...)
	if decision.Permits() {
		return nil
	}
	if work, ok := c.input.(overriding); ok && work.Overrides() == c.provider.Name() && decision.Mask&^overriddenAtMost == 0 {
		c.overridden = decision.Mask
		return nil
	}
	hint := "docs/policy.md lists the rules"
	switch {
	case decision.Mask == policy.NeedsAllowlist:
		hint = "the Botanist can add an egress rule to the grant"
	case in.Runtime == policy.RuntimeHost && c.actor.Botanist() && overridable(c.input):
		hint = "take it for this one run with --override host, if nothing of this host matters"
	}
	return fault.New(kind, "the boundary as %s breaks the policy: %s", when, strings.Join(decision.Reasons, "; ")).
		WithRule(fmt.Sprintf("policy mask %d", decision.Mask)).
		WithHint("%s", hint)
}
