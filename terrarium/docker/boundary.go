//go:build linux

package docker

import (
	"fmt"

	"tendril/terrarium"
)

// boundary says, field by field, what was applied. What the daemon and the kernel said on
// being asked is inspected; what was looked at from inside is probed.
func (t *open) boundary() []terrarium.Row {
	spec, k := t.print.spec, t.print.kind
	row := func(field, note string, how terrarium.How) terrarium.Row {
		return terrarium.FieldRow(spec, field, note).ReadBack(how)
	}
	user := row("User", t.print.accounts(), terrarium.Probed)
	user.Applied = t.print.limits.User.String()
	root := row("WritableRoot", "", terrarium.Probed)
	if spec.WritableRoot {
		root.Note = fmt.Sprintf("the layer is bounded to %d bytes by the daemon's storage driver %s", t.print.limits.Disk, t.print.support.driver)
	}
	return append([]terrarium.Row{
		row("Run", fmt.Sprintf("container %.12s of the runtime %s, without any capability", t.id, k.runtime), terrarium.Inspected),
		row("Rootfs.Host.Dirs", "read-only; every mount is compared with the view, from the daemon's side and from inside", terrarium.Probed),
		row("Rootfs.Image.Path", "read-only; given to the daemon once, under its digest", terrarium.Inspected),
		row("Rootfs.Image.Digest", "the manifest that the image was made from", terrarium.Inspected),
		row("Rootfs.Authority", "the certificates that programs inside trust", terrarium.Probed),
		row("Rootfs.Programs", "read-only", terrarium.Probed),
		row("Listeners", "loopback ports inside, answered by the Stem", terrarium.Constructed),
		row("Workspace.Image", "its tree is brought in through the Stoma, into memory", terrarium.Constructed),
		row("Workspace.Dir", "holds the files that are laid over the root, read-only", terrarium.Probed),
		row("Network", "a network namespace of its own with a loopback", terrarium.Probed),
		row("Env", "nothing is inherited", terrarium.Constructed),
		root,
		user,
	}, t.limitRows()...)
}

// accounts says what the Sprout's account is outside.
func (b blueprint) accounts() string {
	switch {
	case b.kind.apart:
		return "of the container's own kernel, as is the Stoma's, which is another"
	case b.support.userns:
		return "the account of the Stoma too; another one on the host"
	}
	return "the account of the Stoma too; the same number on the host, where it is nobody's"
}

func (t *open) limitRows() []terrarium.Row {
	spec, l := t.print.spec, t.print.limits
	disk := fmt.Sprintf("%s, /tmp and /home/sprout are file systems of this size each, in memory and within its limit; that they are not larger together is looked at five times a second", workspace)
	return []terrarium.Row{
		t.cpuRow(),
		t.memoryRow(),
		terrarium.LimitRow("Disk", terrarium.Defaulted(spec.Disk, l.Disk), l.Disk, terrarium.Probed, terrarium.Sampled, disk),
		t.pidsRow(),
		terrarium.LimitRow("Output", spec.Output, spec.Output.Value, terrarium.Constructed, terrarium.ByHost, "counted by the Stem"),
		terrarium.LimitRow("Wall", spec.Wall, spec.Wall.Value, terrarium.Constructed, terrarium.ByHost, "the container is killed from outside"),
		terrarium.LimitRow("Idle", spec.Idle, spec.Idle.Value, terrarium.Constructed, terrarium.ByHost, "watched by the Stem"),
	}
}

func (t *open) cpuRow() terrarium.Row {
	spec, l := t.print.spec, t.print.limits
	switch why := t.print.support.unkept(terrarium.LimitCPU); {
	case l.CPUs == 0:
		return terrarium.LimitRow("CPUs", spec.CPUs, 0, terrarium.Constructed, terrarium.NotKept, "no limit was asked for")
	case why != "":
		return terrarium.LimitRow("CPUs", spec.CPUs, l.CPUs, terrarium.Constructed, terrarium.NotKept, why)
	}
	return terrarium.LimitRow("CPUs", spec.CPUs, l.CPUs, terrarium.Inspected, terrarium.ByHost, "cgroup quota")
}

func (t *open) memoryRow() terrarium.Row {
	l := t.print.limits
	asked := terrarium.Defaulted(t.print.spec.Memory, l.Memory)
	switch why := t.print.support.unkept(terrarium.LimitMemory); {
	case why != "":
		return terrarium.LimitRow("Memory", asked, l.Memory, terrarium.Constructed, terrarium.NotKept, why)
	case t.print.kind.own:
		return terrarium.LimitRow("Memory", asked, l.Memory, terrarium.Inspected, terrarium.ByHost,
			fmt.Sprintf("the run is ended at the limit; the cgroup kills at %d bytes", t.print.host.Memory))
	}
	return terrarium.LimitRow("Memory", asked, l.Memory, terrarium.Inspected, terrarium.ByHost, "the kernel ends a process of the Sprout at the limit, and the run ends with that")
}

func (t *open) pidsRow() terrarium.Row {
	l := t.print.limits
	asked := terrarium.Defaulted(t.print.spec.Pids, l.Pids)
	if t.print.kind.own {
		return terrarium.LimitRow("Pids", asked, l.Pids, terrarium.Probed, terrarium.ByHost, "kept by gVisor's kernel")
	}
	if why := t.print.support.unkept(terrarium.LimitPids); why != "" {
		return terrarium.LimitRow("Pids", asked, l.Pids, terrarium.Constructed, terrarium.NotKept, why)
	}
	return terrarium.LimitRow("Pids", asked, l.Pids, terrarium.Inspected, terrarium.ByHost, "the container's control group; the Stoma's own threads count too")
}
