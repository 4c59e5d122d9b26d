// Package microvm is the walls that are virtual machines: one guest, and two programs that
// emulate the machine it boots on, QEMU and Firecracker.
//
// The guest is a distribution's kernel and an initramfs whose /init is the Stoma (package
// guestimage). Its drives are the root file system and the base of the workspace, both
// read-only EROFS images, a small image of the run's own files, and a scratch drive of the
// size of the disk limit. The Stoma's stream is a virtio-serial port or a vsock, and there
// is nothing else: no network device, no shared directory, no clock of the host's to set.
//
// What they promise: the Sprout's system calls reach a kernel of its own; what emulates the
// machine is a process with an account, a view of the host, namespaces and a filter of
// system calls of its own, and no capability; no file of the host is writable but the
// scratch drive; a drive that a guest wrote is never mounted or parsed on the host. All of
// that is read back before the first exec. Processes and disk are bounded by the guest's
// kernel and the size of the drive; memory and processors by the machine's size and the
// host.
//
// What they do not protect against: a defect in the emulator together with one in the
// host's kernel; what hardware shares. Without KVM an emulated machine is several times
// slower than the host.
package microvm
