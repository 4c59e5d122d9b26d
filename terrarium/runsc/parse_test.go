//go:build linux

package runsc

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
	if want := (processState{UID: 65534, Capabilities: 1 << 19, Seccomp: 2, NoNewPrivs: 1}); err != nil || got != want {
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

func TestCompareState(t *testing.T) {
	want := expected{role: "sentry", uid: 65534, capabilities: capSysPtrace}
	good := processState{UID: 65534, Seccomp: 2, NoNewPrivs: 1}
	if err := want.compare(good); err != nil {
		t.Errorf("less than is allowed was refused: %v", err)
	}
	for name, change := range map[string]func(*processState){
		"host uid 0":      func(s *processState) { s.UID = 0 },
		"capabilities":    func(s *processState) { s.Capabilities = capSysPtrace | 1<<21 },
		"seccomp":         func(s *processState) { s.Seccomp = 1 },
		"gain privileges": func(s *processState) { s.NoNewPrivs = 0 },
	} {
		state := good
		change(&state)
		if err := want.compare(state); !fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v was answered with %v", state, err)
		}
	}
}

// commandLine is a sentry's, with the settings that the boundary rests on.
func commandLine(change map[string]string) [][]byte {
	args := [][]byte{[]byte("runsc-sandbox")}
	for name, value := range settings("/state") {
		if changed, ok := change[name]; ok {
			value = changed
		}
		if value != "absent" {
			args = append(args, []byte("--"+name+"="+value))
		}
	}
	return append(args, []byte("boot"), []byte("--network=host"), []byte("r-1"))
}

func TestCompareSettings(t *testing.T) {
	if err := compareSettings(commandLine(nil)); err != nil {
		t.Errorf("what follows the command is not a setting: %v", err)
	}
	for _, name := range sealing {
		for _, value := range []string{"absent", "", "other"} {
			if err := compareSettings(commandLine(map[string]string{name: value})); !fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%s was answered with %v", name, value, err)
			}
		}
	}
	for _, args := range [][][]byte{nil, {[]byte("runsc-gofer"), []byte("gofer")}} {
		if err := compareSettings(args); !fault.Is(err, fault.BrokenBoundary) {
			t.Errorf("%q was answered with %v", args, err)
		}
	}
}

// A flag that is given twice counts as gVisor reads it: the last one wins.
func TestCompareSettingsSeesTheLast(t *testing.T) {
	args := commandLine(nil)
	args = append([][]byte{args[0], []byte("--network=none")}, args[1:]...)
	args = append(args[:len(args)-3], []byte("-network=host"), []byte("boot"))
	if err := compareSettings(args); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("the last of two settings was not seen: %v", err)
	}
}

func TestCompareEnvironment(t *testing.T) {
	for environ, ok := range map[string]bool{
		"": true, "\x00": true, startVariable + "=1\x00": true,
		"PATH=/bin\x00": false, startVariable + "=1\x00TOKEN=x\x00": false, "odd\x00": false,
	} {
		if err := compareEnvironment("sentry", []byte(environ)); (err == nil) != ok {
			t.Errorf("%q was answered with %v", environ, err)
		}
	}
	// This process's own, which has a PATH at least.
	if err := readBackEnvironment("test", os.Getpid()); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("this process has an environment, and that was answered with %v", err)
	}
}

func TestReadBackNamespacesSeesTheHosts(t *testing.T) {
	for _, kind := range []string{"ipc", "mnt", "net", "pid", "user", "uts"} {
		if err := readBackNamespaces(os.Getpid(), kind); !fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), kind) {
			t.Errorf("a process in the host's %s namespace was answered with %v", kind, err)
		}
	}
	if err := readBackNamespaces(1<<22+1, "net"); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("no process was answered with %v", err)
	}
}

