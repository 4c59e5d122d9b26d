//go:build linux

package confine

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"tendril/fault"
)

// status is what the kernel says of a confined sentry.
const status = "Name:\truns)c\nUid:\t65534\t65534\t65534\t65534\nCapEff:\t0000000000080000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n"

func TestParseState(t *testing.T) {
	got, err := parseState(bufio.NewScanner(strings.NewReader(status)))
	if want := (State{UID: 65534, Capabilities: 1 << 19, Seccomp: 2, NoNewPrivs: 1}); err != nil || got != want {
		t.Fatalf("parsed as %+v (%v), want %+v", got, err, want)
	}
	for name, text := range map[string]string{
		"nothing":              "",
		"two uids":             strings.Replace(status, "65534\t65534\n", "65534\t0\n", 1),
		"a uid that is none":   strings.ReplaceAll(status, "65534", "nobody"),
		"a uid too large":      strings.ReplaceAll(status, "65534", "4294967296"),
		"no uid":               strings.Replace(status, "Uid", "Gid", 1),
		"no capabilities":      strings.Replace(status, "CapEff", "CapInh", 1),
		"no seccomp":           strings.Replace(status, "Seccomp:", "Speculation:", 1),
		"no no_new_privs":      strings.Replace(status, "NoNewPrivs", "Cpus", 1),
		"strange seccomp":      strings.Replace(status, "Seccomp:\t2", "Seccomp:\tyes", 1),
		"strange capability":   strings.Replace(status, "0000000000080000", "-1", 1),
		"a line without end":   strings.Repeat("x", bufio.MaxScanTokenSize+1),
		"a line that is twice": status + "Seccomp:\t0\n",
	} {
		if got, err := parseState(bufio.NewScanner(strings.NewReader(text))); err == nil {
			t.Errorf("%s was parsed as %+v", name, got)
		}
	}
}

func TestApartSeesTheHosts(t *testing.T) {
	for _, kind := range []string{"ipc", "mnt", "net", "pid", "user", "uts"} {
		if err := Apart(os.Getpid(), kind); !fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), kind) {
			t.Errorf("a process in the host's %s namespace was answered with %v", kind, err)
		}
	}
	if err := Apart(1<<22+1, "net"); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("no process was answered with %v", err)
	}
}

func TestParseMounts(t *testing.T) {
	const text = `175 171 254:0 /usr /usr ro,nosuid,nodev - ext4 /dev/vda rw
176 171 254:0 /x /with\040blank\134 rw,relatime shared:1 - ext4 /dev/vda ro
`
	got, err := parseMounts(strings.NewReader(text))
	if err != nil || len(got) != 2 || got[0] != (MountPoint{"/usr", true}) || got[1] != (MountPoint{`/with blank\`, false}) {
		t.Errorf("parsed as %+v (%v)", got, err)
	}
	if got, err := parseMounts(strings.NewReader("1 2 3\n")); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("a short line was parsed as %+v (%v)", got, err)
	}
}

func FuzzParseState(f *testing.F) {
	f.Add(status)
	f.Add("Uid:\t0\t0\t0\t0\nUid:\nSeccomp:")
	f.Add("NoNewPrivs:0\nSeccomp:0\nNoNewPrivs:0\nSeccomp:0") // four lines of two keys
	f.Fuzz(func(t *testing.T, text string) {
		state, err := parseState(bufio.NewScanner(strings.NewReader(text)))
		if err != nil {
			return
		}
		for _, key := range []string{"Uid:", "CapEff:", "Seccomp:", "NoNewPrivs:"} {
			if !strings.Contains(text, key) {
				t.Errorf("%q was parsed as %+v without %s", text, state, key)
			}
		}
	})
}

func FuzzParseMounts(f *testing.F) {
	f.Add("175 171 254:0 /usr /usr ro,nosuid - ext4 /dev/vda rw\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseMounts(strings.NewReader(text))
		if err == nil && len(list) > strings.Count(text, "\n")+1 {
			t.Errorf("%q was parsed as %d mounts", text, len(list))
		}
	})
}
