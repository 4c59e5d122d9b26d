package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"tendril/display"
	"tendril/fault"
	"tendril/site"
	"tendril/terrarium/docker/registration"
	"tendril/terrarium/microvm/guestimage"
)

// guestDir is where a site keeps the guest of its micro-VMs.
func guestDir(here site.Dirs) string { return filepath.Join(here.State, "microvm") }

// takesNoToken refuses a token where it would prove nothing to anybody: what is set up is
// this host's, and whoever may write there may do it.
func (c *console) takesNoToken(why string) error {
	if c.caller.flags.given() {
		return fault.New(fault.Invalid, "%s, so it takes no token", why).
			WithHint("leave --token-file and --token-fd out, and unset TENDRIL_TOKEN_FILE")
	}
	return nil
}

func (s *setupGvisorCommand) Run(c *console) error {
	if err := c.takesNoToken("setup asks no Stem for anything"); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	r := registration.Registration{File: s.Config, Program: program, Link: s.Link}
	plan := r.SetUp
	if s.Undo {
		plan = r.Undo
	}
	change, err := plan()
	if err != nil {
		return err
	}
	if s.Write {
		if err := change.Apply(); err != nil {
			return err
		}
	}
	if c.json {
		c.printJSON(struct {
			Steps   []string `json:"steps"`
			Written bool     `json:"written"`
			Then    []string `json:"then"`
		}{append([]string{}, change.Steps...), s.Write, change.Then})
		return nil
	}
	s.print(c, change)
	return nil
}

func (s *setupGvisorCommand) print(c *console, change registration.Change) {
	header := "it would (--write does it):"
	switch {
	case len(change.Steps) == 0:
		header = "nothing is to be done"
	case s.Write:
		header = "done:"
	}
	fmt.Fprintln(c.stdout, header)
	for _, step := range change.Steps {
		fmt.Fprintln(c.stdout, "  "+display.Line(step))
	}
	if len(change.Steps) == 0 {
		return
	}
	fmt.Fprintln(c.stdout, "then:")
	for _, step := range change.Then {
		fmt.Fprintln(c.stdout, "  "+display.Line(step))
	}
}

func (s *setupMicrovmCommand) Run(ctx context.Context, c *console) error {
	if err := c.takesNoToken("setup asks no Stem for anything"); err != nil {
		return err
	}
	here, err := site.Find(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	if here, err = here.Prepare(); err != nil {
		return err
	}
	if s.Remove {
		return s.remove(c, guestDir(here))
	}
	if s.KernelPackage == "" && s.Kernel == "" && !s.Download {
		return fault.New(fault.Invalid, "nothing says from which kernel").
			WithHint("give --download, --kernel-package FILE.deb, or --kernel FILE --modules DIR")
	}
	made, err := s.make(ctx, guestDir(here))
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(made)
		return nil
	}
	fmt.Fprintf(c.stdout, "the guest is Linux %s, made of %s (%s), with %d modules\n",
		display.Line(made.Release), display.Line(made.Source), made.Digest, len(made.Loads))
	return nil
}

// make makes the guest. What is downloaded for it is gone again afterwards.
func (s *setupMicrovmCommand) make(ctx context.Context, dir string) (_ guestimage.Manifest, err error) {
	source := guestimage.Source{Package: s.KernelPackage, Kernel: s.Kernel, Modules: s.Modules}
	if s.Download {
		place, failed := os.MkdirTemp("", "tendril-kernel-")
		if failed != nil {
			return guestimage.Manifest{}, failed
		}
		defer func() { err = errors.Join(err, os.RemoveAll(place)) }()
		if source, failed = guestimage.Download(ctx, place); failed != nil {
			return guestimage.Manifest{}, failed
		}
	}
	if s.Digest != "" {
		source.Digest = s.Digest
	}
	return guestimage.Build(ctx, source, dir)
}

func (s *setupMicrovmCommand) remove(c *console, dir string) error {
	removed, err := guestimage.Remove(dir)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(struct {
			Removed bool `json:"removed"`
		}{removed})
		return nil
	}
	if removed {
		fmt.Fprintln(c.stdout, "the guest is removed")
	} else {
		fmt.Fprintln(c.stdout, "there is no guest")
	}
	return nil
}
