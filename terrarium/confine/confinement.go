//go:build linux

package confine

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"tendril/cgroup"
	"tendril/fault"
)

// Confinement is what the host keeps the processes of one wall in.
type Confinement struct {
	Group   *cgroup.Group // nil: no control group could be made
	Why     string        // why there is none
	Applied cgroup.Limits // as read back from the group
	cpus    float64
}

// New makes the run's control group, if this host lets us.
func New(run string, bounds cgroup.Limits) (Confinement, error) {
	group, err := cgroup.Create(groupName(run), bounds)
	if errors.Is(err, cgroup.ErrUnavailable) {
		return Confinement{Why: err.Error(), cpus: bounds.CPUs}, nil
	}
	if err != nil {
		return Confinement{}, fault.New(fault.Unavailable, "making the run's cgroup: %w", err)
	}
	return Confinement{Group: group, Applied: group.Applied(), cpus: bounds.CPUs}, nil
}

func groupName(run string) string { return "tendril-" + run }

// Take puts a process, and so everything that it starts from now on, under the limits.
func (c Confinement) Take(pid int) error {
	if c.Group != nil {
		if err := c.Group.Add(pid); err != nil {
			return fault.New(fault.Unavailable, "putting the sandbox into its cgroup: %w", err)
		}
	}
	if c.cpus > 0 {
		if err := pin(pid, c.cpus); err != nil {
			return fault.New(fault.Unavailable, "giving the sandbox %g processors: %w", c.cpus, err)
		}
	}
	none := unix.Rlimit{}
	if err := unix.Prlimit(pid, unix.RLIMIT_CORE, &none, nil); err != nil {
		return fmt.Errorf("turning off core dumps of the sandbox: %w", err)
	}
	return nil
}

// pin lets the process and its children run on as many processors as cpus rounds
// up to. It needs no privilege, and makes a whole number of processors exact
// where there is no cgroup.
func pin(pid int, cpus float64) error {
	var have, want unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &have); err != nil {
		return err
	}
	for cpu := 0; want.Count() < have.Count() && float64(want.Count()) < cpus; cpu++ {
		if have.IsSet(cpu) {
			want.Set(cpu)
		}
	}
	return unix.SchedSetaffinity(pid, &want)
}

// Release kills what is in the group and removes it.
func (c Confinement) Release(ctx context.Context) error {
	if c.Group == nil {
		return nil
	}
	return errors.Join(c.Group.Kill(ctx), c.Group.Delete(ctx))
}
