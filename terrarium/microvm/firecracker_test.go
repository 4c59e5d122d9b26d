//go:build linux

package microvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
	"tendril/terrarium/microvm/guestimage"
	"tendril/terrarium/terrariumtest"
)

// standInVariable names a stand-in for Firecracker that was built before.
const standInVariable = "TENDRIL_TEST_STAND_IN"

// standIn is the wall with a stand-in for Firecracker, which behaves as the build says.
func standIn(t *testing.T, settings ...string) *provider {
	t.Helper()
	// What stands in for Firecracker opens no device, and not every host has that one.
	testOnlyDevice = "/dev/null"
	t.Cleanup(func() { testOnlyDevice = "" })
	dir := filepath.Dir(os.Getenv(standInVariable))
	if os.Getenv(standInVariable) == "" || len(settings) > 0 {
		dir = buildStandIn(t, settings...)
	}
	p := Firecracker(config(t)).(*provider)
	p.machine = vmm{program: filepath.Join(dir, "firecracker"), jailer: filepath.Join(dir, "jailer")}
	key, err := p.proofKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := writeProof(filepath.Join(p.Guest, "kvm-firecracker.json"), proof{Key: key, Works: true}); err != nil {
		t.Fatal(err)
	}
	return p
}

func buildStandIn(t *testing.T, settings ...string) string {
	t.Helper()
	dir := t.TempDir()
	flags := ""
	for _, s := range settings {
		flags += " -X 'main." + s + "'"
	}
	program := filepath.Join(dir, "firecracker")
	build(t, program, "./testdata/firecracker", flags)
	if err := os.Link(program, filepath.Join(dir, "jailer")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFirecrackerIsStarted: from the jail over the API to the guest, and read back. What
// stands in for Firecracker takes no argument and no request but those that it has.
func TestFirecrackerIsStarted(t *testing.T) {
	p := standIn(t)
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec := specFor(t, "firecracker")
	spec.CPUs.Value = 1
	box, err := p.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, box)
	if err := terrarium.Verify(p.Name(), p.Capabilities(), spec, box.Boundary()); err != nil {
		t.Error(err)
	}
	if stat, err := box.Stoma().Stat(t.Context()); err != nil || stat.ProcessMax != terrarium.DefaultPids {
		t.Errorf("the guest says %+v (%v)", stat, err)
	}
	row := box.Boundary()[0]
	if want := "KVM"; !strings.Contains(row.Note, want) || !strings.Contains(row.Note, "seccomp") {
		t.Errorf("the row of the run says %q", row.Note)
	}
	closed(t, box)
	terrariumtest.LeavesNothing(t, spec, "after it was closed")
}

// TestFirecrackerThatIsNot: a Firecracker that is not what it should be is refused, and
// leaves nothing.
func TestFirecrackerThatIsNot(t *testing.T) {
	for name, c := range map[string]struct {
		setting string
		names   string
	}{
		"without its filter":      {"behave=no filter", "without a seccomp filter"},
		"with less memory":        {"behave=drops the memory", "asked"},
		"with another handshake":  {"behave=another handshake", "instead of OK"},
		"that speaks another way": {"behave=another handshake", "HELLO"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			p := standIn(t, c.setting)
			spec := specFor(t, "not")
			box, err := p.Open(t.Context(), spec)
			if err == nil {
				closed(t, box)
				t.Fatal("it was taken for a Terrarium")
			}
			if !fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("refused with %v, want a broken boundary that says %q", err, c.names)
			}
			terrariumtest.LeavesNothing(t, spec, "after the refusal")
		})
	}
}

func TestFirecrackerIsNotReady(t *testing.T) {
	for _, c := range []struct {
		what     string
		settings []string
		names    string
	}{
		{"of a release with an advisory", []string{"version=1.14.3"}, "CVE-2026-5747"},
		{"that says nothing of use", []string{"version=one"}, "does not say which Firecracker"},
	} {
		if err := standIn(t, c.settings...).Ready(t.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("a Firecracker %s is answered with %v", c.what, err)
		}
	}
	p := standIn(t)
	p.machine = vmm{program: "/nowhere/firecracker", jailer: "/nowhere/jailer"}
	if err := p.Ready(t.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "not here") {
		t.Errorf("no Firecracker is answered with %v", err)
	}
	if confine.Rootless() {
		return // the rest is the jailer's
	}
	older := standIn(t, "version=1.15.1").machine.(vmm).jailer
	p.machine = vmm{program: standIn(t).machine.(vmm).program, jailer: older}
	if err := p.Ready(t.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the jailer is of release 1.15.1") {
		t.Errorf("a jailer of another release is answered with %v", err)
	}
}

