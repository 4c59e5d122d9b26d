//go:build linux

package probe

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// openToRoot are the probes that leak to root on any Linux host without a wall. The
// rest depends on what the host has: routes, daemons, devices, kernel options.
var openToRoot = strings.Fields(`
	F03 F08 F15 F18 F20 F31
	W01 W02 W03 W04 F11
	F06 D01 F05
	S01 S02 S03
	U01 U02 U03 K05 K07
	C01 C02 C03 F14 C09 C10 C11 C12 C13 C14
	P01 P02 P03 K10 K09 F04 S08
	F17 F19
	K32 K04 K12 K16 K18 K19 K33 K35
	K02 K03
	Q04 Q07
`)

// openToAnybody are the probes that leak to an ordinary account.
var openToAnybody = strings.Fields(`
	F03 F08 F18 F31
	W03
	F06 D01
	S01 S02 S03
	K05 K07
	K32 K04
	S08
	K02
	Q04 Q07
`)

// openToPlants are the probes that leak where the test plants what they look for.
var openToPlants = strings.Fields("F01 F02 F27 F41 N11 N12 K27 Q05 C13")

func TestProbesLeakWithoutAWall(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: an ordinary account is half a wall already")
	}
	checkLeaks(t, 0, openToRoot)
}

func TestProbesFindWhatIsPlanted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to plant")
	}
	results := bare(t, 0, true, openToPlants...)
	for _, id := range openToPlants {
		if results[id].Status != Leak {
			t.Errorf("with a plant %s", results[id])
		}
	}
}

func TestProbesLeakToAnOrdinaryAccount(t *testing.T) {
	want := slices.Clone(openToAnybody)
	if os.Geteuid() != 0 {
		// The pid namespace then comes with a user namespace, in which there is no other
		// account to see.
		want = slices.DeleteFunc(want, func(id string) bool { return id == "K07" || id == "K02" })
	}
	checkLeaks(t, 65534, want)
}

func checkLeaks(t *testing.T, uid int, want []string) {
	t.Helper()
	var ids []string
	seals := map[string]string{}
	for _, p := range All() {
		ids = append(ids, p.ID)
		seals[p.ID] = p.Seal
	}
	results := bare(t, uid, false, ids...)
	leaking := map[string]bool{}
	for _, id := range ids {
		r := results[id]
		t.Logf("%-12s %s", seals[id], r)
		if r.Status == Leak {
			leaking[seals[id]] = true
		}
	}
	for _, id := range want {
		if results[id].Status != Leak {
			t.Errorf("without a wall %s", results[id])
		}
	}
	if uid == 0 {
		for _, p := range All() {
			if p.Core && results[p.ID].Status != Leak {
				t.Errorf("the core probe %s says %s without a wall", p.ID, results[p.ID].Status)
			}
		}
		for _, seal := range slices.Sorted(maps.Values(seals)) {
			if !leaking[seal] {
				t.Errorf("no probe of the seal %s leaks without a wall", seal)
			}
		}
	}
}

func TestTaskLimitIsSeen(t *testing.T) {
	c := exec.Command("/proc/self/exe", "limited")
	if os.Geteuid() == 0 { // whom the limit does not bind
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 61234, Gid: 61234}}
	}
	c.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := c.Output()
	if c.ProcessState == nil || len(out) == 0 {
		t.Skipf("the limit cannot be set: %v", err)
	}
	if r, err := Parse(out); err != nil || r.Status != Sealed {
		t.Errorf("with a limit of 300: %s (%v)", r, err)
	}
}
