//go:build linux

package runsc

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tendril/stoma"
	"tendril/terrarium"
)

// boundary says, field by field, what was applied. What was read back from a kernel,
// the host's or the sandbox's, is inspected; the self-test probes the user; the rest
// follows from the bundle that the sentry read.
func boundary(spec terrarium.Spec, l limits, c confinement, inside stoma.Stat, sentry, gofer processState) []terrarium.Row {
	rows := []terrarium.Row{
		{Dimension: terrarium.DimensionProcess, Field: "Run", Asked: spec.Run, Applied: spec.Run, How: terrarium.Constructed, Enforced: terrarium.ByHost,
			Note: fmt.Sprintf("sentry: host uid %d, capabilities %#x, seccomp; gofer: host uid %d, capabilities %#x, seccomp", sentry.UID, sentry.Capabilities, gofer.UID, gofer.Capabilities)},
		inspected(same(terrarium.DimensionFilesystem, "Rootfs.Host.Dirs", "host view"+suffix(spec.Rootfs.Host.Dirs), "read-only; the gofer's mounts are compared with the view")),
		same(terrarium.DimensionFilesystem, "Rootfs.Host.Authority", authority(spec.Rootfs.Host.Authority), "the certificates that programs inside trust"),
		inspected(same(terrarium.DimensionFilesystem, "Rootfs.Host.Programs", programs(spec.Rootfs.Host.Programs), "read-only; the gofer's mounts are compared with the view")),
		same(terrarium.DimensionNetwork, "Listeners", spec.DescribeListeners(), "loopback ports inside, answered by the Stem"),
		same(terrarium.DimensionFilesystem, "Workspace.Image", filepath.Base(spec.Workspace.Image), "read-only; changes go to the scratch file system"),
		same(terrarium.DimensionFilesystem, "Workspace.Dir", filepath.Base(spec.Workspace.Dir), "holds only the file behind the scratch file system"),
		{Dimension: terrarium.DimensionNetwork, Field: "Network", Asked: spec.Network.String(), Applied: terrarium.NetworkNone.String(), How: terrarium.Inspected, Enforced: terrarium.ByHost,
			Note: "a network namespace of its own for sentry and gofer, and the sentry's --network=none"},
		same(terrarium.DimensionProcess, "Env", strings.Join(names(spec.Env), " "), "nothing is inherited"),
		same(terrarium.DimensionFilesystem, "WritableRoot", fmt.Sprint(spec.WritableRoot), ""),
		{Dimension: terrarium.DimensionProcess, Field: "User", Asked: askedUser(spec, l), Applied: describeUser(l.user), How: terrarium.Probed, Enforced: terrarium.ByHost, Note: "no account of the host"},
	}
	return append(rows, limitRows(spec, l, c, inside)...)
}

func programs(list []terrarium.Program) string {
	var targets []string
	for _, p := range list {
		targets = append(targets, p.Target)
	}
	return strings.Join(targets, " ")
}

// authority names the certificate that the view was given.
func authority(certificate []byte) string {
	if certificate == nil {
		return "the host's"
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(certificate))
}

func limitRows(spec terrarium.Spec, l limits, c confinement, inside stoma.Stat) []terrarium.Row {
	return []terrarium.Row{
		cpuRow(spec, l, c),
		memoryRow(spec, l, c),
		terrarium.LimitRow("Disk", withDefault(spec.Disk, l.disk), scratchSize(l, inside), terrarium.Inspected, terrarium.ByHost, "size of the scratch file system, kept by the sentry"),
		terrarium.LimitRow("Pids", withDefault(spec.Pids, l.pids), inside.ProcessMax, terrarium.Inspected, terrarium.ByHost, "the sentry's pids controller"),
		terrarium.LimitRow("Output", spec.Output, spec.Output.Value, terrarium.Constructed, terrarium.ByHost, "counted by the Stem"),
		terrarium.LimitRow("Wall", spec.Wall, spec.Wall.Value, terrarium.Constructed, terrarium.ByHost, "the sandbox is killed from outside"),
		terrarium.LimitRow("Idle", spec.Idle, spec.Idle.Value, terrarium.Constructed, terrarium.ByHost, "watched by the Stem"),
	}
}

func cpuRow(spec terrarium.Spec, l limits, c confinement) terrarium.Row {
	switch {
	case l.cpus == 0:
		return terrarium.LimitRow("CPUs", spec.CPUs, 0, terrarium.Constructed, terrarium.NotKept, "no limit was asked for")
	case c.group != nil && c.applied.CPUs > 0:
		return terrarium.LimitRow("CPUs", spec.CPUs, c.applied.CPUs, terrarium.Inspected, terrarium.ByHost, "cgroup quota")
	default:
		return terrarium.LimitRow("CPUs", spec.CPUs, l.cpus, terrarium.Constructed, terrarium.Sampled, "pinned to whole processors, the fraction is sampled: "+c.why)
	}
}

func memoryRow(spec terrarium.Spec, l limits, c confinement) terrarium.Row {
	asked := withDefault(spec.Memory, l.memory)
	if c.group != nil && c.applied.MemoryMax > 0 {
		return terrarium.LimitRow("Memory", asked, l.memory, terrarium.Inspected, terrarium.ByHost,
			fmt.Sprintf("the run is ended at the limit; the cgroup kills at %d bytes", c.applied.MemoryMax))
	}
	return terrarium.LimitRow("Memory", asked, l.memory, terrarium.Constructed, terrarium.Sampled, c.why)
}

// scratchSize is the limit of the disk when the scratch file system has that size,
// give or take a page.
func scratchSize(l limits, inside stoma.Stat) int64 {
	page := int64(os.Getpagesize())
	if inside.ScratchSize > l.disk-page && inside.ScratchSize < l.disk+page {
		return l.disk
	}
	return inside.ScratchSize
}

// withDefault is the limit as asked, with the default where nobody asked.
func withDefault[T int | int64](asked terrarium.Limit[T], applied T) terrarium.Limit[T] {
	if asked.Value == 0 {
		asked.Value = applied
	}
	return asked
}

func askedUser(spec terrarium.Spec, l limits) string {
	if spec.User == (terrarium.User{}) {
		return describeUser(l.user)
	}
	return describeUser(spec.User)
}

func same(dimension, field, value, note string) terrarium.Row {
	return terrarium.Row{Dimension: dimension, Field: field, Asked: value, Applied: value, How: terrarium.Constructed, Enforced: terrarium.ByHost, Note: note}
}

func inspected(row terrarium.Row) terrarium.Row {
	row.How = terrarium.Inspected
	return row
}

func suffix(dirs []string) string {
	if len(dirs) == 0 {
		return ""
	}
	return " with " + strings.Join(dirs, " ")
}

// names drops the values: an environment may hold what a record should not.
func names(env []string) []string {
	list := make([]string, len(env))
	for i, variable := range env {
		list[i], _, _ = strings.Cut(variable, "=")
	}
	return list
}
