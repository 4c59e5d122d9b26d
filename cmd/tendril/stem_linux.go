package main

import (
	"context"
	"errors"
	"os"

	"tendril/capability"
	"tendril/display"
	"tendril/site"
	"tendril/stem"
	"tendril/stoma/binary"
	"tendril/terrarium"
	"tendril/terrarium/runsc"
	"tendril/terrarium/runsc/sandbox"
)

// A process that gVisor starts from our executable is not a tendril of its own:
// it must not even parse flags.
func init() {
	if sandbox.Invoked(os.Args[0]) {
		sandbox.Main()
	}
}

// invoke opens the Stem in this process, asks it, and closes it.
func (c *console) invoke(ctx context.Context, name string, input any) (_ any, err error) {
	s, err := c.openStem(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Invoke(capability.WithProgress(ctx, c.showProgress), stem.LocalBotanist(), name, input)
}

func (c *console) openStem(ctx context.Context) (*stem.Stem, error) {
	here, err := site.Find(os.Getenv, os.Getuid())
	if err != nil {
		return nil, err
	}
	if here, err = here.Prepare(); err != nil {
		return nil, err
	}
	settings, err := here.Load()
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stoma, err := binary.Install(here.State)
	if err != nil {
		return nil, err
	}
	toolchain := make([]string, len(settings.Toolchain))
	for i, dir := range settings.Toolchain {
		toolchain[i] = string(dir)
	}
	return stem.Open(ctx, stem.Config{
		StateDir: here.State, Toolchain: toolchain, Defaults: settings.Limits.Defaults,
		HostPath:  os.Getenv("PATH"),
		Providers: []terrarium.Provider{runsc.New(runsc.Config{Program: program, Stoma: stoma})},
		Notice:    func(text string) { c.live.Notice("tendril: " + text) },
	})
}

func (c *console) showProgress(what string, done, total int64) {
	if total > 0 {
		what += " " + display.Size(done) + " of " + display.Size(total)
	}
	c.live.Status(what)
}
