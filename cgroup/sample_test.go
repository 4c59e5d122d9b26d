//go:build linux

package cgroup

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSampleCountsATreeAndEachFileOnce(t *testing.T) {
	const anon, file = 32 << 20, 64 << 20
	p := start(t, "hold")
	before, err := Sample([]int{p.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	p.proceed(t)
	p.line(t)
	after, err := Sample([]int{p.Process.Pid, p.Process.Pid}) // naming it twice changes nothing
	if err != nil {
		t.Fatal(err)
	}
	// The runtime and the other processes take some, or give some back that they held
	// before; counting the file twice would be as much as the file more, and leaving one of
	// the two out at least half of the other less.
	grown := after.Memory - before.Memory
	if grown < anon/2+file || grown >= anon+2*file {
		t.Errorf("grew by %d MiB, want about %d MiB and less than the file more", grown>>20, (anon+file)>>20)
	}
	if after.Pids < 3 {
		t.Errorf("%d threads, want those of three processes", after.Pids)
	}
	alone, err := SampleMemory(p.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if alone < anon+file || alone > after.Memory {
		t.Errorf("the process alone has %d MiB of the tree's %d", alone>>20, after.Memory>>20)
	}
}

func TestSampleSeesProcessorTime(t *testing.T) {
	p := start(t, "burn")
	p.proceed(t)
	await(t, "processor time", func() bool {
		u, err := Sample([]int{p.Process.Pid})
		return err == nil && u.CPU > 0
	})
}

func TestSampleOfNobody(t *testing.T) {
	p := start(t, "hog")
	pid := p.Process.Pid
	_ = p.Process.Kill()
	_ = p.Wait()
	if _, err := Sample([]int{pid}); !errors.Is(err, unix.ESRCH) {
		t.Errorf("sampling a process that ended says %v", err)
	}
	if _, err := SampleMemory(pid); err == nil {
		t.Error("the memory of a process that ended was measured")
	}
}

func BenchmarkSampleMemory(b *testing.B) {
	for b.Loop() {
		if _, err := SampleMemory(os.Getpid()); err != nil {
			b.Fatal(err)
		}
	}
}
