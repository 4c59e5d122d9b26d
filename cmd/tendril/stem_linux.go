package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"tendril/capability"
	"tendril/credential/source"
	"tendril/egress"
	"tendril/fault"
	"tendril/rootfs/image"
	"tendril/site"
	sprout "tendril/sprout/binary"
	"tendril/stem"
	"tendril/stoma/binary"
	"tendril/terrarium/microvm/jail"
	"tendril/terrarium/runsc/sandbox"
)

// A process that a wall starts from our executable is not a tendril of its own: it must
// not even parse flags.
func init() {
	if sandbox.Invoked(os.Args[0]) {
		sandbox.Main()
	}
	if jail.Invoked(os.Args[0]) {
		jail.Main()
	}
}

// invoke asks the tendril that serves this site, if one does, and otherwise a Stem in
// this process. Both decide the same: whoever owns the process owns the control plane.
func (c *console) invoke(ctx context.Context, name string, input any) (_ any, err error) {
	token, err := c.caller.presents(ctx)
	if err != nil {
		return nil, err
	}
	ctx = capability.WithProgress(ctx, c.showProgress)
	socket, chosen, err := c.socket()
	if err != nil {
		return nil, err
	}
	if chosen || exists(socket) {
		output, err := c.ask(ctx, socket, token, name, input)
		if chosen || !nobodyServes(err) {
			return output, err
		}
	}
	s, err := c.openStem(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	who := stem.ByProcess()
	if token != nil {
		who = who.WithToken(*token)
	}
	answer, err := s.Invoke(ctx, who, name, input)
	return answer.Output, err
}

// exists says whether to ask there at all: a socket that is there may still be one that a
// killed tendril left.
func exists(socket string) bool {
	_, err := os.Lstat(socket)
	return !errors.Is(err, fs.ErrNotExist)
}

// nobodyServes reports whether a call found nobody at the socket, and so had no effect.
func nobodyServes(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
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
	// Secrets pass through this process.
	if err := source.HardenProcess(); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stoma, err := binary.Stoma.Install(here.State)
	if err != nil {
		return nil, err
	}
	own, err := sprout.Sprout.Install(here.State)
	if err != nil && !fault.Is(err, fault.Unavailable) {
		return nil, err
	}
	toolchain := make([]string, len(settings.Toolchain))
	for i, dir := range settings.Toolchain {
		toolchain[i] = string(dir)
	}
	walls, err := parts{here, program, stoma}.walls()
	if err != nil {
		return nil, err
	}
	dialer := &egress.Dialer{}
	images, err := image.OpenStore(filepath.Join(here.State, "images"), image.Options{User: stem.SproutUser, Registry: dialer.Transport()})
	if err != nil {
		return nil, err
	}
	return stem.Open(ctx, stem.Config{
		Site: here, Toolchain: toolchain, Defaults: settings.Limits.Defaults,
		HostPath:  os.Getenv("PATH"),
		Providers: walls,
		Images:    images,
		Dialer:    dialer,
		Routes:    settings.Routes,
		Agents:    settings.KnownAgents(),
		Sprout:    own,
		Notice:    func(text string) { c.notice("tendril: " + text) },
	})
}
