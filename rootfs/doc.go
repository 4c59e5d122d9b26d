// Package rootfs makes the read-only root file system of a Terrarium out of the
// host's own toolchain.
//
// [HostView] says what is shown: /usr and the few parts of /etc that its programs
// need, plus the directories that the Botanist lists. [View.Build] writes the
// skeleton (mount points, links, generated files) into an empty directory; the
// wall binds [View.Mounts] over it, read-only, and hides [View.Masks].
// [View.Missing] explains a command that is not found inside. [ImagePlaces] says what a
// root file system needs that is made of something else than this host.
//
// What it promises: nothing of /home, /root, /var, /run, /srv, /mnt, /media, /opt
// or of the rest of /etc is in a view unless it was listed; a listed directory that
// holds a private key, a credential file or a socket is refused by the path of
// what was found; files under /etc are copied or generated, never a host's
// passwd, hosts, resolv.conf or any tool's configuration.
//
// What it does not protect against:
//   - /usr is not scanned: it is shown as it is, less the masks. A file in it that
//     is not world-readable stays closed because the Sprout is neither its owner
//     nor in its group, and a socket or FIFO stays closed because the wall refuses
//     to open those of the host (gVisor: host-uds and host-fifo none). A credential
//     that somebody made world-readable in an unusual place of /usr is shown.
//   - The scan of a listed directory catches the mistakes of its owner, not malice:
//     what is put there after the scan, or hidden in an archive, is shown.
//   - Setuid programs are shown; the wall must ignore the bit.
package rootfs