// TestFirecrackerDies: the end of the process is the end of the Stoma, with what it said.
func TestFirecrackerDies(t *testing.T) {
	p := standIn(t)
	spec := specFor(t, "dies")
	box, err := p.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, box)
	killed(t, box.(*open))
	if err := box.Stoma().Err(); err == nil || !strings.Contains(err.Error(), "the guest starts") {
		t.Errorf("its end is told as %v", err)
	}
	if _, err := box.Stoma().Exec(t.Context(), stoma.ExecRequest{Argv: []string{"true"}}); err == nil {
		t.Error("a command is started in it")
	}
	closed(t, box)
	terrariumtest.LeavesNothing(t, spec, "after its end")
}

func TestJailerArguments(t *testing.T) {
	got := jailerArgs("/usr/bin/jailer", "/usr/bin/firecracker", "/runs/r/machine/jailer", plan{uid: firstUID, maxFile: 64 << 20})
	want := strings.Fields("/usr/bin/jailer --id machine --exec-file /usr/bin/firecracker --uid 1879048192 --gid 1879048192 " +
		"--chroot-base-dir /runs/r/machine/jailer --resource-limit fsize=67108864 --resource-limit no-file=256 -- --api-sock /run/api.sock")
	if !slices.Equal(got, want) {
		t.Errorf("the jailer is started with %q, want %q", got, want)
	}
	started := strings.Fields("./firecracker --id=machine --start-time-us=5 --start-time-cpu-us=7 --api-sock /run/api.sock")
	if !isFirecracker(started) {
		t.Errorf("%q is refused", started)
	}
	for _, more := range []string{"--no-seccomp", "--no-seccomp=true", "--seccomp-filter", "--config-file=/x"} {
		if isFirecracker(append(slices.Clone(started), more)) {
			t.Errorf("%s is let through", more)
		}
	}
	for _, other := range []string{"", "./firecracker", "./firecracker --api-sock", "./firecracker --api-sock /tmp/x", "--api-sock /run/api.sock"} {
		if isFirecracker(strings.Fields(other)) {
			t.Errorf("%q is taken for it", other)
		}
	}
}

func TestProcessorsComeInPairs(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 31: 32, 33: 32, 200: 32} {
		if got := evenly(n); got != want {
			t.Errorf("for %d processors the machine has %d, want %d", n, got, want)
		}
	}
}

// TestRealFirecracker runs a command where a real Firecracker and a KVM that runs guests
// are.
func TestRealFirecracker(t *testing.T) {
	p := Firecracker(config(t)).(*provider)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Ready(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		t.Skipf("this host has no Firecracker that runs guests: %v", err)
	}
	terrariumtest.Run(t, func(*testing.T) terrarium.Provider { return p }, terrariumtest.Options{
		Image: terrariumtest.Debian, Memory: smallest.Memory, Disk: smallest.Disk,
	})
}

// TestGuestWaitsForItsVsock: with the modules of a vsock the guest comes as far as waiting
// for its host, in a machine that has none.
func TestGuestWaitsForItsVsock(t *testing.T) {
	p := emulated(t)
	const patience = 12 * time.Second
	p.machine = qemu{program: "qemu-system-x86_64", patience: patience}
	other := func(args []string) []string {
		i := slices.Index(args, "-append") + 1
		args[i] = strings.Replace(args[i], "machine "+guestimage.VirtioSerial, "machine "+guestimage.Vsock, 1)
		return args
	}
	spec := specFor(t, "vsock")
	_, err := tampered{p, nil, emulator(other), t}.Open(t.Context(), spec)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "did not start within "+patience.String()) || strings.Contains(err.Error(), "panic") {
		t.Errorf("it ended with %v", err)
	}
	terrariumtest.LeavesNothing(t, spec, "after the refusal")
}
