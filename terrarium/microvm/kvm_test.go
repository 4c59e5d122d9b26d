//go:build linux

package microvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tendril/fault"
	"tendril/terrarium/terrariumtest"
)

// untried is the wall with QEMU, of which nobody knows yet whether KVM works for it.
func untried(t *testing.T) *provider {
	t.Helper()
	p := emulated(t)
	guest := copyGuest(t, p.Guest)
	if err := os.Remove(filepath.Join(guest, "kvm-qemu.json")); err != nil {
		t.Fatal(err)
	}
	return &provider{Config: Config{Program: p.Program, Stoma: p.Stoma, Guest: guest}, machine: p.machine}
}

// TestKVMIsTried: whether KVM runs a guest is found out within a deadline, once, and said.
func TestKVMIsTried(t *testing.T) {
	if err := kvmOpens(); err != nil {
		t.Skipf("this host has no KVM to try: %v", err)
	}
	p := untried(t)
	start := time.Now()
	kvm, why, err := p.chooseKVM(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("KVM works: %v%s", kvm, why)
	if took := time.Since(start); took > bootTime+20*time.Second {
		t.Errorf("it took %v", took)
	}
	if kvm != (why == "") {
		t.Errorf("KVM works: %v, and the reason is %q", kvm, why)
	}
	if !kvm && !strings.Contains(why, "did not start within") && !strings.Contains(why, "the machine ended") {
		t.Errorf("that it does not is told as %q", why)
	}
	start = time.Now()
	again, _, err := p.chooseKVM(t.Context())
	if took := time.Since(start); err != nil || again != kvm || took > time.Second {
		t.Errorf("asked again it is %v after %v (%v)", again, took, err)
	}
	// What was found out is in the row of a run.
	spec := specFor(t, "tried")
	box := opened(t, p, spec)
	if note := box.Boundary()[0].Note; kvm == strings.HasPrefix(note, "the processor is emulated") || !kvm && !strings.Contains(note, why) {
		t.Errorf("the row of the run says %q", note)
	}
	closed(t, box)
	terrariumtest.LeavesNothing(t, spec, "after it was closed")
}

// TestWhyThereIsNoKVM: to have none and not to be allowed to use it are told apart, because
// different things help.
func TestWhyThereIsNoKVM(t *testing.T) {
	t.Cleanup(func() { testOnlyDevice = "" })
	for device, want := range map[string]struct{ says, hint string }{
		filepath.Join(t.TempDir(), "kvm"): {"this host has no KVM", "load the module"},
		// Nobody may write to it, root included.
		"/sys/kernel/uevent_seqnum": {"may not use KVM", "group"},
	} {
		testOnlyDevice = device
		err := (&provider{}).kvmWorks(t.Context())
		var f *fault.Error
		if !errors.As(err, &f) || !strings.Contains(f.Detail, want.says) || !strings.Contains(f.Hint, want.hint) {
			t.Errorf("%s: %v", device, err)
		}
	}
}

// TestGivingUpProvesNothing: a caller who does not wait leaves no belief behind.
func TestGivingUpProvesNothing(t *testing.T) {
	if err := kvmOpens(); err != nil {
		t.Skipf("this host has no KVM to try: %v", err)
	}
	p := untried(t)
	why := errors.New("no patience")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, why)
	defer cancel()
	if _, _, err := p.chooseKVM(ctx); !errors.Is(err, why) {
		t.Errorf("giving up was answered with %v", err)
	}
	if exists(filepath.Join(p.Guest, "kvm-qemu.json")) {
		t.Error("something was proven")
	}
}

// TestFirecrackerNeedsKVM: what cannot emulate is not ready where KVM is not proven.
func TestFirecrackerNeedsKVM(t *testing.T) {
	p := standIn(t)
	key, err := p.proofKey()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.Guest, "kvm-firecracker.json")
	if err := writeProof(path, proof{Key: key, Why: "it hangs"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	spec := specFor(t, "needs")
	_, opening := p.Open(t.Context(), spec)
	for what, err := range map[string]error{"ready": p.Ready(t.Context()), "opened": opening} {
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "it hangs") {
			t.Errorf("being %s is answered with %v", what, err)
		}
	}
	terrariumtest.LeavesNothing(t, spec, "after the refusal")
}
