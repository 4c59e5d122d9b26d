package capability

import (
	"math"
	"strings"
	"testing"
	"time"

	"tendril/fault"
	"tendril/run"
)

const anID = run.ID("r-01jd0000000000000000000000")

// grow is an input that is taken; change spoils it.
func grow(change func(*GrowInput)) GrowInput {
	in := GrowInput{Work: Work{Substrate: run.Substrate{Path: "/src"}, Argv: []string{"true"}}}
	change(&in)
	return in
}

func TestInputsThatAreTaken(t *testing.T) {
	for name, in := range map[string]interface{ Validate() error }{
		"the least":          grow(func(*GrowInput) {}),
		"a named Substrate":  grow(func(in *GrowInput) { in.Substrate = run.Substrate{Name: "handbook"} }),
		"a path in bytes":    grow(func(in *GrowInput) { in.Substrate.Path = "/s\xffrc\n" }),
		"arguments in bytes": grow(func(in *GrowInput) { in.Argv = []string{"sh", "-c", "\xff", ""} }),
		"environment":        grow(func(in *GrowInput) { in.Env = []string{"A=", "B=1=2", "c=\n"} }),
		"an agent's task":    grow(func(in *GrowInput) { in.Argv, in.Agent, in.Ask, in.Model = nil, "codex", "--help\n", "m-1" }),
		"a base":             grow(func(in *GrowInput) { in.Base = "main~3" }),
		"dirty":              grow(func(in *GrowInput) { in.Dirty = true }),
		"a terminal":         grow(func(in *GrowInput) { in.Terminal = &Size{Rows: 24, Cols: 80} }),
		"a file": grow(func(in *GrowInput) {
			in.Fetch = []FetchedFile{{URL: "https://a.example/x", Path: "a/b..c", Digest: "sha256:" + strings.Repeat("0a", 32)}}
		}),
		"every limit at its least": grow(func(in *GrowInput) {
			in.Limits = Limits{CPUs: new(leastCPUs), Memory: new(leastMemory), Disk: new(leastDisk), Output: new(leastOutput),
				Pids: new(leastPids), Wall: new(leastDuration), Idle: new(leastDuration)}
		}),
		"every limit at its most": grow(func(in *GrowInput) {
			in.Limits = Limits{CPUs: new(float64(mostCPUs)), Memory: new(mostMemory), Disk: new(mostDisk), Output: new(mostOutput),
				Pids: new(mostPids), Wall: new(mostDuration), Idle: new(mostDuration)}
		}),
		"a run":            RunInput{anID},
		"any runs":         ListInput{},
		"some runs":        ListInput{Limit: MostListed, State: run.Lost, Substrate: &run.Substrate{Name: "a"}, After: anID},
		"a place":          WatchInput{anID, 17},
		"logs":             LogsInput{Run: anID, Follow: true},
		"a diff":           DiffInput{Run: anID},
		"accept":           AcceptInput{Run: anID, Into: "main"},
		"the walls":        TerrariumListInput{},
		"a wall to probe":  ProbeInput{Provider: "runsc"},
		"the wall of runs": ProbeInput{},
	} {
		if err := in.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInputsThatAreRefused(t *testing.T) {
	long := strings.Repeat("x", longestArgument+1)
	for _, test := range []struct {
		in   interface{ Validate() error }
		want string
	}{
		{grow(func(in *GrowInput) { in.Substrate = run.Substrate{} }), "no Substrate was named"},
		{grow(func(in *GrowInput) { in.Substrate.Name = "a" }), "by a name or by a path, not by both"},
		{grow(func(in *GrowInput) { in.Substrate.Path = "src" }), `not absolute: "src"`},
		{grow(func(in *GrowInput) { in.Substrate.Path = "/a\x00b" }), "substrate holds a NUL byte"},
		{grow(func(in *GrowInput) { in.Substrate.Path = run.Path("/" + long) }), "substrate is longer than 4096 bytes"},
		{grow(func(in *GrowInput) { in.Argv = nil }), "there is no command to run"},
		{grow(func(in *GrowInput) { in.Argv = []string{""} }), "the command is an empty string"},
		{grow(func(in *GrowInput) { in.Argv = []string{"a\x00b"} }), "an argument or a variable holds a NUL byte"},
		{grow(func(in *GrowInput) { in.Argv = []string{"sh", long} }), "longer than the kernel takes"},
		{grow(func(in *GrowInput) { in.Argv = strings.Fields(strings.Repeat(long[1:]+" ", 9)) }), "are larger than 1048576"},
		{grow(func(in *GrowInput) { in.Agent, in.Ask = "codex", "x" }), "both a command and an agent were given"},
		{grow(func(in *GrowInput) { in.Ask = "x" }), "there is something to ask, and no agent"},
		{grow(func(in *GrowInput) { in.Model = "x" }), "there is something to ask, and no agent"},
		{grow(func(in *GrowInput) { in.Argv, in.Agent, in.Ask = nil, "codex", " \n" }), "there is nothing for the agent to do"},
		{grow(func(in *GrowInput) { in.Argv, in.Agent, in.Ask = nil, "codex", long }), "longer than the kernel takes"},
		{grow(func(in *GrowInput) { in.Argv, in.Agent, in.Ask = nil, "codex", "a\x00b" }), "holds a NUL byte"},
		{grow(func(in *GrowInput) { in.Argv, in.Agent, in.Ask, in.Env = nil, "codex", "a", []string{"x"} }), "not NAME=value"},
		{grow(func(in *GrowInput) { in.Base, in.Dirty = "main", true }), "both a base and a dirty working tree"},
		{grow(func(in *GrowInput) { in.Base = "--upload-pack=x" }), "a base cannot begin with a dash"},
		{grow(func(in *GrowInput) { in.Base = "a\x00" }), "base holds a NUL byte"},
		{grow(func(in *GrowInput) { in.Provider = "a\x00" }), "provider holds a NUL byte"},
		{grow(func(in *GrowInput) { in.Env = []string{"HOME"} }), `not NAME=value: "HOME"`},
		{grow(func(in *GrowInput) { in.Env = []string{"=x"} }), `not NAME=value: ""`},
		{grow(func(in *GrowInput) { in.Env = []string{"A=1", "A=2"} }), `the variable "A" is set twice`},
		{grow(func(in *GrowInput) { in.Terminal = &Size{Rows: 24} }), "a terminal of 24 rows and 0 columns"},
		{grow(func(in *GrowInput) { in.Limits.CPUs = new(0.0) }), "the cpus limit of 0 is out of range"},
		{grow(func(in *GrowInput) { in.Limits.CPUs = new(math.NaN()) }), "the cpus limit of NaN is out of range"},
		{grow(func(in *GrowInput) { in.Limits.CPUs = new(math.Inf(1)) }), "the cpus limit of +Inf is out of range"},
		{grow(func(in *GrowInput) { in.Limits.Memory = new(Bytes(-1)) }), "the memory limit of -1B is out of range"},
		{grow(func(in *GrowInput) { in.Limits.Disk = new(mostDisk + 1) }), "the disk limit of"},
		{grow(func(in *GrowInput) { in.Limits.Output = new(Bytes(0)) }), "the output limit of 0B is out of range"},
		{grow(func(in *GrowInput) { in.Limits.Pids = new(0) }), "the pids limit of 0 is out of range"},
		{grow(func(in *GrowInput) { in.Limits.Wall = new(Duration(time.Millisecond)) }), "the wall limit of 1ms is out of range"},
		{grow(func(in *GrowInput) { in.Limits.Idle = new(Duration(-time.Hour)) }), "the idle limit of -1h0m0s is out of range"},
		{RunInput{}, `"" is not the id of a run`},
		{RunInput{"latest"}, `"latest" is not the id of a run`},
		{ListInput{Limit: -1}, "a limit of -1 runs"},
		{ListInput{Limit: MostListed + 1}, "a limit of 1001 runs"},
		{ListInput{State: "fruitted"}, `there is no state "fruitted"`},
		{ListInput{Substrate: &run.Substrate{}}, "no Substrate was named"},
		{ListInput{After: "x"}, `"x" is not the id of a run`},
		{WatchInput{anID, -1}, "an event cannot have the id -1"},
		{LogsInput{Run: "x"}, `"x" is not the id of a run`},
		{DiffInput{}, `"" is not the id of a run`},
		{AcceptInput{Run: anID, Into: "-f"}, "a branch cannot begin with a dash"},
		{AcceptInput{Into: "main"}, `"" is not the id of a run`},
		{ProbeInput{Limits: Limits{Pids: new(-1)}}, "the pids limit of -1 is out of range"},
	} {
		err := test.in.Validate()
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80v: %.200v; want %s", test.in, err, test.want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]Bytes{
		"0": 0, "1": 1, "512B": 512, "1KiB": 1 << 10, "512MiB": 512 << 20, "4GiB": 4 << 30, "2TiB": 2 << 40,
		"1KB": 1000, "1kB": 1000, "5MB": 5e6, "4GB": 4e9, "1TB": 1e12, "9223372036854775807": math.MaxInt64,
	} {
		got, err := ParseBytes(s)
		if err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", s, got, err, want)
		}
		if back, err := ParseBytes(got.String()); err != nil || back != got {
			t.Errorf("%d is written as %s, which is %d (%v)", got, got, back, err)
		}
	}
	for _, s := range []string{"", "B", "GiB", "-1", "+1", "1.5GiB", "4G", "4g", "4gib", "4 GiB", " 4GiB", "4GiB ", "0x10", "1_000", "1e3",
		"010", "9223372036854775808", "9007199254740992KiB", "99999999TiB", "٤GiB", "4GiBB", "1BB"} {
		if got, err := ParseBytes(s); !fault.Is(err, fault.Invalid) {
			t.Errorf("ParseBytes(%q) = %d, %v", s, got, err)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute, "0s": 0, "250ms": 250 * time.Millisecond,
	} {
		got, err := ParseDuration(s)
		if err != nil || time.Duration(got) != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", s, got, err, want)
		}
		if back, err := ParseDuration(got.String()); err != nil || back != got {
			t.Errorf("%v is written as %s, which is %v (%v)", time.Duration(got), got, back, err)
		}
	}
	for _, s := range []string{"", "0", "90", "-1h", "+1h", "1h-1m", "1 h", "1d", "forever", "9999999h", "h"} {
		if got, err := ParseDuration(s); !fault.Is(err, fault.Invalid) {
			t.Errorf("ParseDuration(%q) = %v, %v", s, got, err)
		}
	}
}
