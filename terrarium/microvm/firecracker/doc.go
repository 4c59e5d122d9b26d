// Package firecracker speaks with Firecracker, a program that runs virtual machines: its
// API on a Unix socket, and the way through its vsock into a guest.
//
// It promises that an answer is read within bounds, and that whoever listens at a socket is
// the process that was started: a socket lies where that process could put another in its
// place. It knows the versions that are not fit for use.
//
// The API is described in Firecracker's src/firecracker/swagger/firecracker.yaml, the
// vsock in its docs/vsock.md.
package firecracker
