package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Mask is the set of violated rules. Any bit denies.
type Mask uint16

// The bits. Their values are part of the interface: they are printed, recorded
// and compared.
const (
	HostRuntime        Mask = 1 << iota // the work runs on the host itself
	PrivilegedWork                      // the work has privileges over the host
	HostWrites                          // the work can write any file of the host
	UnrestrictedEgress                  // the work can reach any destination
	RawSecrets                          // the work can read secrets
	NeedsAllowlist                      // the action reaches out, and the network is not the allow-list
	NeedsWorkspace                      // the action edits the workspace, and the file system is not the workspace
	NeedsApproval                       // the action sends a message out, and nobody approved exactly it
	OutOfRange                          // an input has a value that is not declared
)

// rules is the policy. A rule is satisfied by the one value that it names, so a
// value out of range satisfies none that applies.
var rules = []struct {
	bit      Mask
	violated func(Input) bool
	reason   string
}{
	{HostRuntime, func(in Input) bool { return in.Runtime == RuntimeHost },
		"the runtime is the host itself, so nothing isolates the work"},
	{PrivilegedWork, func(in Input) bool { return in.Privileged == PrivilegedYes },
		"the work is privileged over the host"},
	{HostWrites, func(in Input) bool { return in.Filesystem == FilesystemHost },
		"the work can write files of the whole host"},
	{UnrestrictedEgress, func(in Input) bool { return in.Network == NetworkUnrestricted },
		"the work can reach any destination"},
	{RawSecrets, func(in Input) bool { return in.Secrets == SecretsRaw },
		"the work can read secrets; they have to be brokered outside of it"},
	{NeedsAllowlist, func(in Input) bool {
		return (in.Action == ActionHTTPSRead || in.Action == ActionExternalMessage) && in.Network != NetworkAllowlist
	}, "the action reaches out, which needs the declared allow-list (network: allowlist)"},
	{NeedsWorkspace, func(in Input) bool {
		return in.Action == ActionEditWorkspace && in.Filesystem != FilesystemWorkspace
	}, "the action edits the workspace, which needs the workspace capability (filesystem: workspace)"},
	{NeedsApproval, func(in Input) bool {
		return in.Action == ActionExternalMessage && in.Approval != ApprovalExact
	}, "the action sends a message out, which needs an approval of exactly this action (approval: exact)"},
	{OutOfRange, func(in Input) bool { return len(outOfRange(in)) > 0 },
		"an input is out of range"}, // what it is follows: see decide
}

// The decisions.
const (
	Permit = "permit"
	Deny   = "deny"
)

// Decision is the answer. Its zero value permits nothing.
type Decision struct {
	Decision string   `json:"decision"` // Permit or Deny
	Mask     Mask     `json:"mask"`
	Reasons  []string `json:"reasons"` // one for each bit, in their order; one for a permit
}

// Permits reports whether no rule is violated.
func (d Decision) Permits() bool { return d.Decision == Permit && d.Mask == 0 }

// Evaluate decides one action. It is pure and total, and safe for concurrent use.
func Evaluate(in Input) Decision {
	return decide(violations(in), outOfRange(in))
}

// EvaluateAll decides a run that may take any of the actions: its mask is the OR
// over all of them. in.Action does not count. No action at all is out of range: a
// run whose actions nobody declared may not start.
func EvaluateAll(in Input, actions ...Action) Decision {
	if len(actions) == 0 {
		actions = []Action{0}
	}
	var mask Mask
	var details []string
	for _, action := range actions {
		in.Action = action
		mask |= violations(in)
		for _, detail := range outOfRange(in) {
			if !slices.Contains(details, detail) {
				details = append(details, detail)
			}
		}
	}
	return decide(mask, details)
}

func violations(in Input) Mask {
	var mask Mask
	for _, rule := range rules {
		if rule.violated(in) {
			mask |= rule.bit
		}
	}
	return mask
}

// outOfRange says which inputs have a value that is not declared.
func outOfRange(in Input) []string {
	var details []string
	for _, input := range inputs {
		if value := input.get(in); !input.values.holds(value) {
			details = append(details, fmt.Sprintf("%s has no value %d", input.name, value))
		}
	}
	return details
}

// decide puts a mask into words. details are the inputs out of range; they are one
// reason, because they are one bit.
func decide(mask Mask, details []string) Decision {
	if mask == 0 {
		return Decision{Permit, mask, []string{"no rule of this policy is violated; that certifies nothing beyond these seven inputs"}}
	}
	var reasons []string
	for _, rule := range rules {
		switch {
		case mask&rule.bit == 0:
		case rule.bit == OutOfRange:
			reasons = append(reasons, rule.reason+": "+strings.Join(details, "; "))
		default:
			reasons = append(reasons, rule.reason)
		}
	}
	return Decision{Deny, mask, reasons}
}
