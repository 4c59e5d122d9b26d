//go:build linux

package confine

import (
	"fmt"

	"tendril/terrarium"
)

// KeepsCPUs reports whether the group keeps the limit of processors. Otherwise somebody has
// to look.
func (c Confinement) KeepsCPUs() bool { return c.Group != nil && c.Applied.CPUs > 0 }

// CPURow says how the processors are bounded.
func (c Confinement) CPURow(spec terrarium.Spec, l Limits) terrarium.Row {
	switch {
	case l.CPUs == 0:
		return terrarium.LimitRow("CPUs", spec.CPUs, 0, terrarium.Constructed, terrarium.NotKept, "no limit was asked for")
	case c.KeepsCPUs():
		return terrarium.LimitRow("CPUs", spec.CPUs, c.Applied.CPUs, terrarium.Inspected, terrarium.ByHost, "cgroup quota")
	default:
		return terrarium.LimitRow("CPUs", spec.CPUs, l.CPUs, terrarium.Constructed, terrarium.Sampled, "pinned to whole processors, the fraction is sampled: "+c.Why)
	}
}

// MemoryRow says how the memory is bounded.
func (c Confinement) MemoryRow(spec terrarium.Spec, l Limits) terrarium.Row {
	asked := terrarium.Defaulted(spec.Memory, l.Memory)
	if c.Group != nil && c.Applied.MemoryMax > 0 {
		return terrarium.LimitRow("Memory", asked, l.Memory, terrarium.Inspected, terrarium.ByHost,
			fmt.Sprintf("the run is ended at the limit; the cgroup kills at %d bytes", c.Applied.MemoryMax))
	}
	return terrarium.LimitRow("Memory", asked, l.Memory, terrarium.Constructed, terrarium.Sampled, c.Why)
}
