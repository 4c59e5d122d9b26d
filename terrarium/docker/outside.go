//go:build linux

package docker

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"tendril/cgroup"
	"tendril/fault"
)

// readBackOutside looks at the container's first process from the host: what the kernel
// keeps it in. It returns the control group, nil where it cannot be seen from here.
func (b blueprint) readBackOutside(id string, pid int) (*cgroup.Other, error) {
	group, err := cgroup.Of(pid)
	switch {
	case err == nil:
		err = b.compareGroup(id, group)
	case b.support.cgroup == "" || b.support.rootless:
		group, err = nil, nil // there may be none, and every row says what is kept
	default:
		err = fault.New(fault.BrokenBoundary, "reading back the container's control group: %w", err)
	}
	if err == nil && !b.kind.own {
		err = compareProcess(pid)
	}
	return group, err
}

// compareGroup wants the group of this container, with the bounds that were asked for.
func (b blueprint) compareGroup(id string, group *cgroup.Other) error {
	if !strings.Contains(group.Name(), id) {
		return differs("control group", "its own", group.Name())
	}
	got, err := group.Limits()
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the container's control group: %w", err)
	}
	host := b.host.Resources
	if want := host.Memory; want > 0 && (got.MemoryMax > want || got.MemoryMax <= want-pageSize) {
		return differs("memory with swap, as its control group has it,", want, got.MemoryMax)
	}
	if want := int(*host.PidsLimit); want > 0 && got.Pids != want {
		return differs("number of processes, as its control group has it,", want, got.Pids)
	}
	if want := float64(host.NanoCPUs) / 1e9; want > 0 && math.Abs(got.CPUs-want) > 0.01 {
		return differs("processors, as its control group has them,", want, got.CPUs)
	}
	return nil
}

// compareProcess reads the status that the host's kernel has of PID 1 inside.
func compareProcess(pid int) error {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the container's first process: %w", err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if _, twice := status[key]; twice {
			return differs(fmt.Sprintf("status of process %d", pid), "one line a field", key)
		}
		status[key] = strings.TrimSpace(value)
	}
	const none = "0000000000000000"
	for key, want := range map[string]string{"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2"} {
		if status[key] != want {
			return differs(key+" of its first process", want, status[key])
		}
	}
	return nil
}
