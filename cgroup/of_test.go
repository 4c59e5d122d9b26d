//go:build linux

package cgroup

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"
)

const v1Mounts = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
	"31 23 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n" +
	"32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"

// TestOf reads groups of containers that somebody else made, as both versions show them.
func TestOf(t *testing.T) {
	const memory, pids, cpu = "/sys/fs/cgroup/memory/docker/c0ffee/", "/sys/fs/cgroup/pids/docker/c0ffee/", "/sys/fs/cgroup/cpu,cpuacct/docker/c0ffee/"
	const unified = "/sys/fs/cgroup/system.slice/docker-c0ffee.scope/"
	for name, c := range map[string]struct {
		mounts, self, name string
		files              map[string]string
		limits             Limits
	}{
		"version 1": {v1Mounts, "7:memory:/docker/c0ffee\n6:pids:/docker/c0ffee\n5:cpu,cpuacct:/docker/c0ffee\n0::/\n", "c0ffee", map[string]string{
			memory + "memory.limit_in_bytes": "536870912\n", memory + "memory.memsw.limit_in_bytes": "536870912\n", memory + "memory.usage_in_bytes": "5000\n",
			memory + "memory.stat": "cache 700\ntotal_inactive_file 1000\ntotal_active_file 500\n", memory + "memory.oom_control": "oom_kill_disable 0\noom_kill 3\n",
			memory + "cgroup.procs": "1\n2\n", pids + "pids.max": "512\n", pids + "pids.current": "9\n", pids + "pids.events": "max 4\n", pids + "cgroup.procs": "1\n2\n",
			cpu + "cpu.cfs_quota_us": "150000\n", cpu + "cpu.cfs_period_us": "100000\n", cpu + "cpuacct.usage": "2000000000\n", cpu + "cpu.stat": "nr_throttled 5\n", cpu + "cgroup.procs": "1\n2\n",
		}, Limits{MemoryMax: 512 << 20, Pids: 512, CPUs: 1.5}},
		"version 1 without limits": {v1Mounts, "7:memory:/docker/c0ffee\n6:pids:/docker/c0ffee\n5:cpu,cpuacct:/docker/c0ffee\n", "c0ffee", map[string]string{
			memory + "memory.limit_in_bytes": "9223372036854771712\n", memory + "memory.memsw.limit_in_bytes": "9223372036854771712\n", memory + "memory.usage_in_bytes": "5000\n",
			memory + "memory.stat": "total_inactive_file 1000\ntotal_active_file 500\n", memory + "memory.oom_control": "oom_kill 3\n", memory + "cgroup.procs": "1\n2\n",
			pids + "pids.max": "max\n", pids + "pids.current": "9\n", pids + "pids.events": "max 4\n",
			cpu + "cpu.cfs_quota_us": "-1\n", cpu + "cpu.cfs_period_us": "100000\n", cpu + "cpuacct.usage": "2000000000\n", cpu + "cpu.stat": "nr_throttled 5\n",
		}, Limits{}},
		"version 2": {v2Mount, "0::/system.slice/docker-c0ffee.scope\n", "docker-c0ffee.scope", map[string]string{
			unified + "cgroup.controllers": "cpu memory pids\n", unified + "memory.max": "536870912\n", unified + "memory.swap.max": "0\n", unified + "memory.current": "5000\n",
			unified + "memory.stat": "inactive_file 1000\nactive_file 500\n", unified + "memory.events": "oom 3\noom_kill 3\n", unified + "pids.max": "512\n", unified + "pids.current": "9\n",
			unified + "pids.events": "max 4\n", unified + "cpu.max": "150000 100000\n", unified + "cpu.stat": "usage_usec 2000000\nnr_throttled 5\n", unified + "cgroup.procs": "1\n2\n",
		}, Limits{MemoryMax: 512 << 20, Pids: 512, CPUs: 1.5}},
		"version 2 with swap": {v2Mount, "0::/system.slice/docker-c0ffee.scope\n", "docker-c0ffee.scope", map[string]string{
			unified + "cgroup.controllers": "cpu memory pids\n", unified + "memory.max": "536870912\n", unified + "memory.swap.max": "max\n", unified + "memory.current": "5000\n",
			unified + "memory.stat": "inactive_file 1000\nactive_file 500\n", unified + "memory.events": "oom_kill 3\n", unified + "pids.max": "512\n", unified + "pids.current": "9\n",
			unified + "pids.events": "max 4\n", unified + "cpu.max": "max 100000\n", unified + "cpu.stat": "usage_usec 2000000\nnr_throttled 5\n", unified + "cgroup.procs": "1\n2\n",
		}, Limits{MemoryMax: huge, Pids: 512}},
	} {
		o, err := of(fakeTree(t, c.mounts, c.self, c.files))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		limits, err := o.Limits()
		if err != nil || limits != c.limits || o.Name() != c.name {
			t.Errorf("%s: %s has the limits %+v (%v), want %+v", name, o.Name(), limits, err, c.limits)
		}
		usage, err := o.Usage()
		if want := (Usage{Memory: 3500, CPU: 2 * time.Second, Pids: 9}); err != nil || usage != want {
			t.Errorf("%s: usage %+v (%v)", name, usage, err)
		}
		events, err := o.Events()
		if want := (Events{OOMKills: 3, PidsMax: 4, Throttled: 5}); err != nil || events != want {
			t.Errorf("%s: events %+v (%v)", name, events, err)
		}
		if pids, err := o.Processes(); err != nil || !slices.Equal(pids, []int{1, 2}) {
			t.Errorf("%s: the processes %v (%v)", name, pids, err)
		}
	}
}

// A group that is everybody's, or that cannot be seen, is none.
func TestOfFindsNone(t *testing.T) {
	for name, self := range map[string]string{
		"the root": "7:memory:/\n6:pids:/\n5:cpu,cpuacct:/\n", "outside": "7:memory:/../x\n6:pids:/../x\n", "nothing": "",
	} {
		if o, err := of(fakeTree(t, v1Mounts, self, nil)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	if o, err := of(fakeTree(t, v2Mount, "0::/\n", map[string]string{"/sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n"})); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the root of version 2: %+v, %v", o, err)
	}
	if _, err := Of(1 << 22); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such process: %v", err)
	}
}
