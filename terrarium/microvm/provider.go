//go:build linux

package microvm

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/probe"
	"tendril/terrarium"
	"tendril/terrarium/confine"
	"tendril/terrarium/microvm/guestimage"
)

// Config says where a wall finds its parts.
type Config struct {
	Program string // the binary that re-executes as the jail (see package jail): tendril itself
	Stoma   string // the guest half of the Stoma, a static binary
	Guest   string // the directory of package guestimage
}

// QEMU returns the provider of machines of QEMU.
func QEMU(c Config) terrarium.Provider {
	return &provider{Config: c, machine: qemu{program: "qemu-system-x86_64"}}
}

// Firecracker returns the provider of machines of Firecracker.
func Firecracker(c Config) terrarium.Provider {
	return &provider{Config: c, machine: vmm{program: "firecracker", jailer: "jailer"}}
}

type provider struct {
	Config
	machine machine

	proving sync.Mutex // held while somebody looks whether KVM works here
}

func (p *provider) Name() string { return p.machine.name() }

func (p *provider) Capabilities() terrarium.Capabilities {
	return terrarium.Capabilities{
		Primitive: p.machine.primitive(),
		Runtime:   "microvm",
		OnlyNamed: true, // it takes an image, and more time
		Seals: []string{
			probe.Network, probe.HostFiles, probe.Descriptors, probe.Environment, probe.User, probe.Accounts, probe.Capabilities,
			probe.RootReadonly, probe.PID1, probe.Devices, probe.Kernel, probe.KernelSurface, probe.Processes, probe.Limits,
		},
		Fields: map[string]terrarium.Enforcement{
			"Run":                 terrarium.ByHost,
			"Rootfs.Host.Dirs":    terrarium.NotKept, // a machine shares no directory with the host
			"Rootfs.Image.Path":   terrarium.ByHost,
			"Rootfs.Image.Digest": terrarium.ByHost,
			"Rootfs.Authority":    terrarium.ByHost,
			"Rootfs.Programs":     terrarium.ByHost,
			"Workspace.Image":     terrarium.ByHost,
			"Workspace.Dir":       terrarium.ByHost,
			"Env":                 terrarium.ByHost,
			"User":                terrarium.ByGuest,
			"CPUs":                terrarium.ByHost,
			"Memory":              terrarium.ByHost,
			"Disk":                terrarium.ByHost,
			"Output":              terrarium.ByHost,
			"Pids":                terrarium.ByGuest,
			"Wall":                terrarium.ByHost,
			"Idle":                terrarium.ByHost,
			"Network":             terrarium.ByHost,
			"Listeners":           terrarium.ByHost,
			"WritableRoot":        terrarium.NotKept,
		},
	}
}

// Ready implements [terrarium.Provider].
func (p *provider) Ready(ctx context.Context) error {
	if _, err := guestimage.Describe(p.Guest); err != nil {
		return err
	}
	if err := p.machine.ready(ctx); err != nil {
		return err
	}
	if _, err := formatter(); err != nil {
		return err
	}
	if err := confine.UserNamespacesWork(); err != nil {
		return err
	}
	if errors.Is(unix.MountSetattr(-1, "", 0, &unix.MountAttr{}), unix.ENOSYS) {
		return fault.New(fault.Unavailable, "this host's kernel is too old to close the jail of a machine's process: it needs Linux 5.12")
	}
	if _, err := accountFor("ready"); err != nil {
		return err
	}
	if !p.machine.needsKVM() {
		return nil
	}
	return p.kvmWorks(ctx)
}

// Open implements [terrarium.Provider].
func (p *provider) Open(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	b, err := p.draw(spec)
	if err != nil {
		return nil, err
	}
	if b.kvm, b.slow, err = p.chooseKVM(ctx); err != nil {
		return nil, err
	}
	return p.build(ctx, b)
}

// Recover implements [terrarium.Recoverer].
func (p *provider) Recover(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	dir := spec.Workspace.Dir
	// Two machines that write to one drive would ruin it.
	if err := endMachine(ctx, spec.Run, dir); err != nil {
		return nil, err
	}
	if !exists(filepath.Join(dir, scratchFile)) {
		return nil, fault.New(fault.NotFound, "the run %s left no drive with work on it", spec.Run)
	}
	spec.Listeners = nil
	b, err := p.draw(spec)
	if err != nil {
		return nil, err
	}
	b.again = true
	b.files.args = append(b.files.args, "--recover")
	if b.kvm, b.slow, err = p.chooseKVM(ctx); err != nil {
		return nil, err
	}
	return p.build(ctx, b)
}

// Sweep implements [terrarium.Provider]. A machine ends with its Stem; this is for what
// was killed before it could.
func (p *provider) Sweep(ctx context.Context, run, dir string) error {
	return errors.Join(endMachine(ctx, run, dir), removeRemains(dir))
}