func TestCompareMounts(t *testing.T) {
	shown := map[string]string{"/usr": "/usr", "/toolchain": "/opt/tools"}
	masks := []string{"/usr/pip.conf"}
	ro := func(targets ...string) (list []mountPoint) {
		for _, target := range targets {
			list = append(list, mountPoint{target, true})
		}
		return list
	}
	host := ro("/", "/usr/share/fonts", "/opt/tools/more")
	for name, c := range map[string]struct {
		gofer   []mountPoint
		refused string
	}{
		"the view":                           {ro("/usr", "/toolchain", "/usr/pip.conf"), ""},
		"a mask missing":                     {ro("/usr", "/toolchain"), "does not mount /usr/pip.conf"},
		"with what the host mounts below":    {ro("/usr", "/toolchain", "/usr/pip.conf", "/usr/share/fonts", "/toolchain/more"), ""},
		"a directory missing":                {ro("/usr", "/usr/pip.conf"), "/toolchain"},
		"nothing":                            {nil, "does not mount"},
		"a root":                             {ro("/", "/usr", "/toolchain"), "shows /,"},
		"something else":                     {ro("/usr", "/toolchain", "/home"), "/home"},
		"something else below":               {ro("/usr", "/toolchain", "/usr/home"), "/usr/home"},
		"something by the host's name":       {ro("/usr", "/toolchain", "/opt/tools/more"), "/opt/tools/more"},
		"a beginning of the same name":       {ro("/usr", "/toolchain", "/usr2"), "/usr2"},
		"writable":                           {append(ro("/toolchain"), mountPoint{"/usr", false}), "/usr is writable"},
		"writable over what was mounted":     {append(ro("/usr", "/toolchain"), mountPoint{"/usr", false}), "/usr is writable"},
		"writable where a mask is mounted":   {append(ro("/usr", "/toolchain"), mountPoint{"/usr/pip.conf", false}), "/usr/pip.conf is writable"},
		"writable where nothing is expected": {append(ro("/usr", "/toolchain"), mountPoint{"/x", false}), "/x"},
	} {
		err := compareMounts(c.gofer, host, shown, masks)
		if c.refused == "" && err != nil || c.refused != "" && (!fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s was answered with %v", name, err)
		}
	}
}

func TestParseMounts(t *testing.T) {
	const text = `175 171 254:0 /usr /usr ro,nosuid,nodev - ext4 /dev/vda rw
176 171 254:0 /x /with\040blank\134 rw,relatime shared:1 - ext4 /dev/vda ro
`
	got, err := parseMounts(strings.NewReader(text))
	if err != nil || len(got) != 2 || got[0] != (mountPoint{"/usr", true}) || got[1] != (mountPoint{`/with blank\`, false}) {
		t.Errorf("parsed as %+v (%v)", got, err)
	}
	if got, err := parseMounts(strings.NewReader("1 2 3\n")); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("a short line was parsed as %+v (%v)", got, err)
	}
}

func TestParseReport(t *testing.T) {
	for line, ok := range map[string]bool{
		`{"sentry":7,"gofer":8,"started":true}`: true,
		`{"tasks":{"now":3,"refused":1}}`:       true,
		`{"error":"no memory"}`:                 false,
		`{"sentry":"7"}`:                        false,
		``:                                      false,
		`[]`:                                    false,
	} {
		if report, err := parseReport([]byte(line)); (err == nil) != ok {
			t.Errorf("%s was parsed as %+v (%v)", line, report, err)
		}
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

func FuzzCompareSettings(f *testing.F) {
	f.Add("runsc-sandbox\x00--network=none\x00boot\x00")
	f.Add(string(joinArgs(commandLine(nil))))
	f.Add(string(joinArgs(commandLine(map[string]string{"network": "host"}))))
	f.Fuzz(func(t *testing.T, cmdline string) {
		if compareSettings(splitArgs(cmdline)) != nil {
			return
		}
		for _, name := range sealing {
			if !strings.Contains(cmdline, name+"="+settings("")[name]) {
				t.Errorf("%q passed without %s", cmdline, name)
			}
		}
	})
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"sentry":7,"gofer":8,"started":true}`))
	f.Add([]byte(`{"tasks":{"now":3,"refused":1},"error":""}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if report, err := parseReport(line); err == nil && report.Error != "" {
			t.Errorf("%q was parsed as %+v", line, report)
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

func splitArgs(cmdline string) [][]byte {
	var args [][]byte
	for arg := range strings.SplitSeq(cmdline, "\x00") {
		args = append(args, []byte(arg))
	}
	return args
}

func joinArgs(args [][]byte) []byte {
	var all []byte
	for _, arg := range args {
		all = append(append(all, arg...), 0)
	}
	return all
}
