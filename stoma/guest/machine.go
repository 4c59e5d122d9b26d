//go:build linux

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

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

// Machine runs `stoma machine CARRIER` as the first process of a virtual machine, and
// returns its exit status. When it returns the machine ends, because Linux panics without
// its first process and was told to reboot then.
func Machine(args []string) int {
	if err := runMachine(args); err != nil {
		fmt.Fprintf(os.Stderr, "stoma: %v\n", err)
		return 1
	}
	return 0
}

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
	m, err := readOrder()
	if err != nil {
		return err
	}
	if err := m.mountAll(); err != nil {
		return err
	}
	if err := tune(); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	c, err := openCarrier(args[0])
	if err != nil {
		return err
	}
	restart, err := enterMachineRoot()
	if err != nil {
		return err
	}
	defer restart()
	if err := replaceStdin(); err != nil {
		return err
	}
	return m.inhabit(c)
}

// inhabit makes everything ready for the Sprout and serves the host.
func (m order) inhabit(c carrier) error {
	// From here on no process of the Sprout can trace this one.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the dumpable flag: %w", err)
	}
	unix.Umask(0o022)
	sv, err := prepare(m.config)
	if err != nil {
		return err
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	if err := closeKernel(); err != nil {
		return err
	}
	return sv.serve(c)
}

// order is what the host wants of this machine.
type order struct {
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

// mount is unix.Mount with an error that says of what. A directory that is missing in the
// first root is made.
func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}

// readOrder reads the drive with what is this run's own.
func readOrder() (order, error) {
	if err := os.Mkdir(filesDir, 0o700); err != nil {
		return order{}, err
	}
	if err := await(filesDrive); err != nil {
		return order{}, err
	}
	if err := mount(filesDrive, filesDir, "erofs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return order{}, err
	}
	args, err := readList(filesDir + "/args")
	if err != nil {
		return order{}, err
	}
	m := order{}
	if m.config, err = parse(args); err != nil {
		return order{}, err
	}
	if m.overlay == nil {
		return order{}, errors.New("a machine needs --overlay")
	}
	m.over, err = readList(filesDir + "/over/list")
	return m, err
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

// replaceStdin puts /dev/null in the place of the console as standard input and output:
// only diagnostics go there.
func replaceStdin() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	defer unix.Close(null)
	for i := range 2 {
		if err := unix.Dup3(null, i, 0); err != nil {
			return fmt.Errorf("replace descriptor %d: %w", i, err)
		}
	}
	return closeOnExec()
}
