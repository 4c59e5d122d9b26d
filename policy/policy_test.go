package policy

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// question holds the seven names as a person would write them.
type question struct {
	runtime, privileged, filesystem, network, secrets, approval, action string
}

// The policy once more, written from its rules in words over the names. It shares
// nothing with the implementation: no constant, no table, no order.
var inWords = []struct {
	bit    int
	broken func(question) bool
	says   string // a reason for the bit says this
}{
	{1, func(q question) bool { return q.runtime == "host" }, "nothing isolates"},
	{2, func(q question) bool { return q.privileged == "yes" }, "privileged"},
	{4, func(q question) bool { return q.filesystem == "host" }, "whole host"},
	{8, func(q question) bool { return q.network == "unrestricted" }, "any destination"},
	{16, func(q question) bool { return q.secrets == "raw" }, "read secrets"},
	{32, func(q question) bool {
		return strings.Contains("https-read external-message", q.action) && q.network != "allowlist"
	}, "network: allowlist"},
	{64, func(q question) bool { return q.action == "edit-workspace" && q.filesystem != "workspace" }, "filesystem: workspace"},
	{128, func(q question) bool { return q.action == "external-message" && q.approval != "exact" }, "approval: exact"},
	{256, func(q question) bool {
		return !(strings.Contains("host container microvm", q.runtime) &&
			strings.Contains("no yes", q.privileged) &&
			strings.Contains("scratch workspace host", q.filesystem) &&
			strings.Contains("disabled allowlist unrestricted", q.network) &&
			strings.Contains("none brokered raw", q.secrets) &&
			strings.Contains("none exact", q.approval) &&
			strings.Contains("compute edit-workspace https-read external-message", q.action))
	}, "out of range"},
}

// bad stands for a value that nobody declared.
const bad = "?"

// everyQuestion calls f for every combination of declared values, and of declared
// values with bad ones.
func everyQuestion(f func(question, Input)) {
	for i, runtime := range []string{bad, "host", "container", "microvm"} {
		for j, privileged := range []string{bad, "no", "yes"} {
			for k, filesystem := range []string{bad, "scratch", "workspace", "host"} {
				for l, network := range []string{bad, "disabled", "allowlist", "unrestricted"} {
					for m, secrets := range []string{bad, "none", "brokered", "raw"} {
						for n, approval := range []string{bad, "none", "exact"} {
							for o, action := range []string{bad, "compute", "edit-workspace", "https-read", "external-message"} {
								f(question{runtime, privileged, filesystem, network, secrets, approval, action},
									Input{Runtime(i), Privileged(j), Filesystem(k), Network(l), Secrets(m), Approval(n), Action(o)})
							}
						}
					}
				}
			}
		}
	}
}

func (q question) names() Names {
	return Names{"runtime": q.runtime, "privileged": q.privileged, "filesystem": q.filesystem, "network": q.network,
		"secrets": q.secrets, "approval": q.approval, "action": q.action}
}

// problem says how a decision differs from the rules in words.
func problem(q question, d Decision) string {
	want := 0
	var says []string
	for _, rule := range inWords {
		if rule.broken(q) {
			want |= rule.bit
			says = append(says, rule.says)
		}
	}
	if int(d.Mask) != want {
		return fmt.Sprintf("mask %d, want %d", d.Mask, want)
	}
	if want == 0 {
		if d.Decision != "permit" || !d.Permits() || len(d.Reasons) != 1 || !strings.Contains(d.Reasons[0], "certifies nothing") {
			return fmt.Sprintf("a permit that says %q %q", d.Decision, d.Reasons)
		}
		return ""
	}
	if d.Decision != "deny" || d.Permits() || len(d.Reasons) != len(says) {
		return fmt.Sprintf("%q with %d reasons, want deny with %d", d.Decision, len(d.Reasons), len(says))
	}
	for i, text := range says {
		if !strings.Contains(d.Reasons[i], text) {
			return fmt.Sprintf("reason %q does not say %q", d.Reasons[i], text)
		}
	}
	return ""
}

func TestWholeInputSpace(t *testing.T) {
	declared, outside, permitted := 0, 0, 0
	everyQuestion(func(q question, in Input) {
		if d := Evaluate(in); problem(q, d) != "" {
			t.Errorf("%+v: %s", q, problem(q, d))
		} else if d.Permits() {
			permitted++
		}
		if d := q.names().Evaluate(); problem(q, d) != "" {
			t.Errorf("%+v by name: %s", q, problem(q, d))
		}
		if strings.Contains(fmt.Sprint(q), bad) {
			outside++
		} else {
			declared++
		}
	})
	if declared != 1296 || outside != 4*3*4*4*4*3*5-1296 {
		t.Errorf("%d declared rows and %d others were tried", declared, outside)
	}
	// Counted by hand: compute 2·1·2·2·2·2, edit-workspace 2·1·1·2·2·2, https-read
	// 2·1·2·1·2·2, external-message 2·1·2·1·2·1.
	if permitted != 32+16+16+8 {
		t.Errorf("%d rows are permitted, want 72", permitted)
	}
}

