//go:build linux

package microvm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tendril/fault"
	"tendril/terrarium/confine"
)

func TestParseQEMUVersion(t *testing.T) {
	for line, want := range map[string]int{
		"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)": 7, "QEMU emulator version 10.0.2": 10, "QEMU emulator version 4.2.1": 4,
	} {
		if got, ok := parseQEMUVersion(line); !ok || got != want {
			t.Errorf("%q was parsed as %d (%v)", line, got, ok)
		}
	}
	for _, line := range []string{"", "QEMU emulator version", "QEMU emulator version x.1", "qemu-img version 7.2.22", "QEMU emulator version 7", "QEMU emulator version 99999.1"} {
		if got, ok := parseQEMUVersion(line); ok {
			t.Errorf("%q was parsed as %d", line, got)
		}
	}
}

func TestAccountsInAMap(t *testing.T) {
	const ranges = "         0          0          1\n      1000     100000      65536\n"
	for id, want := range map[int]bool{0: true, 1: false, 999: false, 1000: true, 66535: true, 66536: false, firstUID: false} {
		if got := holdsID(ranges, id); got != want {
			t.Errorf("%d is held: %v, want %v", id, got, want)
		}
	}
	if holdsID("", 0) || holdsID("rubbish\n", 0) || holdsID("0 0\n", 0) {
		t.Error("a map that is none holds an id")
	}
	if !holdsID("0 0 4294967295\n", firstUID+freeUIDs-1) {
		t.Error("the map of a host does not hold the last account")
	}
}

func TestAccountsTellRunsApart(t *testing.T) {
	if confine.Rootless() {
		t.Skip("an ordinary user has one account")
	}
	one, err := accountFor("r-1")
	if err != nil {
		t.Skip(err)
	}
	other, err := accountFor("r-2")
	if err != nil || one == other || one < firstUID || one >= firstUID+freeUIDs {
		t.Errorf("two runs have the accounts %d and %d (%v)", one, other, err)
	}
}

func TestParseFlags(t *testing.T) {
	for text, want := range map[string]bool{
		"pos:\t0\nflags:\t0100000\nmnt_id:\t29\n": false, "pos:\t0\nflags:\t0100002\n": true, "flags:\t02\n": true, "flags:\t01\n": true, "flags:\t0\n": false,
	} {
		if got, err := parseFlags(text); err != nil || got != want {
			t.Errorf("%q was parsed as %v (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "pos:\t0\n", "flags:\tx\n", "flags:\t9\n"} {
		if got, err := parseFlags(text); err == nil {
			t.Errorf("%q was parsed as %v", text, got)
		}
	}
}

func TestCompareMountPoints(t *testing.T) {
	want := []mounted{{"/", false}, {"/usr/lib", false}, {"/dev/kvm", true}}
	root, lib, kvm := confine.MountPoint{Target: "/", ReadOnly: true}, confine.MountPoint{Target: "/usr/lib", ReadOnly: true}, confine.MountPoint{Target: "/dev/kvm"}
	for name, c := range map[string]struct {
		got     []confine.MountPoint
		refused string
	}{
		"as ordered":              {[]confine.MountPoint{root, lib, kvm}, ""},
		"with the host's below":   {[]confine.MountPoint{root, lib, {Target: "/usr/lib/modules", ReadOnly: true}, kvm}, ""},
		"with a writable below":   {[]confine.MountPoint{root, lib, {Target: "/usr/lib/modules"}, kvm}, "could write to /usr/lib/modules"},
		"with another":            {[]confine.MountPoint{root, lib, kvm, {Target: "/home", ReadOnly: true}}, "sees /home"},
		"with one of a like name": {[]confine.MountPoint{root, lib, kvm, {Target: "/usr/lib64", ReadOnly: true}}, "sees /usr/lib64"},
		"writable":                {[]confine.MountPoint{root, {Target: "/usr/lib"}, kvm}, "could write to /usr/lib"},
		"with a writable root":    {[]confine.MountPoint{{Target: "/"}, lib, kvm}, "could write to /"},
		"without one":             {[]confine.MountPoint{root, lib}, "does not see /dev/kvm"},
		"nothing":                 {nil, "does not see"},
	} {
		err := compareMountPoints(c.got, want)
		if c.refused == "" && err != nil || c.refused != "" && (!fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("mounts %s are answered with %v", name, err)
		}
	}
}

func TestTracesAreLeftOut(t *testing.T) {
	const said = "[    0.1] one\r\n[    0.2]  <TASK>\r\n[    0.3]  ? deep+0x1\r\nstoma: two\r\n indented\r\n[    0.4] three\r\n"
	if got := withoutTraces(said); got != "[    0.1] one\r\nstoma: two\r\n[    0.4] three" {
		t.Errorf("left is %q", got)
	}
	p := &process{}
	if got := p.lastWords(); got != "it said nothing" {
		t.Errorf("of silence is told %q", got)
	}
	p.console.Write([]byte("[    0.1] one\r\nstoma: no drive\x1b[2J\r\n[    0.2] two"))
	p.said.Write([]byte(strings.Repeat("x", 1<<20)))
	if got := p.refusal(); got != "no drive\x1b[2J" {
		t.Errorf("the Stoma is said to have refused with %q", got)
	}
	if got := p.lastWords(); strings.ContainsRune(got, 0x1b) || len(got) > 3*diagnosisKept || !strings.Contains(got, "no drive") {
		t.Errorf("told is %q", got)
	}
}

func TestProofsAreOfThisHostAndGuest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kvm.json")
	if _, ok := readProof(path, "key"); ok {
		t.Error("no file is a proof")
	}
	for _, found := range []proof{{Key: "key", Works: true}, {Key: "key", Why: "it hangs"}} {
		if err := writeProof(path, found); err != nil {
			t.Fatal(err)
		}
		if got, ok := readProof(path, "key"); !ok || got != found {
			t.Errorf("read back is %+v (%v)", got, ok)
		}
		if _, ok := readProof(path, "another"); ok {
			t.Error("a proof of something else counts")
		}
	}
	for _, text := range []string{"", "{", `{"key":5}`, strings.Repeat(" ", maxProof) + `{"key":"key","works":true}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := readProof(path, "key"); ok {
			t.Errorf("%.20q is a proof", text)
		}
	}
}

func TestRateOfTheCounter(t *testing.T) {
	got := hostKHz()
	if got < 100_000 || got > 20_000_000 {
		t.Errorf("the counter goes at %d kHz", got)
	}
	if again := hostKHz(); again != got {
		t.Error("it is measured more than once")
	}
}

func FuzzParseFlags(f *testing.F) {
	f.Add("pos:\t0\nflags:\t0100002\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parseFlags(text); err == nil && !strings.Contains(text, "flags:") {
			t.Errorf("%q says how a file is open", text)
		}
	})
}
