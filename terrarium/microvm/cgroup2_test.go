//go:build linux

package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tendril/erofs"
	"tendril/probe"
	"tendril/terrarium"
	"tendril/terrarium/microvm/guestimage"
	"tendril/terrarium/terrariumtest"
)

// TestControlGroupsVersion2 boots a guest that is a host with control groups of version 2
// alone, and runs there, as root, the tests of package cgroup and a probe of the embedded
// wall, which is kept in such a group.
func TestControlGroupsVersion2(t *testing.T) {
	p := emulated(t)
	dir := t.TempDir()
	tests := filepath.Join(dir, "cgroup.test")
	cmd := exec.Command("go", "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", tests, "tendril/cgroup")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the tests of cgroup: %v\n%s", err, out)
	}
	first := filepath.Join(dir, "cgroup2")
	build(t, first, "./testdata/cgroup2", "")
	files := map[string]string{"cgroup.test": tests}
	commands := []string{"/opt/tests/cgroup.test -test.v -test.timeout 5m"}
	if tendril := os.Getenv("TENDRIL_TEST_BINARY"); tendril != "" {
		files["tendril"] = tendril
		commands = append(commands,
			`umask 077; mkdir -p /tmp/.config/tendril; printf 'version: 1\nlimits:\n  defaults: {cpus: 1, memory: 512MiB, disk: 256MiB, pids: 100}\n' > /tmp/.config/tendril/tendril.yaml`,
			"/opt/tests/tendril terrarium probe --provider runsc --json")
	} else {
		t.Log("TENDRIL_TEST_BINARY is not set, so only the package cgroup is tested: run `make test`")
	}
	drive := filepath.Join(dir, "tests.erofs")
	if err := writePrograms(drive, commands, files); err != nil {
		t.Fatal(err)
	}
	guest, err := guestimage.Open(copyGuest(t, p.Guest), first)
	if err != nil {
		t.Fatal(err)
	}
	said := bootHost(t, guest, terrariumtest.Debian(t).Path, drive)
	if !strings.Contains(said, "### "+commands[0]+": exit status 0") {
		t.Errorf("%s did not end well", commands[0])
	}
	// What is skipped proves nothing.
	for _, name := range []string{
		"TestLimitsAreReadBack", "TestSwapIsPartOfMemory", "TestMemoryHogIsKilledAtTheLimit", "TestPidsLimitHolds", "TestQuotaThrottles", "TestUnifiedKillAndUsage",
		"TestKillReachesAnOrphanInASessionOfItsOwn", "TestKillStopsAForkBomb", "TestRemoveFindsWhatAKilledProcessLeft",
	} {
		if !strings.Contains(said, "--- PASS: "+name) {
			t.Errorf("the test %s of cgroup did not pass there", name)
		}
	}
	if len(files) > 1 {
		checkProbe(t, said)
	}
	if t.Failed() {
		t.Log(said)
	}
}

// checkProbe wants the embedded wall to hold, and to be kept in a control group. A probe
// that uses a limit up takes longer there than it may.
func checkProbe(t *testing.T, said string) {
	t.Helper()
	var report struct {
		Boundary []terrarium.Row `json:"boundary"`
		Probes   []struct {
			Probe    string `json:"probe"`
			Result   string `json:"result"`
			Observed string `json:"observed"`
		} `json:"probes"`
	}
	_, rest, found := strings.Cut(said, `{"provider":"runsc",`)
	if err := json.NewDecoder(strings.NewReader("{" + rest)).Decode(&report); !found || err != nil || len(report.Probes) == 0 {
		t.Errorf("the embedded wall was not probed there: %v", err)
		return
	}
	for _, p := range report.Probes {
		found, _ := probe.Find(p.Probe)
		if p.Result != string(probe.Sealed) && p.Result != string(probe.NotApplicable) && !found.Stress {
			t.Errorf("the probe %s says %s: %s", p.Probe, p.Result, p.Observed)
		}
	}
	for field, note := range map[string]string{"Memory": "the cgroup kills at", "CPUs": "cgroup quota"} {
		i := slices.IndexFunc(report.Boundary, func(r terrarium.Row) bool { return r.Field == field })
		if i < 0 || report.Boundary[i].How != terrarium.Inspected || !strings.Contains(report.Boundary[i].Note, note) {
			t.Errorf("the row of %s does not say %q: %+v", field, note, report.Boundary)
		}
	}
}

func writePrograms(path string, commands []string, files map[string]string) error {
	return writeImage(path, func(image *erofs.Writer) error {
		if _, err := image.File("commands", erofs.Attr{Perm: 0o644}, strings.NewReader(strings.Join(commands, "\n")+"\n")); err != nil {
			return err
		}
		for name, source := range files {
			if err := (content{source: source, mode: 0o755}).add(image, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// hostTime bounds the life of a guest that is a host.
const hostTime = 15 * time.Minute

// bootHost boots the guest's kernel in a bare emulator over two drives, and returns what its
// console said.
func bootHost(t *testing.T, guest guestimage.Guest, drives ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hostTime)
	defer cancel()
	args := []string{
		"-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-machine", "microvm,acpi=on,pit=on,pic=on,rtc=on,auto-kernel-cmdline=off",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-m", "2G", "-smp", "2", "-kernel", guest.Kernel, "-initrd", guest.Initramfs,
		"-append", fmt.Sprintf("console=ttyS0 quiet panic=-1 pci=off reboot=t cgroup_no_v1=all tsc_early_khz=%d tsc=reliable", hostKHz()),
		"-serial", "stdio",
	}
	for i, path := range drives {
		args = append(args, "-drive", fmt.Sprintf("id=d%d,if=none,format=raw,readonly=on,file=%s", i, path), "-device", fmt.Sprintf("virtio-blk-device,drive=d%d", i))
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err := errors.Join(err, ctx.Err()); err != nil {
		t.Errorf("the guest: %v", err)
	}
	return string(out)
}
