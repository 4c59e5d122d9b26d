//go:build linux

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Where things are in the first root of a machine, which the kernel unpacked from the
// initramfs and which nobody sees once the machine's own root is there.
const (
	modulesDir = "/modules"
	filesDir   = "/files" // the drive with what is this run's own
	newRoot    = "/root"
)

// The drives of a machine, in the order in which it has them.
const (
	rootDrive    = "/dev/vda" // the root file system, an EROFS image
	baseDrive    = "/dev/vdb" // the base of the workspace, an EROFS image
	filesDrive   = "/dev/vdc" // an EROFS image with the arguments and files that are laid over the root
	scratchDrive = "/dev/vdd" // an ext4 file system of the size that the disk limit says
)

// testOnlyOpen names a seal of machines that is left open: "filter", "devices" or "proc". It
// is set by builds of tests, which see that the seal is missed.
var testOnlyOpen string

// Machine runs `stoma machine CARRIER` as the first process of a virtual machine: it makes
// the machine into what `stoma init` needs, runs that, and restarts the machine when it
// ended, which whoever emulates the machine takes for its end. It returns only when that
// failed; then Linux panics, and was told to restart too.
func Machine(args []string) int { return report(runMachine(args)) }

func runMachine(args []string) error {
	if len(args) != 1 {
		return errors.New("want the name of a carrier")
	}
	if os.Getpid() != 1 {
		return errors.New("machine has to be the first process of a virtual machine")
	}
	if err := mountFirst(); err != nil {
		return err
	}
	if err := loadModules(args[0]); err != nil {
		return err
	}
	o, err := readOrder()
	if err != nil {
		return err
	}
	if err := o.mountAll(); err != nil {
		return err
	}
	if err := tune(); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	stream, err := openCarrier(args[0])
	if err != nil {
		return err
	}
	if err := enterMachineRoot(); err != nil {
		return err
	}
	err = runInit(o.args, stream)
	// What was written is on the drive then: somebody may still want it.
	unix.Sync()
	return errors.Join(err, unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

// order is what the host wants of this machine.
type order struct {
	args []string // of `stoma init`
	config
	over []string // paths of the root on which the files /over/0, /over/1, … of the drive are laid
}

// mountFirst mounts what the kernel shows of itself.
func mountFirst() error {
	for _, m := range []struct{ target, kind string }{{"/proc", "proc"}, {"/sys", "sysfs"}, {"/dev", "devtmpfs"}} {
		if err := mount(m.kind, m.target, m.kind, unix.MS_NOSUID|unix.MS_NOEXEC, ""); err != nil {
			return err
		}
	}
	return nil
}

// mount is unix.Mount with an error that says of what.
func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}

// readOrder reads the drive with what is this run's own.
func readOrder() (order, error) {
	var o order
	if err := os.Mkdir(filesDir, 0o700); err != nil {
		return o, err
	}
	if err := await(filesDrive); err != nil {
		return o, err
	}
	if err := mount(filesDrive, filesDir, "erofs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return o, err
	}
	var err error
	if o.args, err = readList(filesDir + "/args"); err != nil {
		return o, err
	}
	if o.config, err = parse(o.args); err != nil {
		return o, err
	}
	if !o.machine {
		return o, errors.New("the arguments are not those of a machine")
	}
	o.over, err = readList(filesDir + "/over/list")
	return o, err
}

// readList reads strings that each end with a NUL.
func readList(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, nil
	}
	data, whole := bytes.CutSuffix(data, []byte{0})
	if !whole {
		return nil, fmt.Errorf("%s is cut short", path)
	}
	return strings.Split(string(data), "\x00"), nil
}

// runInit runs `stoma init` as the first process of a namespace of its own, in which the
// kernel's threads and this process do not exist, and waits for its end.
func runInit(args []string, carrier int) error {
	child, err := syscall.ForkExec("/.tendril/stoma", slices.Concat([]string{"stoma", "init"}, args), &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: []uintptr{uintptr(carrier), uintptr(carrier), 2},
		Sys:   &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start the Stoma: %w", err)
	}
	unix.Close(carrier)
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return fmt.Errorf("wait for the Stoma: %w", err)
		case ended == child && status.ExitStatus() != 0:
			return fmt.Errorf("the Stoma ended with %#x", uint32(status))
		case ended == child:
			return nil
		}
	}
}

// beginMachine is `stoma init` where the kernel belongs to this Terrarium alone.
func beginMachine(cfg config) error {
	if err := mountProc(); err != nil {
		return err
	}
	if cfg.recover {
		if err := clearScratch(cfg.overlay.scratch); err != nil {
			return err
		}
	}
	return begin(cfg, func(identity) error {
		err := dropPrivileges()
		if err == nil && testOnlyOpen != "filter" {
			err = closeKernel()
		}
		return err
	})
}

// clearScratch removes what a machine that ended left in scratch besides the work, where
// this one has to make it again.
func clearScratch(scratch string) error {
	var errs []error
	for _, name := range []string{"work", "cgroup", "root"} {
		errs = append(errs, os.RemoveAll(scratch+"/"+name))
	}
	return errors.Join(errs...)
}
