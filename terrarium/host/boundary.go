//go:build linux

package host

import (
	"fmt"
	"os"

	"tendril/terrarium"
)

// Boundary implements [terrarium.Terrarium]. Where nothing is done about a field, its row
// says what is so instead.
func (t *open) Boundary() []terrarium.Row {
	spec, l := t.spec, t.limits
	row := func(field, note string) terrarium.Row { return terrarium.FieldRow(spec, field, note) }
	instead := func(field, applied, note string) terrarium.Row {
		r := row(field, note)
		r.Applied, r.Enforced = applied, terrarium.NotKept
		return r
	}
	return []terrarium.Row{
		row("Run", "no isolation: processes of this host, in a PID namespace so that they can be ended"),
		row("Rootfs.Host.Dirs", "everything of the host that this account can read is visible, and what it can write can be written"),
		instead("Rootfs.Image.Path", "none", ""),
		instead("Rootfs.Image.Digest", "none", ""),
		row("Rootfs.Authority", "the certificates in the usual places; a program can bring others"),
		row("Rootfs.Programs", "read-only"),
		row("Workspace.Image", "brought in through the Stoma"),
		row("Workspace.Dir", "holds the workspace, /tmp and the home directory"),
		row("Env", "nothing is inherited"),
		instead("User", terrarium.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}.String(), "the account that runs the Stem, with its groups"),
		instead("Network", "host", "everything that the host reaches"),
		row("Listeners", "on the host's own loopback: every process of the host can connect"),
		instead("WritableRoot", "true", "the host's own file system"),
		t.Confinement.CPURow(spec, l),
		t.Confinement.MemoryRow(spec, l),
		terrarium.LimitRow("Disk", terrarium.Defaulted(spec.Disk, l.Disk), l.Disk, terrarium.Constructed, terrarium.Sampled,
			"what the run adds to its own directories, weighed every so often; what it writes elsewhere is not counted"),
		t.pidsRow(),
		terrarium.LimitRow("Output", spec.Output, spec.Output.Value, terrarium.Constructed, terrarium.ByHost, "counted by the Stem"),
		terrarium.LimitRow("Wall", spec.Wall, spec.Wall.Value, terrarium.Constructed, terrarium.ByHost, "the processes are killed from outside"),
		terrarium.LimitRow("Idle", spec.Idle, spec.Idle.Value, terrarium.Constructed, terrarium.ByHost, "watched by the Stem"),
	}
}

func (t *open) pidsRow() terrarium.Row {
	asked := terrarium.Defaulted(t.spec.Pids, t.limits.Pids)
	if c := t.Confinement; c.Group != nil && c.Applied.Pids > 0 {
		return terrarium.LimitRow("Pids", asked, t.limits.Pids, terrarium.Inspected, terrarium.ByHost,
			fmt.Sprintf("the run is ended at the limit; the cgroup refuses at %d", c.Applied.Pids))
	}
	return terrarium.LimitRow("Pids", asked, t.limits.Pids, terrarium.Constructed, terrarium.Sampled, t.Confinement.Why)
}
