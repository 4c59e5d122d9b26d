//go:build linux

package stem

import (
	"fmt"
	"strings"

	"tendril/fault"
	"tendril/policy"
	"tendril/terrarium"
)

// actionsOf is what a capability lets a Sprout do. One that is not here asks for no
// Terrarium.
var actionsOf = map[string][]policy.Action{
	"sprout.grow":     {policy.ActionCompute, policy.ActionEditWorkspace},
	"stoma.pass":      {policy.ActionCompute, policy.ActionEditWorkspace},
	"terrarium.probe": {policy.ActionCompute},
}

// declared is the boundary that a provider is going to be asked for.
func declared(p terrarium.Provider) policy.Input {
	return policy.Input{
		Runtime: runtimeOf(p), Privileged: policy.PrivilegedNo, Filesystem: policy.FilesystemWorkspace,
		Network: policy.NetworkDisabled, Secrets: policy.SecretsNone, Approval: policy.ApprovalNone,
	}
}

// applied is the boundary that was read back. What no row shows stays out of range,
// and so denies.
func applied(p terrarium.Provider, rows []terrarium.Row) policy.Input {
	in := policy.Input{Runtime: runtimeOf(p), Approval: policy.ApprovalNone}
	for _, row := range rows {
		switch {
		case row.Enforced == terrarium.NotKept:
		case row.Field == "User" && !strings.HasPrefix(row.Applied, "0:"):
			in.Privileged = policy.PrivilegedNo
		case row.Field == "Workspace.Image" && row.Asked == row.Applied:
			in.Filesystem = policy.FilesystemWorkspace
		case row.Field == "Network" && row.Applied == terrarium.NetworkNone.String():
			in.Network = policy.NetworkDisabled
		case row.Field == "Env" && row.Asked == row.Applied:
			in.Secrets = policy.SecretsNone
		}
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
func permitted(kind fault.Kind, when, name string, in policy.Input) error {
	decision := policy.EvaluateAll(in, actionsOf[name]...)
	if decision.Permits() {
		return nil
	}
	return fault.New(kind, "the boundary as %s breaks the policy: %s", when, strings.Join(decision.Reasons, "; ")).
		WithRule(fmt.Sprintf("policy mask %d", decision.Mask)).
		WithHint("docs/policy.md lists the rules")
}
