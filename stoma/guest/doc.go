// Package guest is the Stoma's half inside a Terrarium: its PID 1. It mounts
// the workspace, drops its privileges, starts commands as the Sprout, ends whole
// trees of processes, reaps, and hands over what changed.
//
// # What it promises
//
// It runs as uid 0 inside with no capability but SETUID, SETGID and KILL once it
// starts the first command, cannot be traced, and shares no descriptor with the
// Sprout but that command's own pipes. A command ends with everything that it
// started, double-forked and in sessions of its own included. What it reports as
// changed is the upper layer of the workspace's overlay.
//
// # What it does not protect against
//
// It is inside: whoever breaks the kernel that it runs on owns it. The host
// takes all that it says for a claim of the Sprout, and enforces from outside
// what must hold.
package guest
