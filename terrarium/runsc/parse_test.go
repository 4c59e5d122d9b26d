//go:build linux

package runsc

import (
	"os"
	"strings"
	"testing"

	"tendril/fault"
	"tendril/terrarium/confine"
)

func TestCompareState(t *testing.T) {
	want := expected{role: "sentry", uid: 65534, capabilities: capSysPtrace}
	good := confine.State{UID: 65534, Seccomp: 2, NoNewPrivs: 1}
	if err := want.compare(good); err != nil {
		t.Errorf("less than is allowed was refused: %v", err)
	}
	for name, change := range map[string]func(*confine.State){
		"host uid 0":      func(s *confine.State) { s.UID = 0 },
		"capabilities":    func(s *confine.State) { s.Capabilities = capSysPtrace | 1<<21 },
		"seccomp":         func(s *confine.State) { s.Seccomp = 1 },
		"gain privileges": func(s *confine.State) { s.NoNewPrivs = 0 },
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

func TestCompareMounts(t *testing.T) {
	shown := map[string]string{"/usr": "/usr", "/toolchain": "/opt/tools"}
	masks := []string{"/usr/pip.conf"}
	ro := func(targets ...string) (list []confine.MountPoint) {
		for _, target := range targets {
			list = append(list, confine.MountPoint{Target: target, ReadOnly: true})
		}
		return list
	}
	host := ro("/", "/usr/share/fonts", "/opt/tools/more")
	for name, c := range map[string]struct {
		gofer   []confine.MountPoint
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
		"writable":                           {append(ro("/toolchain"), confine.MountPoint{Target: "/usr"}), "/usr is writable"},
		"writable over what was mounted":     {append(ro("/usr", "/toolchain"), confine.MountPoint{Target: "/usr"}), "/usr is writable"},
		"writable where a mask is mounted":   {append(ro("/usr", "/toolchain"), confine.MountPoint{Target: "/usr/pip.conf"}), "/usr/pip.conf is writable"},
		"writable where nothing is expected": {append(ro("/usr", "/toolchain"), confine.MountPoint{Target: "/x"}), "/x"},
	} {
		err := compareMounts(c.gofer, host, shown, masks)
		if c.refused == "" && err != nil || c.refused != "" && (!fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s was answered with %v", name, err)
		}
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
