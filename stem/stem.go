//go:build linux

// Package stem is the deterministic kernel: the life of one run from request to
// Fruit, and Invoke, the one door that every verb goes through.
//
// grow.go reads like the picture in docs/architecture.md, from the plan to the
// verdict. Nothing in here reasons: what a Sprout or a model says never changes
// what is done, only what is recorded.
package stem

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"tendril/agents"
	"tendril/budget"
	"tendril/capability"
	"tendril/credential"
	"tendril/credential/source"
	"tendril/egress/model"
	"tendril/egress/proxy"
	"tendril/fault"
	"tendril/grant"
	"tendril/site"
	"tendril/state"
	"tendril/substrate"
	"tendril/terrarium"
)

// Config is what a Stem is made from.
type Config struct {
	// Site is where the control plane and the state are. Its state directory holds the
	// database, the base images and the directories of the runs, and is the Stem's own,
	// mode 0700.
	Site site.Dirs

	// Toolchain is the Botanist's list of directories that a Sprout may see
	// beside the host's /usr.
	Toolchain []string

	// Defaults are the Botanist's limits for runs that ask for none.
	Defaults capability.Limits

	// HostPath is the PATH in which the person would have found a command. It is
	// used to explain, and to put visible directories of it on the Sprout's PATH.
	HostPath string

	// Providers are the walls, the strongest first: the order in which a run
	// that names none takes the first that is ready.
	Providers []terrarium.Provider

	// Images are the OCI images that runs may ask for; nil: none.
	Images Images

	// Dialer connects to what a grant lets a run reach.
	Dialer proxy.Dialer

	// Routes say where model routes lead, if not to the provider's own.
	Routes site.Routes

	// Agents are the agents that work may name.
	Agents map[agents.Name]site.Agent

	// Sprout is the built-in agent's program; empty if this tendril was built without one.
	Sprout string

	// Roots are the authorities that servers outside have to be certified by, beside
	// those of the host.
	Roots []*x509.Certificate

	// Notice is told what a person should know and no run's record holds, such as an
	// abandoned run that could not be cleaned up. It may be nil.
	Notice func(text string)
}

// Stem is safe for concurrent use.
type Stem struct {
	config    Config
	state     *state.Store
	store     *substrate.Store
	secrets   *source.Reader
	providers []terrarium.Provider
	runs      string // one directory a living run
	owner     int    // the uid that owns the control plane

	grantsFile      *site.Watched[grant.File]
	substratesFile  *site.Watched[grant.SubstratesFile]
	credentialsFile *site.Watched[credential.File]
	pricesFile      *site.Watched[budget.Prices]
	fieldsFile      *site.Watched[*model.Fields] // nil: what is built in
	complaining     sync.Mutex
	complaints      map[string]string // by file: what was said of it last
}

// keepRuns is how many ended runs the database remembers.
const keepRuns = 1000

// Open opens the state directory and recovers what an earlier Stem left behind.
func Open(ctx context.Context, c Config) (*Stem, error) {
	s := &Stem{
		config: c, secrets: source.New(), runs: filepath.Join(c.Site.State, "runs"), owner: os.Geteuid(),
		grantsFile:      site.Watch(c.Site, grant.FileName, grant.Parse),
		substratesFile:  site.Watch(c.Site, grant.SubstratesFileName, grant.ParseSubstrates),
		credentialsFile: site.Watch(c.Site, credential.FileName, credential.Parse),
		pricesFile:      site.Watch(c.Site, budget.FileName, budget.ParsePrices),
		fieldsFile:      site.Watch(c.Site, model.FieldsFileName, parseFields),
		complaints:      map[string]string{},
	}
	if c.Notice == nil {
		s.config.Notice = func(string) {}
	}
	for _, p := range c.Providers {
		s.providers = append(s.providers, terrarium.Validated(p))
	}
	if err := os.Mkdir(s.runs, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fault.New(fault.Unavailable, "making the directory of the runs: %w", err).
			WithHint("make %s writable, or set XDG_STATE_HOME to a directory that is", c.Site.State)
	}
	info, err := os.Lstat(s.runs)
	if err != nil || !info.IsDir() {
		return nil, fault.New(fault.Unavailable, "%s is not a directory", s.runs).WithHint("move it away")
	}
	if s.state, err = state.Open(ctx, filepath.Join(c.Site.State, "state.db")); err != nil {
		return nil, err
	}
	if s.store, err = substrate.OpenStore(filepath.Join(c.Site.State, "store")); err != nil {
		return nil, errors.Join(err, s.state.Close())
	}
	// What a dead run left may be out of reach for now; that keeps nobody from
	// looking at others, nor from a run of his own.
	if err := s.recover(ctx); err != nil {
		s.config.Notice(fmt.Sprintf("an abandoned run could not be cleaned up: %v", err))
	}
	return s, nil
}

func parseFields(file string, text []byte) (*model.Fields, error) {
	fields, err := model.WithFile(file, text)
	return &fields, err
}

// Close gives back what the Stem holds. Runs of this process have to be over.
func (s *Stem) Close() error {
	s.secrets.Close()
	return s.state.Close()
}
