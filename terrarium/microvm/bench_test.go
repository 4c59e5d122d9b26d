//go:build linux

package microvm

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"tendril/bench"
	"tendril/cgroup"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/microvm/guestimage"
)

// fastest is the wall with QEMU and with KVM, where that works.
func fastest(b *testing.B) *provider {
	b.Helper()
	p := emulated(b)
	if err := os.Remove(filepath.Join(p.Guest, "kvm-qemu.json")); err != nil {
		b.Fatal(err)
	}
	kvm, why, err := p.chooseKVM(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("KVM: %v%s", kvm, why)
	return p
}

// Row 2: open a Terrarium, self-test included, run true, close it; against the same kernel
// under the same emulator without a wall, whose first process ends at once.
func BenchmarkRow2OpenTrueClose(b *testing.B) {
	p := fastest(b)
	theirs := bareBoot(b, p)
	spec := specFor(b, "row2")
	name, rounds := spec.Run, 0
	bench.Pairs(b, func() error {
		rounds++
		spec.Run = fmt.Sprintf("%s-%d", name, rounds)
		box, err := terrarium.Validated(p).Open(b.Context(), spec)
		if err != nil {
			return err
		}
		if err := runTrue(b.Context(), box.Stoma()); err != nil {
			return err
		}
		return box.Close(b.Context())
	}, theirs)
}

// Row 3: one more command in an open Terrarium.
func BenchmarkRow3Exec(b *testing.B) {
	box := opened(b, fastest(b), specFor(b, "row3"))
	for b.Loop() {
		if err := runTrue(b.Context(), box.Stoma()); err != nil {
			b.Fatal(err)
		}
	}
}

// Row 5: output through the Stoma. An emulated processor copies slowly, so it is a part of
// the gibibyte that other walls stream.
func BenchmarkRow5Stream(b *testing.B) {
	const size = 64 << 20
	box := opened(b, fastest(b), specFor(b, "row5"))
	b.SetBytes(size)
	for b.Loop() {
		process, err := box.Stoma().Exec(b.Context(), stoma.ExecRequest{Argv: []string{"/bin/dd", "if=/dev/zero", "bs=1M", fmt.Sprint("count=", size>>20)}, Dir: "/workspace"})
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, process.Stdout, make([]byte, 64<<10))
		if err != nil || n != size {
			b.Fatalf("%d bytes arrived (%v)", n, err)
		}
		if err := process.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBoot: how long until the Stoma speaks, and what an idle machine holds of the
// host's memory.
func BenchmarkBoot(b *testing.B) {
	p := fastest(b)
	spec := specFor(b, "boot")
	name, rounds := spec.Run, 0
	var boots, resident float64
	for b.Loop() {
		rounds++
		spec.Run = fmt.Sprintf("%s-%d", name, rounds)
		start := time.Now()
		box, err := p.Open(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		boots += float64(time.Since(start).Milliseconds())
		used, err := cgroup.SampleMemory(box.(*open).process.pid())
		if err != nil {
			b.Fatal(err)
		}
		resident += float64(used) / (1 << 20)
		if err := box.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op") // it ends with the closing
	b.ReportMetric(boots/float64(rounds), "boot-ms")
	b.ReportMetric(resident/float64(rounds), "resident-MiB")
	b.ReportMetric(1024*float64(rounds)/resident, "idle/GiB")
}

func runTrue(ctx context.Context, inside *stoma.Client) error {
	process, err := inside.Exec(ctx, stoma.ExecRequest{Argv: []string{"/bin/true"}, Dir: "/workspace"})
	if err != nil {
		return err
	}
	defer process.Close()
	exit, err := process.Wait(ctx)
	if err == nil && (exit.Code == nil || *exit.Code != 0) {
		err = fmt.Errorf("the command ended with %+v", exit)
	}
	return err
}

// bareBoot boots the guest's kernel with a first process that ends at once, in an emulator
// without drives, without a jail and without a filter.
func bareBoot(b *testing.B, p *provider) func() error {
	b.Helper()
	kvm, _, err := p.chooseKVM(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	program := buildHostile(b, "exit")
	guestDir := copyGuest(b, p.Guest)
	guest, err := guestimage.Open(guestDir, program)
	if err != nil {
		b.Fatal(err)
	}
	args := qemuArgs("qemu-system-x86_64", plan{memoryMiB: 256, cpus: 1, kvm: kvm})
	var kept []string
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-sandbox", "-chardev", "-device", "-serial":
			i++ // and its value
		case kernelInJail:
			kept = append(kept, guest.Kernel)
		case initramfsInJail:
			kept = append(kept, guest.Initramfs)
		default:
			kept = append(kept, args[i])
		}
	}
	return func() error { return exec.Command(kept[0], kept[1:]...).Run() }
}
