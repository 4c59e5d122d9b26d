// Package probe is what a process inside a Terrarium can try, and what a sealed
// boundary answers.
//
// Each [Probe] tests one seal from the inside, as a Sprout would: the Stoma binary
// is executed with `probe ID` under the Sprout's account, and [Main] prints one line
// of JSON. A probe says [Sealed] only when it saw the seal hold, [Leak] when it got
// through, and [Unknown] when it cannot tell; unknown is never a pass.
//
// What it promises: a probe never uses what it finds. It opens without writing,
// signals with 0, connects datagram sockets only (which sends nothing) and makes
// temporary files in the temporary directory alone, so that all probes may run on a
// bare host. Each one can fail: the tests run them without a wall and require leaks.
//
// What it does not protect against: a probe samples a boundary, it does not prove
// one. Its output comes from inside, so [Parse] treats it as a claim of the Sprout.
package probe

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
)

// Status is what a probe found.
type Status string

// The statuses. Their exit statuses are 0, 1, 2 and 3.
const (
	Sealed        Status = "sealed"         // the seal held
	Leak          Status = "leak"           // the probe got through
	Unknown       Status = "unknown"        // the probe could not tell
	NotApplicable Status = "not-applicable" // what it tests does not exist here
)

// The seals of a boundary: the values of [Probe.Seal].
const (
	Network       = "network"        // no route, no interface but loopback, no resolver
	HostFiles     = "host-files"     // no file of the host but the toolchain view
	Descriptors   = "descriptors"    // nothing open above 2
	Environment   = "environment"    // nothing inherited
	User          = "user"           // an account without power and without way to more
	Accounts      = "accounts"       // no account is one of the host's kernel
	Capabilities  = "capabilities"   // none held, none to be had
	RootReadonly  = "root-readonly"  // the root file system cannot be written
	PID1          = "pid1"           // the Stoma cannot be written to, killed or traced
	Devices       = "devices"        // none but the harmless ones
	Kernel        = "kernel"         // the kernel is not the host's
	KernelSurface = "kernel-surface" // the dangerous system calls and sockets are closed
	Processes     = "processes"      // nobody else's
	Limits        = "limits"         // what can be used is bounded
)

// ExpectedUser is a variable that tells the probes of the seal [User] which account
// they have to find, as UID:GID. Without it any but root will do.
const ExpectedUser = "TENDRIL_PROBE_USER"

// ImageRoot is a variable that tells the probes of the seal [HostFiles], with any value,
// that the root file system is an image. What lies on it came with the image then, and only
// what is mounted over it can be the host's.
const ImageRoot = "TENDRIL_PROBE_IMAGE"

// HostBoot is a variable that tells the probes which start of a kernel the host's is, as
// [BootDigest] of its boot id. One that started by itself is not the host's; without the
// variable no kernel is known to have.
const HostBoot = "TENDRIL_PROBE_HOST_BOOT"

// BootDigest is a boot id, as /proc/sys/kernel/random/boot_id has it, in a form that tells
// nothing of the host.
func BootDigest(id []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(bytes.TrimSpace(id)))
}

// Probe is one thing to try. Run is called once per process; it may leave its thread
// in another state and is therefore called on a thread of its own.
type Probe struct {
	ID        string
	Dimension string // filesystem, network, process, credentials, resources, capabilities
	Seal      string
	What      string // what a sealed boundary answers, one clause
	Core      bool   // cheap, and with the other core probes enough to notice that a seal is not there at all
	Stress    bool   // uses a limit up; run it apart from the others
	Run       func() Result
}

// Result is what a probe says.
type Result struct {
	ID     string
	Status Status
	Detail string // printable ASCII, at most 512 bytes
}

// Deadline bounds the probe. When it takes longer it says unknown. Using a limit up takes
// an emulated machine a while.
func (p Probe) Deadline() time.Duration {
	if p.Stress {
		return 90 * time.Second
	}
	return 20 * time.Second
}

// maxDetail bounds Result.Detail, in bytes.
const maxDetail = 512

// All returns every probe, in the order of the seals.
func All() []Probe {
	var all []Probe
	for _, group := range groups {
		all = append(all, group...)
	}
	return all
}

// Find returns the probe with that id.
func Find(id string) (Probe, bool) {
	for _, p := range All() {
		if p.ID == id {
			return p, true
		}
	}
	return Probe{}, false
}

func sealed(format string, args ...any) Result {
	return Result{Status: Sealed, Detail: fmt.Sprintf(format, args...)}
}

func leak(format string, args ...any) Result {
	return Result{Status: Leak, Detail: fmt.Sprintf(format, args...)}
}

func unknown(format string, args ...any) Result {
	return Result{Status: Unknown, Detail: fmt.Sprintf(format, args...)}
}

func notApplicable(format string, args ...any) Result {
	return Result{Status: NotApplicable, Detail: fmt.Sprintf(format, args...)}
}

// printable replaces what is not printable ASCII and cuts at maxDetail bytes.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), maxDetail)]
}