// A byte that no constant has is out of range in every field, whatever the others
// are: the enumeration above has 0, this has all.
func TestEveryOtherValueIsOutOfRange(t *testing.T) {
	permitted := Input{RuntimeContainer, PrivilegedNo, FilesystemScratch, NetworkDisabled, SecretsNone, ApprovalNone, ActionCompute}
	for _, input := range inputs {
		for value := range 256 {
			in := permitted
			input.set(&in, uint8(value))
			d := Evaluate(in)
			inRange := value >= 1 && value <= len(input.values)
			if (d.Mask&OutOfRange == 0) != inRange || (!inRange && d.Permits()) {
				t.Errorf("%s %d: %+v", input.name, value, d)
			}
			if !inRange && !strings.Contains(strings.Join(d.Reasons, ""), fmt.Sprintf("%s has no value %d", input.name, value)) {
				t.Errorf("%s %d: %q", input.name, value, d.Reasons)
			}
		}
	}
}

// Moving one input away from its safest value, or asking for more, never removes a
// bit of the mask, and never makes a permit of a denial. Each list goes from safe
// to unsafe; the two that grant something (allowlist, workspace, exact) are asked
// for the other way round: taking the grant away never permits more.
func TestNothingUnsafeRemovesAViolation(t *testing.T) {
	steps := map[string][][2]string{
		"runtime":    {{"container", "host"}, {"microvm", "host"}},
		"privileged": {{"no", "yes"}},
		"filesystem": {{"workspace", "scratch"}, {"workspace", "host"}, {"scratch", "host"}},
		"network":    {{"allowlist", "disabled"}, {"allowlist", "unrestricted"}, {"disabled", "unrestricted"}},
		"secrets":    {{"none", "raw"}, {"brokered", "raw"}},
		"approval":   {{"exact", "none"}},
		"action":     {{"compute", "edit-workspace"}, {"compute", "https-read"}, {"https-read", "external-message"}},
	}
	everyQuestion(func(q question, _ Input) {
		before := q.names()
		for name, list := range steps {
			for _, step := range list {
				if before[name] != step[0] {
					continue
				}
				after := q.names()
				after[name] = step[1]
				if lost := before.Evaluate().Mask &^ after.Evaluate().Mask; lost != 0 {
					t.Errorf("%+v: %s to %s lost %d", q, step[0], step[1], lost)
				}
			}
		}
	})
}

func TestIsolationGrantsNothing(t *testing.T) {
	everyQuestion(func(q question, in Input) {
		container, microvm := in, in
		container.Runtime, microvm.Runtime = RuntimeContainer, RuntimeMicroVM
		if a, b := Evaluate(container), Evaluate(microvm); a.Mask != b.Mask || !slices.Equal(a.Reasons, b.Reasons) {
			t.Errorf("%+v: container %+v, microvm %+v", q, a, b)
		}
	})
}

func TestARunIsWhatItMayDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anything := func(label string) uint8 { return rapid.Uint8Range(0, 6).Draw(t, label) }
		in := Input{Runtime(anything("runtime")), Privileged(anything("privileged")), Filesystem(anything("filesystem")),
			Network(anything("network")), Secrets(anything("secrets")), Approval(anything("approval")), Action(anything("ignored"))}
		var want Mask
		var actions []Action
		for _, value := range rapid.SliceOfN(rapid.Uint8Range(0, 6), 1, 5).Draw(t, "actions") {
			one := in
			one.Action = Action(value)
			want |= Evaluate(one).Mask
			actions = append(actions, one.Action)
		}
		d := EvaluateAll(in, actions...)
		if d.Mask != want || d.Permits() != (want == 0) || len(d.Reasons) != max(1, bits.OnesCount16(uint16(want))) {
			t.Fatalf("%+v, want mask %d", d, want)
		}
	})
	permitted := Input{RuntimeContainer, PrivilegedNo, FilesystemScratch, NetworkDisabled, SecretsNone, ApprovalNone, ActionCompute}
	if d := EvaluateAll(permitted); d.Mask != OutOfRange || d.Permits() {
		t.Errorf("no action at all: %+v", d)
	}
	if d := EvaluateAll(permitted, 9, 0, 9); !slices.Equal(d.Reasons, []string{"an input is out of range: action has no value 9; action has no value 0"}) {
		t.Errorf("%+v", d)
	}
}

func TestAForgottenDecisionPermitsNothing(t *testing.T) {
	if (Decision{}).Permits() || (Decision{Decision: Permit, Mask: OutOfRange}).Permits() || (Decision{Decision: Deny}).Permits() {
		t.Error("a decision that nobody made permits")
	}
	if d := Evaluate(Input{}); d.Mask != OutOfRange || d.Permits() {
		t.Errorf("the zero input: %+v", d)
	}
}

func TestNamesOfValues(t *testing.T) {
	everyQuestion(func(q question, in Input) {
		for _, name := range [][2]string{{q.runtime, in.Runtime.String()}, {q.privileged, in.Privileged.String()},
			{q.filesystem, in.Filesystem.String()}, {q.network, in.Network.String()}, {q.secrets, in.Secrets.String()},
			{q.approval, in.Approval.String()}, {q.action, in.Action.String()}} {
			if name[0] == bad {
				name[0] = "out of range (0)"
			}
			if name[0] != name[1] {
				t.Errorf("%q is called %q", name[0], name[1])
			}
		}
	})
	if got := Runtime(200).String(); got != "out of range (200)" {
		t.Errorf("got %q", got)
	}
}
