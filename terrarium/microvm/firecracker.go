//go:build linux

package microvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"tendril/fault"
	"tendril/terrarium/confine"
	"tendril/terrarium/microvm/firecracker"
	"tendril/terrarium/microvm/guestimage"
	"tendril/terrarium/microvm/jail"
)

// vmm is the machine of Firecracker. As root it is started by Firecracker's own jailer;
// for an ordinary user our jail does the same with a user namespace.
type vmm struct {
	program string // a name in PATH, or a path
	jailer  string
}

func (vmm) name() string    { return "firecracker" }
func (vmm) carrier() string { return guestimage.Vsock }
func (vmm) needsKVM() bool  { return true }

func (vmm) primitive() string { return "a virtual machine of Firecracker, by KVM" }

const installFirecracker = "take a release from github.com/firecracker-microvm/firecracker, and put its firecracker and jailer into a directory of PATH"

// find returns a program of Firecracker's, without symbolic links.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fault.New(fault.Unavailable, "%s is not here: %w", filepath.Base(program), err).WithHint(installFirecracker)
	}
	return path, nil
}

// version asks a program which release it is.
func (vmm) version(ctx context.Context, path, called string) (firecracker.Version, error) {
	said, err := versionOf(ctx, path)
	if err != nil {
		return firecracker.Version{}, err
	}
	program, v, ok := firecracker.ParseVersion(said)
	if !ok || program != called {
		return firecracker.Version{}, fault.New(fault.Unavailable, "the program %s does not say which %s it is: %q", path, called, said).WithHint(installFirecracker)
	}
	return v, nil
}

func (f vmm) ready(ctx context.Context) error {
	if runtime.GOARCH != "amd64" {
		return fault.New(fault.Unavailable, "the guest's machine is an x86-64, and this host is %s", runtime.GOARCH)
	}
	path, err := find(f.program)
	if err != nil {
		return err
	}
	v, err := f.version(ctx, path, "Firecracker")
	if err != nil {
		return err
	}
	if err := v.Check(); err != nil || confine.Rootless() {
		return err
	}
	if path, err = find(f.jailer); err != nil {
		return err
	}
	j, err := f.version(ctx, path, "Jailer")
	if err == nil && j != v {
		err = fault.New(fault.Unavailable, "the jailer is of release %s, and firecracker of %s", j, v).WithHint(installFirecracker)
	}
	return err
}

func (f vmm) identity() string {
	var parts []string
	for _, program := range []string{f.program, f.jailer} {
		if path, err := find(program); err == nil {
			parts = append(parts, identityOf(path))
		}
	}
	return strings.Join(parts, " ")
}

// Where things are as Firecracker sees them.
const (
	apiInJail   = "/run/api.sock"
	vsockInJail = "/run/v.sock"
	runInJail   = "/run"
)

func driveInJail(d drive) string { return "/drives/" + d.name }

// guestCID is the machine's address on its vsock; smaller ones mean the host. Each machine
// has a vsock of its own, so all have the same.
const guestCID = 3

// vsockPort is the port on which the guest waits for its host.
const vsockPort = 5000

func (f vmm) prepare(p plan) (_ *launch, err error) {
	path, err := find(f.program)
	if err != nil {
		return nil, err
	}
	l := &launch{boot: bootTime, how: "the processor runs it itself (KVM)"}
	var run string // the directory of the sockets, on the host
	if p.uid == 0 {
		run, err = f.inOurJail(l, p, path)
	} else {
		run, err = f.inTheirJail(l, p, path)
	}
	if err != nil {
		return nil, err
	}
	l.connect = func(ctx context.Context, pid int) (io.ReadWriteCloser, error) {
		client := firecracker.NewClient(firecracker.Socket{Dir: run, Name: filepath.Base(apiInJail), PID: pid})
		defer client.Close()
		if err := client.Start(ctx, configOf(p)); err != nil {
			return nil, err
		}
		return firecracker.Dial(ctx, firecracker.Socket{Dir: run, Name: filepath.Base(vsockInJail), PID: pid}, vsockPort)
	}
	return l, nil
}

// configOf is the machine as it is described to Firecracker. There is no network interface.
func configOf(p plan) firecracker.Config {
	c := firecracker.Config{
		// The keyboard controller is the way to end the machine, and nothing else is there.
		Boot: firecracker.BootSource{Kernel: kernelInJail, Initramfs: initramfsInJail,
			Args: commandLine(guestimage.Vsock, "reboot=k", "i8042.noaux", "i8042.nomux", "i8042.dumbkbd")},
		Machine: firecracker.Machine{Processors: evenly(p.cpus), MemoryMiB: p.memoryMiB},
		Vsock:   firecracker.Vsock{CID: guestCID, Path: vsockInJail},
	}
	for _, d := range p.drives {
		c.Drives = append(c.Drives, firecracker.Drive{ID: d.name, ReadOnly: !d.writable, Path: driveInJail(d)})
	}
	return c
}

