//go:build linux

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The carriers of a machine.
const (
	carrierSerial = "virtio-serial" // a named port
	carrierVsock  = "vsock"
)

// serialPort is the name of the port that carries the Stoma's bytes, and vsockPort the port
// on which a machine waits for the host.
const (
	serialPort = "stoma"
	vsockPort  = 5000
)

// deviceTime is how long a device may take to appear after its driver is there.
const deviceTime = 30 * time.Second

// loadModules loads what the list names, in its order, but for what only another carrier
// needs.
func loadModules(carrier string) error {
	list, err := os.ReadFile(modulesDir + "/list")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list)) {
		name, only, _ := strings.Cut(strings.TrimSpace(line), " ")
		if only != "" && only != carrier {
			continue
		}
		if err := loadModule(modulesDir + "/" + name + ".ko"); err != nil {
			return fmt.Errorf("load the module %s: %w", name, err)
		}
	}
	// Nothing else is loaded, by nobody: modules_disabled stays set until the machine ends.
	err = os.WriteFile("/proc/sys/kernel/modules_disabled", []byte("1"), 0)
	return errors.Join(err, os.RemoveAll(modulesDir))
}

func loadModule(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.FinitModule(fd, "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// until asks again, at growing intervals, until the answer is yes. Devices appear while
// the kernel does something else.
func until(what string, yes func() bool) error {
	start := time.Now()
	for wait := time.Millisecond; !yes(); wait = min(2*wait, 50*time.Millisecond) {
		if time.Since(start) > deviceTime {
			return fmt.Errorf("%s did not appear within %s", what, deviceTime)
		}
		time.Sleep(wait)
	}
	return nil
}

func await(path string) error {
	return until(path, func() bool {
		_, err := os.Lstat(path)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// openCarrier opens the stream to the host. Reading from it does not block a thread, so
// that closing it ends a read that is going on.
func openCarrier(kind string) (int, error) {
	switch kind {
	case carrierSerial:
		return openSerialPort()
	case carrierVsock:
		return acceptHost()
	default:
		return -1, fmt.Errorf("unknown carrier %q", kind)
	}
}

func openSerialPort() (int, error) {
	path := ""
	err := until("the port "+serialPort, func() bool {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return false
		}
		for _, name := range names {
			if text, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(text)) == serialPort {
				path = "/dev/" + filepath.Base(filepath.Dir(name))
				return true
			}
		}
		return false
	})
	if err != nil {
		return -1, err
	}
	if err := await(path); err != nil {
		return -1, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open the port %s: %w", serialPort, err)
	}
	return fd, nil
}

// acceptHost waits for the host and takes one connection, from it alone.
func acceptHost() (int, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a vsock: %w", err)
	}
	defer unix.Close(fd)
	err = errors.Join(unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: vsockPort}), unix.Listen(fd, 1))
	if err != nil {
		return -1, fmt.Errorf("listen for the host: %w", err)
	}
	for {
		conn, peer, err := unix.Accept4(fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return -1, fmt.Errorf("wait for the host: %w", err)
		}
		if vm, ok := peer.(*unix.SockaddrVM); ok && vm.CID == unix.VMADDR_CID_HOST {
			return conn, nil
		}
		unix.Close(conn)
	}
}

// loopbackUp makes 127.0.0.1 usable. There is no other interface.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring the loopback up: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bring the loopback up: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring the loopback up: %w", err)
	}
	return nil
}
