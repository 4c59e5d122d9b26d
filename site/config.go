package site

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"tendril/agents"
	"tendril/capability"
	"tendril/destination"
	"tendril/fault"
	"tendril/strictyaml"
)

// FileName is the name of the Botanist's file in the configuration directory.
const FileName = "tendril.yaml"

// Config is the Botanist's file. The zero value is what holds without one.
type Config struct {
	Version int `yaml:"version"`

	// Toolchain lists directories of this host that every Sprout sees,
	// read-only and under their own paths, beside the system's own programs.
	Toolchain []Dir `yaml:"toolchain"`

	Limits Limits `yaml:"limits"`

	// Routes say where model routes lead, if not to the provider's own.
	Routes Routes `yaml:"routes"`

	// Agents are further agents, and what is different here about those that are built in.
	Agents map[agents.Name]Agent `yaml:"agents"`
}

// Agent is an agent CLI as it is on this host.
type Agent struct {
	Line         strictyaml.Line
	agents.Agent `yaml:",inline"`

	// Toolchain lists directories that this agent's runs see beside those of every run,
	// and in which its program is looked for first.
	Toolchain []Dir `yaml:"toolchain"`
}

// KnownAgents are the built-in agents as the file changes them, and its own.
func (c Config) KnownAgents() map[agents.Name]Agent {
	known := map[agents.Name]Agent{}
	for name, agent := range agents.BuiltIn() {
		known[name] = Agent{Agent: agent}
	}
	for name, agent := range c.Agents {
		agent.Agent = known[name].Extended(agent.Agent)
		known[name] = agent
	}
	return known
}

// Routes are the model routes, by the interface that they speak.
type Routes struct {
	Anthropic *Route `yaml:"anthropic"`
	OpenAI    *Route `yaml:"openai"`
}

// Route is a provider of models.
type Route struct {
	URL      Base                  `yaml:"url"`
	Networks []destination.Network `yaml:"networks"` // in which it may lie although they are not public
}

// Validate refuses a route that leads nowhere.
func (r Route) Validate() error {
	if r.URL == (Base{}) {
		return fault.New(fault.Invalid, "the url is missing").WithHint("write `url: https://api.example.com`")
	}
	return nil
}

// Base is the beginning of a provider's URLs.
type Base struct{ destination.URL }

// UnmarshalText takes a URL in its one form, without a query.
func (b *Base) UnmarshalText(text []byte) error {
	url, err := destination.Parse(strings.TrimSuffix(string(text), "/"))
	if err != nil {
		return err
	}
	if strings.Contains(url.Target(), "?") {
		return fault.New(fault.Invalid, "%q has a query", clip(string(text)))
	}
	if strings.HasSuffix(url.Path(), "/v1") {
		return fault.New(fault.Invalid, "%q ends in /v1, which the route adds itself", clip(string(text))).WithHint("leave /v1 out")
	}
	*b = Base{url}
	return nil
}

// Limits holds the bounds that runs get.
type Limits struct {
	// Defaults are for what a request leaves out. A nil one is the Stem's to
	// choose.
	Defaults capability.Limits `yaml:"defaults"`
}

// Load reads the Botanist's file of the site. A missing file is the zero
// Config. A file that is not understood whole is a fault of the kind invalid
// with file, line and key; one that another account owns or can write is of the
// kind unavailable. In both cases nothing of it holds.
func (d Dirs) Load() (Config, error) {
	file := filepath.Join(d.Config, FileName)
	data, err := readOwned(file, d.uid)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil
	}
	if err != nil {
		return Config{}, unreadable(file, err)
	}
	return ParseConfig(file, data)
}

// ParseConfig decodes the Botanist's file. file is its name as errors give it.
func ParseConfig(file string, data []byte) (Config, error) {
	c, err := strictyaml.Decode[Config](file, data)
	if err != nil {
		return Config{}, err
	}
	known := c.KnownAgents()
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if key := known[name].Missing(); key != "" {
			return Config{}, fault.New(fault.Invalid, "%s:%d: the agent %s has no %s", file, known[name].Line, name, key).
				WithHint("it is none that is built in, so its command and its route have to be written")
		}
	}
	return c, nil
}

// Dir is a directory of the host, absolute and clean.
type Dir string

// UnmarshalText refuses a directory that does not say plainly which it is. What
// may be in it is for whoever builds the view to say.
func (d *Dir) UnmarshalText(text []byte) error {
	dir := string(text)
	var problem string
	switch {
	case !path.IsAbs(dir):
		problem = "is not an absolute path"
	case path.Clean(dir) != dir:
		problem = "is not a clean path"
	case dir == "/":
		problem = "is the root directory, not a toolchain"
	case strings.ContainsRune(dir, 0):
		problem = "holds a NUL byte"
	default:
		*d = Dir(dir)
		return nil
	}
	return fault.New(fault.Invalid, "%q %s", clip(dir), problem).
		WithHint("write an absolute path without . and .. and without a slash at its end")
}

// readBounded reads one byte more than a file may have, so that the
// decoder can tell that it is too large.
func readBounded(file io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(file, strictyaml.Largest+1))
}

// clip bounds what an error repeats of a file or of the environment.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
