package site

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tendril/agents"
	"tendril/capability"
	"tendril/fault"
	"tendril/strictyaml"
)

const whole = `# what every run of this site gets
version: 1
toolchain:
  - /opt/node
  - /opt/go 1.26
limits:
  defaults:
    cpus: 1.5
    memory: 4GiB
    disk: 10737418240
    output: 64MiB
    pids: 512
    wall: 1h30m
    idle: 90s
`

func TestParseConfig(t *testing.T) {
	got, err := ParseConfig(FileName, []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Version:   1,
		Toolchain: []Dir{"/opt/node", "/opt/go 1.26"},
		Limits: Limits{Defaults: capability.Limits{
			CPUs:   new(1.5),
			Memory: new(capability.Bytes(4 << 30)),
			Disk:   new(capability.Bytes(10 << 30)),
			Output: new(capability.Bytes(64 << 20)),
			Pids:   new(512),
			Wall:   new(capability.Duration(90 * time.Minute)),
			Idle:   new(capability.Duration(90 * time.Second)),
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An entry changes what it says of a built-in agent, and adds one by another name.
func TestKnownAgents(t *testing.T) {
	config, err := ParseConfig(FileName, []byte(`version: 1
agents:
  claude: {toolchain: [/opt/agents], env: {DISABLE_AUTOUPDATER: "0"}}
  mine: {command: [mine, "{prompt}"], route: openai}
`))
	if err != nil {
		t.Fatal(err)
	}
	known := config.KnownAgents()
	claude, builtIn := known["claude"], agents.BuiltIn()["claude"]
	if diff := cmp.Diff(builtIn.Command, claude.Command); diff != "" || claude.Route != builtIn.Route || claude.Toolchain[0] != "/opt/agents" ||
		claude.Env["DISABLE_AUTOUPDATER"] != "0" || len(claude.Env) != len(builtIn.Env) {
		t.Errorf("claude is %+v", claude)
	}
	if known["mine"].Command[0] != "mine" || known["codex"].Missing() != "" || len(known) != len(agents.BuiltIn())+1 {
		t.Errorf("known are %+v", known)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for _, test := range []struct{ name, file, want string }{
		{"nothing", "", "tendril.yaml:1: the file is empty"},
		{"a comment alone", "# later\n", "tendril.yaml:1: the file is empty"},
		{"a list", "- version: 1\n", "tendril.yaml:1: the file is not a list of keys and values"},
		{"a word", "version\n", "tendril.yaml:1: the file is not a list of keys and values"},
		{"no version", "toolchain: [/opt]\n", "tendril.yaml:1: the version is missing"},
		{"a version to come", "version: 2\n", "tendril.yaml:1: version 2 is not one that this program knows"},
		{"a version in quotes", "version: '1'\n", `tendril.yaml:1: the value of "version" is not a whole number in digits`},
		{"a version with a point", "version: 1.0\n", `tendril.yaml:1: the value of "version" is not a whole number in digits`},
		{"a version in other digits", "version: 0x1\n", `tendril.yaml:1: the value of "version" is not a whole number in digits`},
		{"a key twice", "version: 1\ntoolchain: []\ntoolchain: []\n", `tendril.yaml:3: key "toolchain" comes twice; the first is on line 2`},
		{"an inner key twice", "version: 1\nlimits:\n  defaults:\n    pids: 1\n    pids: 2\n", `tendril.yaml:5: key "pids" comes twice; the first is on line 4`},
		{"a key in another case", "version: 1\nToolchain: []\n", `tendril.yaml:2: unknown key "Toolchain" (did you mean "toolchain"?)`},
		{"a key of another place", "version: 1\nmemory: 4GiB\n", `tendril.yaml:2: unknown key "memory"`},
		{"a key that is no text", "version: 1\n2: 3\n", "tendril.yaml:2: a key is not text"},
		{"a key that is a list", "version: 1\n? [a]\n: b\n", "tendril.yaml:2: a key is not text"},
		{"no value", "version: 1\ntoolchain:\n", `tendril.yaml:2: key "toolchain" has no value`},
		{"a tilde", "version: 1\nlimits: ~\n", `tendril.yaml:2: key "limits" has no value`},
		{"no list", "version: 1\ntoolchain: /opt\n", `tendril.yaml:2: the value of "toolchain" is not a list`},
		{"no keys", "version: 1\nlimits: [a]\n", `tendril.yaml:2: the value of "limits" is not keys and values`},
		{"an anchor", "version: 1\ntoolchain: &a [/opt]\n", "tendril.yaml:2: an anchor (&a) is not allowed"},
		{"an alias", "version: 1\nx: &a 1\ny: *a\n", "tendril.yaml:2: an anchor (&a) is not allowed"},
		{"a merge", "version: 1\n<<: {toolchain: [/opt]}\n", "tendril.yaml:2: a merge key (<<) is not allowed"},
		{"a tag", "version: !!int 1\n", "tendril.yaml:1: an explicit tag (!!int) is not allowed"},
		{"a tag of our own", "version: 1\ntoolchain: !x [/opt]\n", "tendril.yaml:2: an explicit tag (!x) is not allowed"},
		{"two documents", "version: 1\n---\nversion: 1\n", "tendril.yaml:2: the file holds more than one document"},
		{"an empty second document", "version: 1\n---\n", "tendril.yaml:2: the file holds more than one document"},
		{"no YAML", "version: 1\nlimits: a: b\n", "tendril.yaml:2: mapping values are not allowed in this context"},
		{"a relative directory", "version: 1\ntoolchain:\n  - /opt\n  - opt\n", `tendril.yaml:4: toolchain: "opt" is not an absolute path`},
		{"a directory with dots", "version: 1\ntoolchain: [/opt/../etc]\n", `tendril.yaml:2: toolchain: "/opt/../etc" is not a clean path`},
		{"a slash at the end", "version: 1\ntoolchain: [/opt/]\n", `tendril.yaml:2: toolchain: "/opt/" is not a clean path`},
		{"the root", "version: 1\ntoolchain: [/]\n", `tendril.yaml:2: toolchain: "/" is the root directory, not a toolchain`},
		{"a NUL", "version: 1\ntoolchain: [\"/o\\0pt\"]\n", `tendril.yaml:2: toolchain: "/o\x00pt" holds a NUL byte`},
		{"a home", "version: 1\ntoolchain: [~/go]\n", `tendril.yaml:2: toolchain: "~/go" is not an absolute path`},
		{"too little", limit("memory: 1MiB"), "tendril.yaml:4: defaults: the memory limit of 1MiB is out of range"},
		{"nothing at all", limit("pids: 0"), "tendril.yaml:4: defaults: the pids limit of 0 is out of range"},
		{"less than nothing", limit("cpus: -1"), "tendril.yaml:4: defaults: the cpus limit of -1 is out of range"},
		{"no number", limit("cpus: .nan"), `tendril.yaml:4: the value of "cpus" is not a number such as 2 or 1.5`},
		{"an exponent", limit("cpus: 1e3"), `tendril.yaml:4: the value of "cpus" is not a number such as 2 or 1.5`},
		{"another base", limit("pids: 010"), `tendril.yaml:4: the value of "pids" is not a whole number in digits`},
		{"an underscore", limit("pids: 1_000"), `tendril.yaml:4: the value of "pids" is not a whole number in digits`},
		{"a unit that nobody agrees on", limit("memory: 4G"), `tendril.yaml:4: memory: "4G" is not a size`},
		{"a fraction of a size", limit("memory: 1.5GiB"), `tendril.yaml:4: memory: "1.5GiB" is not a size`},
		{"a list for a size", limit("memory: [1]"), `tendril.yaml:4: the value of "memory" is not a single value`},
		{"more than there is", limit("memory: 9999999TiB"), `tendril.yaml:4: memory: "9999999TiB" is not a size`},
		{"no unit of time", limit("wall: 90"), `tendril.yaml:4: wall: "90" is not a length of time`},
		{"time backwards", limit("wall: -1h"), `tendril.yaml:4: wall: "-1h" is not a length of time`},
		{"a moment", limit("idle: 1ms"), "tendril.yaml:4: defaults: the idle limit of 1ms is out of range"},
		{"an agent of its own without a route", "version: 1\nagents:\n  mine:\n    command: [mine, \"{prompt}\"]\n", "tendril.yaml:4: the agent mine has no route"},
		{"an agent of its own without a command", "version: 1\nagents:\n  mine: {route: openai}\n", "tendril.yaml:3: the agent mine has no command"},
		{"tendril's own agent", "version: 1\nagents: {sprout: {}}\n", "tendril.yaml:2: agents: sprout is tendril's own agent, which no entry changes"},
		{"an agent in another case", "version: 1\nagents: {Codex: {}}\n", `tendril.yaml:2: agents: "Codex" is not the name of a coding agent`},
		{"an agent that cannot be told what to do", "version: 1\nagents: {codex: {command: [codex]}}\n", "tendril.yaml:2: command: the command has 0 arguments {prompt} instead of one"},
		{"a directory of an agent", "version: 1\nagents: {codex: {toolchain: [opt]}}\n", `tendril.yaml:2: toolchain: "opt" is not an absolute path`},
		{"a tab for indentation", "version: 1\nlimits:\n\tdefaults: {}\n", "tendril.yaml:3: found character that cannot start any token"},
		{"a NUL byte", "version: 1\n# \x00\n", "tendril.yaml:2: the file holds a control character (0x00)"},
		{"UTF-16", "\xff\xfev\x00e\x00r\x00s\x00i\x00o\x00n\x00:\x00 \x001\x00", "tendril.yaml:1: the file is not UTF-8"},
		{"too much", "version: 1\n#" + strings.Repeat("x", strictyaml.Largest), "tendril.yaml: 262156 bytes are more than the 262144 that the file may have"},
		{"too deep", "version: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), "tendril.yaml:1: values nest deeper than 16"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := ParseConfig(FileName, []byte(test.file))
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("err = %v, config = %+v", err, config)
			}
			if err.Error() != test.want {
				t.Errorf("got  %s\nwant %s", err, test.want)
			}
			if diff := cmp.Diff(Config{}, config); diff != "" {
				t.Errorf("part of it holds: %s", diff)
			}
		})
	}
}

func limit(line string) string {
	return "version: 1\nlimits:\n  defaults:\n    " + line + "\n"
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(whole))
	for _, seed := range []string{
		"", "#", "version: 1", "version: 1\n---\n", "a: &a [*a]", "<<: {a: b}", "? [a]\n: b", "!!binary aGk=",
		"version: 1\ntoolchain: [/opt]\nlimits: {defaults: {cpus: 2, memory: 4GiB, wall: 1h}}", "{{{{", "- - - -", "\xef\xbb\xbfversion: 1",
		"version: 1\nlimits: {defaults: {memory: !!str 4GiB}}", "%YAML 1.1\n---\nversion: 1", "a: |\n  b", "a: >-\n\t",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := ParseConfig(FileName, data)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("the refusal is not one of the file: %v", err)
			}
			if !strings.HasPrefix(err.Error(), FileName+":") {
				t.Errorf("the refusal does not name the file: %v", err)
			}
			return
		}
		if config.Version != 1 {
			t.Errorf("version %d was taken", config.Version)
		}
		if err := config.Limits.Defaults.Validate(); err != nil {
			t.Error(err)
		}
		for _, dir := range config.Toolchain {
			if err := new(Dir).UnmarshalText([]byte(dir)); err != nil {
				t.Error(err)
			}
		}
	})
}
