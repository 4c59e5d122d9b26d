//go:build linux

package runsc

import (
	"fmt"
	"os"

	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// boundary says, field by field, what was applied. What was read back from a kernel,
// the host's or the sandbox's, is inspected; the self-test probes the user; the rest
// follows from the bundle that the sentry read.
func boundary(spec terrarium.Spec, l confine.Limits, c confine.Confinement, inside stoma.Stat, sentry, gofer confine.State) []terrarium.Row {
	processes := fmt.Sprintf("sentry: host uid %d, capabilities %#x, seccomp; gofer: host uid %d, capabilities %#x, seccomp", sentry.UID, sentry.Capabilities, gofer.UID, gofer.Capabilities)
	user := terrarium.FieldRow(spec, "User", "no account of the host").ReadBack(terrarium.Probed)
	user.Applied = l.User.String()
	return append([]terrarium.Row{
		terrarium.FieldRow(spec, "Run", processes),
		terrarium.FieldRow(spec, "Rootfs.Host.Dirs", "read-only; the gofer's mounts are compared with the view").ReadBack(terrarium.Inspected),
		terrarium.FieldRow(spec, "Rootfs.Image.Path", "read-only; the sentry mounts it"),
		terrarium.FieldRow(spec, "Rootfs.Image.Digest", "the manifest that the image was made from"),
		terrarium.FieldRow(spec, "Rootfs.Authority", "the certificates that programs inside trust"),
		terrarium.FieldRow(spec, "Rootfs.Programs", "read-only; the gofer's mounts are compared with the view").ReadBack(terrarium.Inspected),
		terrarium.FieldRow(spec, "Listeners", "loopback ports inside, answered by the Stem"),
		terrarium.FieldRow(spec, "Workspace.Image", "read-only; changes go to the scratch file system"),
		terrarium.FieldRow(spec, "Workspace.Dir", "holds only the file behind the scratch file system"),
		terrarium.FieldRow(spec, "Network", "a network namespace of its own for sentry and gofer, and the sentry's --network=none").ReadBack(terrarium.Inspected),
		terrarium.FieldRow(spec, "Env", "nothing is inherited"),
		terrarium.FieldRow(spec, "WritableRoot", ""),
		user,
	}, limitRows(spec, l, c, inside)...)
}

func limitRows(spec terrarium.Spec, l confine.Limits, c confine.Confinement, inside stoma.Stat) []terrarium.Row {
	return []terrarium.Row{
		c.CPURow(spec, l),
		c.MemoryRow(spec, l),
		terrarium.LimitRow("Disk", terrarium.Defaulted(spec.Disk, l.Disk), scratchSize(l, inside), terrarium.Inspected, terrarium.ByHost, "size of the scratch file system, kept by the sentry"),
		terrarium.LimitRow("Pids", terrarium.Defaulted(spec.Pids, l.Pids), inside.ProcessMax, terrarium.Inspected, terrarium.ByHost, "the sentry's pids controller"),
		terrarium.LimitRow("Output", spec.Output, spec.Output.Value, terrarium.Constructed, terrarium.ByHost, "counted by the Stem"),
		terrarium.LimitRow("Wall", spec.Wall, spec.Wall.Value, terrarium.Constructed, terrarium.ByHost, "the sandbox is killed from outside"),
		terrarium.LimitRow("Idle", spec.Idle, spec.Idle.Value, terrarium.Constructed, terrarium.ByHost, "watched by the Stem"),
	}
}

// scratchSize is the limit of the disk when the scratch file system has that size,
// give or take a page.
func scratchSize(l confine.Limits, inside stoma.Stat) int64 {
	page := int64(os.Getpagesize())
	if inside.ScratchSize > l.Disk-page && inside.ScratchSize < l.Disk+page {
		return l.Disk
	}
	return inside.ScratchSize
}
