// Package guest is the Stoma's half inside a Terrarium: its PID 1. It mounts
// the workspace, drops its privileges, starts commands as the Sprout, ends whole
// trees of processes, reaps, and hands over what changed.
//
// # What it needs from whoever starts it
//
// It is started as
//
//	stoma init --user UID:GID [--overlay LOWER:SCRATCH:TARGET] [--writable DIR]...
//	           [--pids N] [--own-dev] [--own-root] [--listen NAME=PORT]...
//
// as PID 1 of a PID namespace and uid 0 in it, with the carrier on the
// descriptors 0 and 1 and its diagnostics on 2. To mount and to give up its
// privileges it needs the capabilities SYS_ADMIN, SETPCAP, SETUID, SETGID and
// KILL, and for the layers of the overlay, whose accesses the kernel makes with
// the mounter's privileges for good, CHOWN, DAC_OVERRIDE and FOWNER; and
// SYS_CHROOT for --own-root. With --pids or without, a control group
// hierarchy of version 2 is mounted in SCRATCH. Under gVisor that needs its
// option in-sandbox-cgroup=v2: its version 1 counts each group for itself alone,
// and further hierarchies, which a user namespace may mount, confuse the count.
//
// Mounts: /proc; a /dev with null, and for terminals ptmx and pts; LOWER, read
// only, all of it owned by UID:GID; SCRATCH, an empty file system of limited size
// owned by uid 0, which is closed to everybody else; TARGET, an empty directory.
// --writable puts a directory of SCRATCH at DIR, which exists, so that /tmp and a
// home count against SCRATCH's size.
//
// # Where nothing can be mounted
//
// As
//
//	stoma init --user UID:GID --plain TARGET --disk BYTES [--writable DIR]...
//	           [--pids N] [--own-dev] [--listen NAME=PORT]...
//
// it needs no capability: TARGET and each DIR are file systems of limited size that
// belong to UID:GID, whose use is added up and compared with BYTES, and N is the
// limit of processes that the container has, which this program reports and does not
// keep. The base comes through the Stoma, once and before anything else; what
// differs from it by inode, size, mode or time of change is collected. Started as
// uid 0 it becomes the Sprout for each command, as above, with SETUID, SETGID and
// KILL. Started as UID:GID it has to hold nothing and have no way to more; then it
// has the Sprout's account, which can send it any signal, to no effect, and lower its
// limits (prlimit(2)), which ends the run. A wall that can should refuse that. Without
// control groups a process that left its session and lost its parent runs on while
// another command does.
//
// # As a virtual machine
//
// As
//
//	stoma machine virtio-serial|vsock
//
// it is the first process of a machine (/init of an initramfs with /modules/list and the
// modules that it names). It loads them, and finds four drives in this order: the root, an
// EROFS image; the base, another; an image with "args", the arguments of `stoma init`, and
// "over/list", paths over which the files "over/0", "over/1", … are laid; and scratch, an
// ext4 file system. Then it runs `stoma init --machine …` as the first process of a PID
// namespace, and restarts the machine when that ends. The carrier is the virtio-serial port
// named "stoma", or the first connection of the host to its vsock port 5000. --machine hides
// what /proc shows of hardware, puts a filter over the Sprout's system calls, and lets Stat
// tell what the kernel counts; with --recover scratch holds the work of a machine that ended,
// and nothing can be started.
//
// # What it promises
//
// It runs as uid 0 inside with no capability but SETUID, SETGID and KILL once it
// starts the first command, cannot be traced, and shares no descriptor with the
// Sprout but that command's own pipes. A command ends with everything that it
// started, double-forked and in sessions of its own included. What it reports as
// changed is the upper layer of the workspace's overlay, or what differs from the
// base that was brought in.
//
// # What it does not protect against
//
// It is inside: whoever breaks the kernel that it runs on owns it. The host
// takes all that it says for a claim of the Sprout, and enforces from outside
// what must hold.
package guest
