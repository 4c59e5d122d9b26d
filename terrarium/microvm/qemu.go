//go:build linux

package microvm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tendril/terrarium/microvm/guestimage"
	"tendril/terrarium/microvm/jail"
)

// qemu is the emulator's program.
type qemu struct {
	path  string // without symbolic links
	accel string // tcg or kvm
}

// Where the jail shows the guest.
const (
	kernelInJail    = "/guest/kernel"
	initramfsInJail = "/guest/initramfs"
)

// commandLine is the kernel's. Its words after "--" are the Stoma's.
func commandLine(carrier string, further ...string) string {
	words := append([]string{"console=ttyS0", "quiet", "panic=-1"}, further...)
	return strings.Join(append(words, "--", "machine", carrier), " ")
}

// drive is one of the machine's, by a descriptor.
type drive struct {
	name     string
	file     *os.File
	writable bool
}

// args is QEMU's command line. The descriptor of the Stoma's stream is the first that is
// passed, the drives' follow.
func (q qemu) args(memoryMiB int64, cpus int, drives []drive) []string {
	list := []string{
		q.path, "-nodefaults", "-no-user-config", "-nographic", "-no-reboot",
		"-machine", "microvm,acpi=on,pit=on,pic=on,rtc=on,pcie=off,usb=off,auto-kernel-cmdline=off",
		"-accel", q.accelerator(), "-cpu", q.cpu(),
		"-m", fmt.Sprintf("size=%dM", memoryMiB), "-smp", strconv.Itoa(cpus),
		"-kernel", kernelInJail, "-initrd", initramfsInJail, "-append", q.commandLine(),
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=stoma,fd=%d", jail.FirstFD),
		"-device", "virtio-serial-device,max_ports=2", "-device", "virtserialport,chardev=stoma,name=stoma",
		"-object", "rng-builtin,id=rng", "-device", "virtio-rng-device,rng=rng",
	}
	for i, d := range drives {
		mode := "on"
		if d.writable {
			mode = "off"
		}
		list = append(list,
			"-add-fd", fmt.Sprintf("fd=%d,set=%d", jail.FirstFD+1+i, i),
			"-drive", fmt.Sprintf("id=%s,if=none,format=raw,cache=writeback,auto-read-only=off,file.locking=off,readonly=%s,file=/dev/fdset/%d", d.name, mode, i),
			"-device", fmt.Sprintf("virtio-blk-device,drive=%s,serial=%[1]s", d.name),
		)
	}
	return list
}

// translated is how many MiB of translated code an emulator keeps.
const translated = 256

func (q qemu) accelerator() string {
	if q.accel == "kvm" {
		return "kvm"
	}
	return fmt.Sprintf("tcg,thread=multi,tb-size=%d", translated)
}

func (q qemu) cpu() string {
	if q.accel == "kvm" {
		return "host"
	}
	return "max"
}

// commandLine ends the machine with QEMU on a restart (reboot=t, -no-reboot).
func (q qemu) commandLine() string {
	words := []string{"reboot=t"}
	if q.accel != "kvm" {
		words = append(words, fmt.Sprintf("tsc_early_khz=%d", hostKHz()), "tsc=reliable")
	}
	return commandLine(guestimage.VirtioSerial, words...)
}

// order is what the jail needs for it: the program, its libraries and firmware, and the
// guest.
func (q qemu) order(root string, kernel, initramfs string, args []string, uid, fds int) jail.Order {
	o := jail.Order{
		Root: root, Program: q.path, Args: args, UID: uid, FDs: fds, Links: map[string]string{},
		Shown:   []jail.Shown{{Source: kernel, Target: kernelInJail}, {Source: initramfs, Target: initramfsInJail}},
		Devices: []string{"/dev/null", "/dev/urandom"},
	}
	if q.accel == "kvm" {
		o.Devices = append(o.Devices, "/dev/kvm")
	}
	for _, name := range []string{"/lib", "/lib64"} {
		if target, err := os.Readlink(name); err == nil {
			o.Links[name] = target
		} else if isDir(name) {
			o.Shown = append(o.Shown, jail.Shown{Source: name, Target: name})
		}
	}
	dirs := []string{"/usr/lib", "/usr/lib64", "/usr/share/qemu", "/usr/share/seabios"}
	if prefix := filepath.Dir(filepath.Dir(q.path)); prefix != "/usr" {
		dirs = append(dirs, prefix) // one that was built elsewhere has all of its own there
	} else {
		o.Shown = append(o.Shown, jail.Shown{Source: q.path, Target: q.path})
	}
	for _, dir := range dirs {
		if isDir(dir) {
			o.Shown = append(o.Shown, jail.Shown{Source: dir, Target: dir})
		}
	}
	if _, err := os.Stat("/etc/ld.so.cache"); err == nil {
		o.Shown = append(o.Shown, jail.Shown{Source: "/etc/ld.so.cache", Target: "/etc/ld.so.cache"})
	}
	return o
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
