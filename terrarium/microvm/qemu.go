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
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"tendril/fault"
	"tendril/terrarium/microvm/guestimage"
	"tendril/terrarium/microvm/jail"
)

// qemu is the machine of the emulator that distributions have.
type qemu struct {
	program  string        // a name in PATH, or a path
	patience time.Duration // how long a guest may take to start; 0: as long as it usually may
}

func (qemu) name() string    { return "qemu" }
func (qemu) carrier() string { return guestimage.VirtioSerial }
func (qemu) needsKVM() bool  { return false }

func (qemu) primitive() string { return "a virtual machine of QEMU, by KVM or emulated" }

// How long a guest may take until its Stoma speaks. An emulated one that shares a busy host
// takes its time.
const (
	bootTime         = 10 * time.Second
	emulatedBootTime = 90 * time.Second
)

// oldestQEMU is the first version whose microvm machine describes its devices by ACPI, as
// the guest's kernel finds them, and takes all the options below.
const oldestQEMU = 6

const installQEMU = "install it: `apt-get install qemu-system-x86`"

// path is the program, without symbolic links.
func (q qemu) path() (string, error) {
	path, err := exec.LookPath(q.program)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fault.New(fault.Unavailable, "QEMU is not here: %w", err).WithHint(installQEMU)
	}
	return path, nil
}

func (q qemu) ready(ctx context.Context) error {
	if runtime.GOARCH != "amd64" {
		return fault.New(fault.Unavailable, "the guest's machine is an x86-64, and this host is %s", runtime.GOARCH)
	}
	path, err := q.path()
	if err != nil {
		return err
	}
	said, err := versionOf(ctx, path)
	if err != nil {
		return err
	}
	major, ok := parseQEMUVersion(said)
	if !ok {
		return fault.New(fault.Unavailable, "the program %s does not say which QEMU it is: %q", path, said)
	}
	if major < oldestQEMU {
		return fault.New(fault.Unavailable, "QEMU %d is too old for this wall, which needs %d", major, oldestQEMU).WithHint(installQEMU)
	}
	return nil
}

// versionTime bounds a program that is asked for its version.
const versionTime = 10 * time.Second

func versionOf(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fault.New(fault.Unavailable, "asking %s for its version: %w", path, err)
	}
	line, _, _ := strings.Cut(string(out[:min(len(out), 200)]), "\n")
	return line, nil
}

var qemuVersion = regexp.MustCompile(`^QEMU emulator version ([0-9]{1,3})\.[0-9]`)

func parseQEMUVersion(line string) (major int, ok bool) {
	match := qemuVersion.FindStringSubmatch(line)
	if match == nil {
		return 0, false
	}
	major, err := strconv.Atoi(match[1])
	return major, err == nil
}

func (q qemu) identity() string {
	path, err := q.path()
	if err != nil {
		return ""
	}
	return identityOf(path)
}

// identityOf changes when the file does.
func identityOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano())
}

func (q qemu) prepare(p plan) (_ *launch, err error) {
	if !p.guest.PVH {
		return nil, fault.New(fault.Unavailable, "the guest's kernel cannot be started by QEMU: it was built without CONFIG_PVH").
			WithHint("make the guest from another kernel: `tendril terrarium setup microvm`")
	}
	path, err := q.path()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	l := &launch{passed: []*os.File{theirs}, closers: []io.Closer{ours}, boot: emulatedBootTime}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.abandon())
		}
	}()
	files, err := p.open()
	if err != nil {
		return nil, err
	}
	l.passed = append(l.passed, files...)
	l.connect = func(context.Context, int) (io.ReadWriteCloser, error) { return ours, nil }
	l.how = "the processor is emulated"
	if p.kvm {
		l.boot, l.how = bootTime, "the processor runs it itself (KVM)"
	}
	if q.patience > 0 {
		l.boot = q.patience
	}
	args := qemuArgs(path, p)
	l.argv = func(got []string) bool { return slices.Equal(got, args) }
	l.order = jail.Order{
		Root: p.dir, Program: path, Args: args, UID: p.uid, FDs: len(l.passed), MaxFile: p.maxFile, Links: map[string]string{},
		Shown: []jail.Shown{{Source: p.guest.Kernel, Target: kernelInJail}, {Source: p.guest.Initramfs, Target: initramfsInJail}},
	}
	if p.kvm {
		l.order.Devices = append(l.order.Devices, kvmDevice())
	}
	showProgram(&l.order, path, "/usr/share/qemu", "/usr/share/seabios", "/usr/share/qemu-firmware")
	l.mounts = mountsOf(l.order)
	return l, nil
}

// Where the jail shows the guest.
const (
	kernelInJail    = "/guest/kernel"
	initramfsInJail = "/guest/initramfs"
)

// translatedMiB is how much translated code an emulator keeps.
const translatedMiB = 256

// commandLine is the kernel's. Its words after "--" are the first process's.
func commandLine(carrier string, words ...string) string {
	list := append([]string{"console=ttyS0", "quiet", "panic=-1", "pci=off", "random.trust_cpu=on"}, words...)
	return strings.Join(append(list, "--", "machine", carrier), " ")
}

// qemuArgs is QEMU's command line. The descriptor of the Stoma's stream is the first that
// is passed, the drives' follow. There is no network device, no monitor, and no device but
// those that are named.
func qemuArgs(path string, p plan) []string {
	// A restart is the end: reboot=t, with -no-reboot.
	words := []string{"reboot=t"}
	accelerator, cpu := "kvm", "host"
	if !p.kvm {
		// The guest cannot measure the counter that it sees against an emulated timer.
		words = append(words, fmt.Sprintf("tsc_early_khz=%d", hostKHz()), "tsc=reliable")
		accelerator, cpu = fmt.Sprintf("tcg,thread=multi,tb-size=%d", translatedMiB), "max"
	}
	list := []string{
		path, "-nodefaults", "-no-user-config", "-nographic", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-machine", "microvm,acpi=on,pit=on,pic=on,rtc=on,pcie=off,usb=off,auto-kernel-cmdline=off",
		"-accel", accelerator, "-cpu", cpu,
		"-m", fmt.Sprintf("size=%dM", p.memoryMiB), "-smp", strconv.Itoa(p.cpus),
		"-kernel", kernelInJail, "-initrd", initramfsInJail, "-append", commandLine(guestimage.VirtioSerial, words...),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=stoma,fd=%d", jail.FirstFD),
		"-device", "virtio-serial-device,max_ports=2", "-device", "virtserialport,chardev=stoma,name=stoma",
		"-object", "rng-builtin,id=rng", "-device", "virtio-rng-device,rng=rng",
	}
	for i, d := range p.drives {
		readonly := "on"
		if d.writable {
			readonly = "off"
		}
		list = append(list,
			"-add-fd", fmt.Sprintf("fd=%d,set=%d", jail.FirstFD+1+i, i),
			"-drive", fmt.Sprintf("id=%s,if=none,format=raw,cache=writeback,werror=report,rerror=report,auto-read-only=off,file.locking=off,readonly=%s,file=/dev/fdset/%d", d.name, readonly, i),
			"-device", fmt.Sprintf("virtio-blk-device,drive=%s,serial=%[1]s", d.name),
		)
	}
	return list
}
