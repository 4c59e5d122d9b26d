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
// keeps it in. It returns the control group, nil where the daemon makes none: then no row
// says that a limit is kept.
func (b blueprint) readBackOutside(id string, pid int) (*cgroup.Other, error) {
	var group *cgroup.Other
	var err error
	if b.support.groups {
		if group, err = cgroup.Of(pid); err == nil {
			err = b.compareGroup(id, group)
		} else {
			err = fault.New(fault.BrokenBoundary, "reading back the container's control group: %w", err)
		}
	}
	if err == nil {
		err = b.kind.outside(b, pid, group)
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
	if want := host.PidsLimit; want != nil && got.Pids != int(*want) {
		return differs("number of processes, as its control group has it,", *want, got.Pids)
	}
	if want := float64(host.NanoCPUs) / 1e9; want > 0 && math.Abs(got.CPUs-want) > 0.01 {
		return differs("processors, as its control group has them,", want, got.CPUs)
	}
	return nil
}

// compareProcess wants PID 1 of a container, as the host's kernel has it, to hold nothing.
func compareProcess(_ blueprint, pid int, _ *cgroup.Other) error {
	return compareStatus(pid, map[string]string{"CapInh": noCapability, "CapPrm": noCapability, "CapBnd": noCapability, "CapAmb": noCapability, "NoNewPrivs": "1", "Seccomp": "2"}, 0)
}

const noCapability = "0000000000000000"

// compareStatus reads the status that the host's kernel has of a process. Of the
// capabilities that are in effect it may have those that are given.
func compareStatus(pid int, want map[string]string, capabilities uint64) error {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the wall's process %d: %w", pid, err)
	}
	status, err := parseStatus(string(text))
	if err != nil {
		return err
	}
	for key, value := range want {
		if status[key] != value {
			return differs(key+" on the host", value, status[key])
		}
	}
	if held, err := strconv.ParseUint(status["CapEff"], 16, 64); err != nil || held&^capabilities != 0 {
		return differs("CapEff on the host", fmt.Sprintf("%016x at most", capabilities), status["CapEff"])
	}
	return nil
}

// parseStatus reads proc_pid_status(5). The kernel writes each line once: a text in which
// one stands twice is none of its own.
func parseStatus(text string) (map[string]string, error) {
	status := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		if _, twice := status[key]; twice {
			return nil, differs("status", "one line a field", key+" twice")
		}
		status[key] = strings.TrimSpace(value)
	}
	return status, nil
}
