// Package cgroup bounds the processor, memory and process use of a tree of processes
// with Linux control groups, version 1, version 2 or both at once, without a library
// and without a daemon.
//
// [Find] says which controllers this process may use, [Create] makes one group below
// the place where this process is and reads back every bound it set, [Sweep] and
// [Remove] end what a killed process left behind. Where there is no usable group,
// [Sample] measures a tree of processes from /proc instead.
//
// What it promises: no existing group is changed but for a new child in it, and for
// controllers switched on for children in a group that is this process's own or was
// delegated to its user. A group never lies outside of the bounds that a parent of
// ours has where one closer by serves. A bound that reads back differently is an error,
// never a note.
//
// What it does not protect against: memory of the kernel on behalf of others, disk
// and network use. On version 1 there is no memory.high and no whole-group kill on
// running out of memory; a group without the pids or freezer controller is killed by a
// loop that a fast fork bomb can outrun, which ends with the context. Sampling sees what
// was used, after it was used.
//
// Reference: the kernel's Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
package cgroup
