// Package terrarium is the contract every wall honours: what may be asked of
// an isolation boundary ([Spec]), what a provider can do ([Capabilities]), and
// what was really applied ([Row]).
//
// A provider never sees a Spec that it cannot honour: [Validated] wraps it and
// refuses, by name, every field that the provider does not declare.
package terrarium

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"tendril/stoma"
)

// Spec is everything a boundary is made from. The zero value of a field is its
// safest setting.
type Spec struct {
	Run       string     // the run's id; names the sandbox, its directories and its cgroup
	Rootfs    Rootfs     // exactly one kind of root file system
	Workspace Workspace  // always /workspace inside
	Network   Network    // what is reachable: nothing
	Listeners []Listener // loopback ports inside that the Stem answers
	Env       []string   // the whole environment inside; nothing is inherited
	User      User       // zero: the provider's default, which is no account of the host

	CPUs   Limit[float64] // processors
	Memory Limit[int64]   // bytes, swap included
	Disk   Limit[int64]   // bytes of workspace changes and of scratch (/tmp, /home/sprout), together
	Output Limit[int64]   // bytes of stdout and stderr, together
	Pids   Limit[int]     // processes and threads inside
	Wall   Limit[time.Duration]
	Idle   Limit[time.Duration] // time without output and without processor use

	WritableRoot bool // false: the root file system is read-only
}

// The limits that every wall has for which nobody asked for another.
const (
	DefaultPids = 512
	DefaultDisk = 10 << 30 // bytes
)

// Limit is a bound that a boundary must keep. Required says that somebody asked
// for it: then a host that cannot enforce or sample it refuses the run. A zero
// Value means the provider's default.
type Limit[T float64 | int64 | int | time.Duration] struct {
	Value    T
	Required bool
}

// Rootfs names the root file system: exactly one of Host and Image.
type Rootfs struct {
	Host  *HostView
	Image *Image

	// Programs are single files of the Stem's own that are shown, read-only.
	Programs []Program

	// Authority is a certificate in PEM that programs inside trust instead of those that
	// the host or the image trusts; nil: those.
	Authority []byte
}

// HostView is a read-only view of the host's own programs and libraries. Dirs are further
// directories that the Botanist admits, each shown read-only under its own path.
type HostView struct {
	Dirs []string
}

// Image is an unpacked OCI image.
type Image struct {
	Path   string // an EROFS file with the image's tree and the places that every wall needs; read-only
	Digest string // "sha256:" and 64 hexadecimal digits: of the manifest that it was made from
}

// Program is a file of the host and where it appears: below /opt/tendril, in which nothing
// else is.
type Program struct{ Source, Target string }

// Workspace is what the work starts from.
type Workspace struct {
	Image string // path of the base image, an EROFS file; read-only
	Dir   string // a directory of the run's own, for the wall's files; removed with the run
}

// Network says what a Terrarium can reach. It is a closed type: there is no way to
// ask for more than a loopback of the Terrarium's own.
type Network uint8

// NetworkNone is a loopback interface, no route and no resolver.
const NetworkNone Network = 0

func (n Network) String() string {
	if n == NetworkNone {
		return "none"
	}
	return "unknown"
}

// Listener is a port of the loopback inside whose connections come out through the Stoma.
// Inside nothing looks at them; what they reach is decided by Serve.
type Listener struct {
	Name string // no space, no "=" and no ","
	Port uint16

	// Serve takes one connection, on its own goroutine, and returns soon after it
	// fails. It is closed then.
	Serve func(*stoma.Stream)
}

// ServeConn gives a connection to the listener of that name, and refuses it if there is
// none: the name is what the guest half claims.
func (s Spec) ServeConn(name string, conn *stoma.Stream) {
	if i := slices.IndexFunc(s.Listeners, func(l Listener) bool { return l.Name == name }); i >= 0 {
		s.Listeners[i].Serve(conn)
		return
	}
	conn.Reset(stoma.CodeRefused, "no such listener")
}

// DescribeListeners is the value of the field's row.
func (s Spec) DescribeListeners() string {
	var words []string
	for _, l := range s.Listeners {
		words = append(words, l.String())
	}
	return strings.Join(words, ",")
}

// String is how the guest half takes a listener.
func (l Listener) String() string { return l.Name + "=" + strconv.Itoa(int(l.Port)) }

// User is the account that the Sprout has inside. Zero is refused except as
// "the provider's default".
type User struct {
	UID, GID uint32
}

// DefaultUser is the Sprout's account inside: a number that the uid tables of
// systemd and Debian assign to nobody (systemd.io/UIDS-GIDS,
// www.debian.org/doc/debian-policy/ch-opersys.html), so that a file which the
// view shows belongs to no account of the host that the Sprout could pass for.
// It is below 2^21, which the ustar format can still write.
var DefaultUser = User{UID: 70707, GID: 70707}

// SproutInside is where the small built-in agent is shown: the place for it that every
// image has.
const SproutInside = "/opt/tendril/sprout"

// StomaInside is where the guest half of the Stoma is, in every Terrarium. The
// Sprout can execute it (probes do), and that gives it nothing.
const StomaInside = "/.tendril/stoma"
