// Package guestimage makes what a micro-VM boots: a kernel as an uncompressed ELF file
// and an initramfs in which the Stoma is /init, beside the few modules that the guest
// needs.
//
// It takes a distribution's kernel package, or a kernel and its modules that the user
// names, and needs no root, no mount and no tool of the host. The same input gives the
// same bytes. What it wrote is described in a manifest with digests, and [Open] gives
// out nothing that differs from it.
//
// What it promises: a package or kernel is read as untrusted data, within bounds, and
// nothing of it is executed on the host. What it does not protect against: a kernel
// that is hostile itself. Whoever names one without a digest trusts the file.
package guestimage
