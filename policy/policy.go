// Package policy decides whether a boundary and an action go together: seven
// inputs become a mask of violations, and any bit of it denies.
//
// The function is pure and total. It has an answer for every value of every
// input, values that nobody declared included, and those deny. It knows no
// files, clock or environment, so it also runs as WebAssembly.
//
// What it does not do: it cannot see whether the inputs are true. Whoever calls
// it declares the boundary, or reads back the applied one. A permit says that no
// rule of this policy is violated and certifies nothing else. How strongly a
// runtime isolates never grants anything: container and microvm are equal here.
package policy

import "fmt"

// Input is one question. The zero value of every field is out of range, so that
// an input that somebody forgot denies.
type Input struct {
	Runtime    Runtime
	Privileged Privileged
	Filesystem Filesystem
	Network    Network
	Secrets    Secrets
	Approval   Approval
	Action     Action
}

// Runtime is what runs the work.
type Runtime uint8

// The runtimes. Host is no isolation at all.
const (
	RuntimeHost Runtime = iota + 1
	RuntimeContainer
	RuntimeMicroVM
)

// Privileged is whether the work runs with privileges over the host.
type Privileged uint8

// The privileges.
const (
	PrivilegedNo Privileged = iota + 1
	PrivilegedYes
)

// Filesystem is what the work can write.
type Filesystem uint8

// The scopes of writes: what is thrown away, the workspace whose changes are
// handed over, or any file of the host.
const (
	FilesystemScratch Filesystem = iota + 1
	FilesystemWorkspace
	FilesystemHost
)

// Network is what the work can reach.
type Network uint8

// The scopes of egress. Allowlist is mediated: the declared destinations alone.
const (
	NetworkDisabled Network = iota + 1
	NetworkAllowlist
	NetworkUnrestricted
)

// Secrets is how credentials reach what needs them.
type Secrets uint8

// The ways of secrets. Brokered ones are attached outside the boundary; raw ones
// are inside, where the work can read them.
const (
	SecretsNone Secrets = iota + 1
	SecretsBrokered
	SecretsRaw
)

// Approval is what a person has agreed to.
type Approval uint8

// The approvals. Exact is for this very action and no other.
const (
	ApprovalNone Approval = iota + 1
	ApprovalExact
)

// Action is what the work asks to do.
type Action uint8

// The actions.
const (
	ActionCompute Action = iota + 1
	ActionEditWorkspace
	ActionHTTPSRead
	ActionExternalMessage
)

func (r Runtime) String() string    { return runtimes.nameOf(uint8(r)) }
func (p Privileged) String() string { return privileges.nameOf(uint8(p)) }
func (f Filesystem) String() string { return filesystems.nameOf(uint8(f)) }
func (n Network) String() string    { return networks.nameOf(uint8(n)) }
func (s Secrets) String() string    { return secrecies.nameOf(uint8(s)) }
func (a Approval) String() string   { return approvals.nameOf(uint8(a)) }
func (a Action) String() string     { return actions.nameOf(uint8(a)) }

// enumeration holds the names of an input's values, in the order of the
// constants: the first is the name of value 1.
type enumeration []string

var (
	runtimes    = enumeration{"host", "container", "microvm"}
	privileges  = enumeration{"no", "yes"}
	filesystems = enumeration{"scratch", "workspace", "host"}
	networks    = enumeration{"disabled", "allowlist", "unrestricted"}
	secrecies   = enumeration{"none", "brokered", "raw"}
	approvals   = enumeration{"none", "exact"}
	actions     = enumeration{"compute", "edit-workspace", "https-read", "external-message"}
)

func (e enumeration) holds(value uint8) bool { return value >= 1 && int(value) <= len(e) }

func (e enumeration) nameOf(value uint8) string {
	if !e.holds(value) {
		return fmt.Sprintf("out of range (%d)", value)
	}
	return e[value-1]
}

// inputs are the seven by name.
var inputs = []struct {
	name   string
	values enumeration
	get    func(Input) uint8
	set    func(*Input, uint8)
}{
	{"runtime", runtimes, func(in Input) uint8 { return uint8(in.Runtime) }, func(in *Input, v uint8) { in.Runtime = Runtime(v) }},
	{"privileged", privileges, func(in Input) uint8 { return uint8(in.Privileged) }, func(in *Input, v uint8) { in.Privileged = Privileged(v) }},
	{"filesystem", filesystems, func(in Input) uint8 { return uint8(in.Filesystem) }, func(in *Input, v uint8) { in.Filesystem = Filesystem(v) }},
	{"network", networks, func(in Input) uint8 { return uint8(in.Network) }, func(in *Input, v uint8) { in.Network = Network(v) }},
	{"secrets", secrecies, func(in Input) uint8 { return uint8(in.Secrets) }, func(in *Input, v uint8) { in.Secrets = Secrets(v) }},
	{"approval", approvals, func(in Input) uint8 { return uint8(in.Approval) }, func(in *Input, v uint8) { in.Approval = Approval(v) }},
	{"action", actions, func(in Input) uint8 { return uint8(in.Action) }, func(in *Input, v uint8) { in.Action = Action(v) }},
}