// evenly is the number of processors that a machine can have: one, or an even number. What
// it may use of them is bounded beside it.
func evenly(n int) int {
	if n > 1 {
		n += n % 2
	}
	return min(n, firecracker.MaxProcessors)
}

// firecrackerArgs is what Firecracker is told in both jails. Its filter of system calls is
// its own, and on unless it is told otherwise.
var firecrackerArgs = []string{"--api-sock", apiInJail}

// inOurJail is the start by an ordinary user.
func (f vmm) inOurJail(l *launch, p plan, path string) (run string, err error) {
	run = filepath.Join(p.dir, "run")
	root := filepath.Join(p.dir, "root")
	if err := errors.Join(os.Mkdir(run, 0o700), os.Mkdir(root, 0o700)); err != nil {
		return "", err
	}
	args := slices.Concat([]string{path, "--id", machineID}, firecrackerArgs)
	l.order = jail.Order{Root: root, Program: path, Args: args, MaxFile: p.maxFile, Links: map[string]string{}, Shown: append(shownTo(p),
		jail.Shown{Source: path, Target: path}, jail.Shown{Source: run, Target: runInJail, Writable: true})}
	l.order.Devices = append(l.order.Devices, kvmDevice())
	l.mounts = mountsOf(l.order)
	l.argv = func(got []string) bool { return slices.Equal(got, args) }
	return run, nil
}

// machineID names the machine to Firecracker; it is alone in its jail.
const machineID = "machine"

// inTheirJail is the start by root. The jailer makes a root of its own in a directory, into
// which the machine's files are bound before, in a mount namespace that it inherits.
func (f vmm) inTheirJail(l *launch, p plan, path string) (run string, err error) {
	jailer, err := find(f.jailer)
	if err != nil {
		return "", err
	}
	base := filepath.Join(p.dir, "jailer")
	root := filepath.Join(base, filepath.Base(path), machineID, "root")
	run = filepath.Join(root, runInJail)
	if err := os.MkdirAll(run, 0o700); err != nil {
		return "", err
	}
	if err := errors.Join(os.Chown(run, p.uid, p.uid), giveDrives(p)); err != nil {
		return "", err
	}
	l.order = jail.Order{Program: jailer, Args: jailerArgs(jailer, path, base, p), Shown: shownTo(p)}
	l.mounts = append(mountsOf(l.order), mounted{"/", true})
	for i, s := range l.order.Shown {
		l.order.Shown[i].Target = filepath.Join(root, s.Target)
	}
	l.argv = isFirecracker
	return run, nil
}

// jailerArgs is the jailer's command line. Namespaces but that of mounts, and the control
// group, are those that it is started in.
func jailerArgs(jailer, path, base string, p plan) []string {
	uid := fmt.Sprint(p.uid)
	return slices.Concat([]string{
		jailer, "--id", machineID, "--exec-file", path, "--uid", uid, "--gid", uid, "--chroot-base-dir", base,
		"--resource-limit", fmt.Sprintf("fsize=%d", p.maxFile), "--resource-limit", "no-file=256", "--",
	}, firecrackerArgs)
}

// isFirecracker accepts what the jailer makes of its arguments: it adds times.
func isFirecracker(got []string) bool {
	for _, word := range got {
		if strings.HasPrefix(word, "--no-seccomp") || strings.HasPrefix(word, "--seccomp-filter") || strings.HasPrefix(word, "--config-file") {
			return false
		}
	}
	i := slices.Index(got, "--api-sock")
	return i > 0 && i+1 < len(got) && got[i+1] == apiInJail
}

// shownTo is the machine's files.
func shownTo(p plan) []jail.Shown {
	shown := []jail.Shown{{Source: p.guest.Kernel, Target: kernelInJail}, {Source: p.guest.Initramfs, Target: initramfsInJail}}
	for _, d := range p.drives {
		shown = append(shown, jail.Shown{Source: d.path, Target: driveInJail(d), Writable: d.writable})
	}
	return shown
}

// giveDrives lets an account of its own open the drives: the scratch drive becomes its, and
// the others may be read by everybody who reaches them, in directories that are ours.
func giveDrives(p plan) error {
	for _, d := range p.drives {
		f, err := os.Open(d.path)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		switch {
		case err != nil:
		case d.writable:
			err = f.Chown(p.uid, p.uid)
		case info.Mode()&0o004 == 0:
			err = f.Chmod(info.Mode().Perm() | 0o444)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("giving the drive %s to the machine: %w", d.name, err)
		}
	}
	return nil
}
