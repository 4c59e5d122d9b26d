//go:build linux

package microvm

import (
	"fmt"

	"tendril/terrarium"
)

// Boundary implements [terrarium.Terrarium]. What was read back from the host's kernel, or
// by the guest's before the first exec, is inspected; the self-test probes the user; the
// rest follows from the machine that was put together.
func (t *open) Boundary() []terrarium.Row {
	spec, l := t.spec, t.blueprint.limits
	process := fmt.Sprintf("%s; its process: host uid %d, capabilities %#x, seccomp, namespaces of its own", t.how, t.state.UID, t.state.Capabilities)
	user := terrarium.FieldRow(spec, "User", "no account of the host").ReadBack(terrarium.Probed)
	user.Applied, user.Enforced = l.User.String(), terrarium.ByGuest
	inspected := func(field, note string) terrarium.Row {
		return terrarium.FieldRow(spec, field, note).ReadBack(terrarium.Inspected)
	}
	return []terrarium.Row{
		inspected("Run", process),
		terrarium.FieldRow(spec, "Rootfs.Host.Dirs", "a machine shares no directory with the host"),
		inspected("Rootfs.Image.Path", "read-only; a drive that the machine's process has open for reading alone"),
		terrarium.FieldRow(spec, "Rootfs.Image.Digest", "the manifest that the image was made from"),
		terrarium.FieldRow(spec, "Rootfs.Authority", "the certificates that programs inside trust"),
		terrarium.FieldRow(spec, "Rootfs.Programs", "read-only; copies on a drive of the run's own"),
		terrarium.FieldRow(spec, "Listeners", "loopback ports inside, answered by the Stem"),
		inspected("Workspace.Image", "read-only; changes go to the scratch drive"),
		terrarium.FieldRow(spec, "Workspace.Dir", "holds the scratch drive and the drive of the run's own files"),
		inspected("Network", "the machine has no network device, and its process a network namespace of its own"),
		terrarium.FieldRow(spec, "Env", "nothing is inherited"),
		terrarium.FieldRow(spec, "WritableRoot", ""),
		user,
		t.Confinement.CPURow(spec, l),
		terrarium.LimitRow("Memory", terrarium.Defaulted(spec.Memory, l.Memory), l.Memory, terrarium.Inspected, terrarium.ByHost,
			fmt.Sprintf("the machine has %d MiB, of which the guest's kernel gives %d bytes away", t.blueprint.memoryMiB(), t.inside.Memory)),
		terrarium.LimitRow("Disk", terrarium.Defaulted(spec.Disk, l.Disk), l.Disk, terrarium.Inspected, terrarium.ByHost,
			fmt.Sprintf("size of the scratch drive; its file system has %d bytes", t.inside.ScratchSize)),
		terrarium.LimitRow("Pids", terrarium.Defaulted(spec.Pids, l.Pids), t.inside.ProcessMax, terrarium.Inspected, terrarium.ByGuest, "the guest's pids controller"),
		terrarium.LimitRow("Output", spec.Output, spec.Output.Value, terrarium.Constructed, terrarium.ByHost, "counted by the Stem"),
		terrarium.LimitRow("Wall", spec.Wall, spec.Wall.Value, terrarium.Constructed, terrarium.ByHost, "the machine is killed from outside"),
		terrarium.LimitRow("Idle", spec.Idle, spec.Idle.Value, terrarium.Constructed, terrarium.ByHost, "watched by the Stem"),
	}
}
